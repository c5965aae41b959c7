"""What a rank does on a thread of its own, behind what its job does next."""

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

    A program that ends waits for it.
    """

    def __init__(self, span: Span, work: Callable[[Span], Result], unfinished: str, failed: str) -> None:
        """Begins it. Collective over the group, the first time on it: the work has a group of the same ranks for itself.

        Args:
            span: the group whose ranks do this together.
            work: is given the work's own group.
            unfinished, failed: what there is to say where it is not done yet, or failed and nobody waited.
        """
        self._unfinished, self._failed = unfinished, failed
        # Apart from this object, which an error's frames would keep: whoever drops it is told at once.
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
        """What the call itself returns, once all of it is done; raises what that raises.

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


# The last one on each group. The thread alone: of work that is dropped the object goes, and says what went wrong.
_last: dict[str, threading.Thread] = {}


def wait_for_last(span: Span) -> None:
    """Until what was begun on the group before is done, well or not."""
    if span.name in _last:
        _last[span.name].join()
