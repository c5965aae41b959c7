"""A c10d store that several jobs use, with a deadline: no call waits longer, whatever happens to the server."""

import os
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateAnswer
from typing import Any, Callable

import torch.distributed as dist

from ..errors import PeerError


_NOTHING = "\0"  # under no key


def default_timeout() -> float:
    """Seconds that a rank waits for another at any one point: RESHARD_TIMEOUT_MS."""
    text = os.environ.get("RESHARD_TIMEOUT_MS", "")
    return int(text) / 1000 if text.isdigit() and int(text) > 0 else 600.0


def clone_of(store: dist.Store) -> dist.Store:
    """For another thread: calls of one store wait for each other, even for those that wait for a key."""
    try:
        return store.clone()
    except RuntimeError:  # a store written in Python need not have it
        return store


class SharedStore:
    """Texts by name, under a prefix of the store. Every method raises PeerError if the store is gone or does not answer
    within `timeout` seconds; all later calls then raise at once."""

    def __init__(self, store: dist.Store, prefix: str, timeout: float):
        self._store = dist.PrefixStore(prefix, store)
        self.timeout = timeout
        self._lost: PeerError | None = None
        # A thread of its own makes the calls: a store has no deadlines for most of them.
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future] | None] = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(self._calls,), name="reshard store", daemon=True).start()

    def compare_set(self, key: str, expected: str, desired: str) -> str:
        """Writes `desired` if the value is `expected` ("": no value yet), and returns the value afterwards."""
        return self._ask(lambda: self._store.compare_set(key, expected, desired)).decode()

    def set(self, key: str, value: str) -> None:
        self._ask(lambda: self._store.set(key, value))

    def get(self, key: str) -> str:
        """What is there; "" where there is nothing."""
        # Not `get`, which waits for a key that is removed after it was looked for.
        text = self._ask(lambda: self._store.compare_set(key, _NOTHING, _NOTHING)).decode()
        return "" if text == _NOTHING else text

    def add(self, key: str, amount: int) -> int:
        """Adds to the number, and returns the sum."""
        return self._ask(lambda: self._store.add(key, amount))

    def has(self, keys: Sequence[str]) -> bool:
        """Whether each of them has a value."""
        return self._ask(lambda: self._store.check(list(keys)))

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Those that have no value."""
        return self._ask(lambda: [key for key in keys if not self._store.check([key])])

    def remove(self, keys: Sequence[str]) -> None:
        """Removes the keys. Does nothing for those that have no value."""
        self._ask(lambda: [self._store.delete_key(key) for key in keys])

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def close(self) -> None:
        """Ends the thread. Later calls raise."""
        self._lost = self._lost or PeerError("the store was let go")
        self._calls.put(None)

    def _ask(self, call: Callable[[], Any]) -> Any:
        if self._lost is not None:
            raise self._lost
        answer: Future = Future()
        self._calls.put((call, answer))
        try:
            return _result(answer, self.timeout)
        except LateAnswer:
            reason = f"it did not answer within {self.timeout:g} s"
        except Exception as error:
            reason = str(error)[:300]
        self._lost = PeerError(f"the store that the jobs share is lost: {reason}")
        raise self._lost


def _result(answer: Future, timeout: float) -> Any:
    """Like answer.result(timeout), but time in which this process was stopped does not count: a process that wakes up
    finds the deadline long past, and the answer on its way."""
    slices = 20
    length = timeout / slices
    while True:
        begun = time.monotonic()
        try:
            return answer.result(length)
        except LateAnswer:
            slices -= time.monotonic() - begun < 2 * length
            if slices == 0:
                raise


def _serve(calls: "queue.SimpleQueue[tuple[Callable[[], Any], Future] | None]") -> None:
    while (next_ := calls.get()) is not None:
        call, answer = next_
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)


def ranks_text(ranks: Iterable[int]) -> str:
    """ "rank 4", "ranks 4 and 5", "ranks 1, 2 and 3"."""
    texts = [str(rank) for rank in ranks]
    if len(texts) == 1:
        return f"rank {texts[0]}"
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}"
