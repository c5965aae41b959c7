"""The progress of a load or a save, reported on the thread that called for it."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

# Called with (bytes done, bytes in total) of this rank; True prints lines on stderr, on rank 0.
Progress = Callable[[int, int], object] | bool | None
Told = Callable[[int, int], object]

_BETWEEN_CALLS = 0.2  # seconds
_BETWEEN_LINES = 5.0

T = TypeVar("T")


def told_of(progress: Progress, rank: int) -> Told | None:
    """What to call on this rank; None: nothing.

    Raises:
        TypeError: `progress` is not a function.
    """
    if progress is None or progress is False:
        return None
    if progress is True:
        return _Lines().say if rank == 0 else None
    if not callable(progress):
        raise TypeError(f"progress is a function of (bytes done, bytes in total), or True, not {progress!r}")
    return progress


class _Lines:
    """Prints a line every few seconds, and a last one for work that took that long."""

    def __init__(self) -> None:
        self._begun = self._last = time.monotonic()
        self._is_open = False

    def say(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last < _BETWEEN_LINES and not (done == total and self._is_open):
            return
        self._last = now
        self._is_open = done < total
        print(torch.ops.reshard._progress_text(done, total, now - self._begun), file=sys.stderr, flush=True)


def told(work: Callable[[Any], T], tell: Told | None) -> T:
    """Returns what `work` returns. `work` gets a torch.classes.reshard.Progress, which the library tells, and runs on
    another thread while this one calls `tell`; an exception here ends the work, and is raised once it has ended.
    """
    if tell is None:
        return work(None)
    progress = torch.classes.reshard.Progress()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(progress))
        except BaseException as error:  # raised on the thread that waits
            errors.append(error)
        finally:
            progress.end()

    thread = threading.Thread(target=run, name="reshard.progress")
    thread.start()
    own: BaseException | None = None
    try:
        while thread.is_alive():
            try:
                is_told, done, total = progress.next()
                if is_told:
                    tell(done, total)
                    progress.answer("")
            except BaseException as error:  # Ctrl-C, too
                own = own or error
                progress.answer(_text(error))
                thread.join()
    finally:
        progress.answer("interrupted")  # ignored if it has ended
    if own is not None:
        raise own
    if errors:
        raise errors[0]
    return results[0]


def _text(error: BaseException) -> str:
    return f"progress: {type(error).__name__}: {error}".removesuffix(": ")


class Meter:
    """Reports progress of Python code: at the beginning, a few times a second, at the end. Raises what `tell` raises."""

    def __init__(self, total: int, tell: Told | None) -> None:
        self._total = total
        self._tell = tell
        self._done = 0
        self._say()

    def reach(self, done: int) -> None:
        self._done = min(done, self._total)
        if time.monotonic() - self._last >= _BETWEEN_CALLS:
            self._say()

    def add(self, bytes_: int) -> None:
        self.reach(self._done + bytes_)

    def end(self) -> None:
        self._done = self._total
        self._say()

    def _say(self) -> None:
        self._last = time.monotonic()
        if self._tell is not None:
            self._tell(self._done, self._total)
