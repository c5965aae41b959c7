"""Work of a rank in the background of its job, on a thread of its own."""

import threading
import warnings
from collections.abc import Callable
from typing import Generic, TypeVar

from .entries import ALONE
from .groups import Span, side_group

Result = TypeVar("Result")


class _Outcome(Generic[Result]):
    result: Result | None = None
    error: BaseException | None = None


class Behind(Generic[Result]):
    """Work of all ranks of a group together, in the order in which it was begun.

    A program waits for it before it exits.
    """

    def __init__(self, span: Span, work: Callable[[Span], Result], unfinished: str, failed: str) -> None:
        """Starts it. Collective over the group, the first time on it: the work has its own group of the same ranks.

        Args:
            span: the group whose ranks do this together.
            work: called with the work's own group.
            unfinished, failed: what to say of work that is not done yet, or that failed while nobody waited.
        """
        self._unfinished, self._failed = unfinished, failed
        # Apart from this object, which an error's frames would keep alive: whoever drops the object is told at once.
        self._outcome = outcome = _Outcome[Result]()
        self._seen = False
        side = side_group(span) if span != ALONE else span
        before = _last.get(span.name)

        def run() -> None:
            try:
                if before is not None:
                    before.join()
                outcome.result = work(side)
            except BaseException as error:  # kept for whoever waits
                outcome.error = error

        self._thread = threading.Thread(target=run, name=f"reshard: {unfinished}")
        self._thread.start()
        _last[span.name] = self._thread

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> Result:
        """Returns what the call itself returns, once all of it is done; raises what that raises.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it is not done; wait again.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._unfinished}, after {timeout} s")
        self._seen = True
        if self._outcome.error is not None:
            raise self._outcome.error
        return self._outcome.result  # type: ignore[return-value]

    def __del__(self) -> None:
        if not self._seen and self._outcome.error is not None:
            warnings.warn(f"{self._failed}, and nobody waited: {self._outcome.error}", RuntimeWarning, 1)


# The last one on each group. The thread alone: the object of dropped work is freed, and then says what went wrong.
_last: dict[str, threading.Thread] = {}


def wait_for_last(span: Span) -> None:
    """Waits until what was begun on the group before is done, well or not."""
    if span.name in _last:
        _last[span.name].join()
