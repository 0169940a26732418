"""A `map` with threads, to read or decode ahead of use."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ordered_map(
    function: Callable[[T], R], items: Iterable[T], *, threads: int, window: int
) -> Generator[R, None, None]:
    """`map` with threads, in order. At most `window` results are computed ahead, so that memory stays bounded.

    Use `contextlib.closing` if an error may end the loop over it: closing stops the threads.
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
