"""One way to overlap reading or decoding with the rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ordered_map(
    function: Callable[[T], R], items: Iterable[T], *, threads: int, window: int
) -> Generator[R, None, None]:
    """`map` by threads, in order, with at most `window` results not yet taken (so memory stays bounded).

    Close it (`contextlib.closing`) to stop the threads where an error may leave it unfinished.
    """
    pool = ThreadPoolExecutor(threads)
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
