"""Calls that are repeated while a server does not answer."""

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, wait_random_exponential

from lipt.errors import LiptError, TransientError

#: Seconds; an API server restarts in less time.
PATIENCE_S = 120.0
#: The same for an address that has never answered, and is probably wrong.
FIRST_ANSWER_S = 10.0
T = TypeVar("T")


class UnreachableError(TransientError):
    """The API server of the cluster, or Kubeflow Pipelines, does not answer at all."""


class Patience:
    """Calls a function again while it raises TransientError, for a limited time; then that error is raised."""

    def __init__(self, first_s: float, then_s: float) -> None:
        """
        Args:
            first_s: seconds until the first answer, if `then_s` is not less.
            then_s: seconds after an answer has come.
        """
        self._seconds, self._then_s = min(first_s, then_s), then_s

    def __call__(self, function: Callable[[], T]) -> T:
        def once() -> T:
            try:
                answer = function()
            except UnreachableError:
                raise
            except LiptError:
                self._seconds = self._then_s
                raise
            self._seconds = self._then_s
            return answer

        return Retrying(
            retry=retry_if_exception_type(TransientError),
            wait=lambda state: wait_random_exponential(multiplier=0.5, max=min(10, self._seconds / 3))(state),
            stop=lambda state: (state.seconds_since_start or 0) >= self._seconds,
            reraise=True,
        )(once)
