"""What a store is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["Codes", "Entry", "Found", "Store", "StoreError", "Upload", "store_errors"]


class StoreError(Exception):
    """A store did not do what it was asked to.

    Attributes:
        code: "not_found", "denied", "exists" (Store.put with create), "changed" (Store.read: the object has been
            replaced), "unsupported" (the store cannot do that), or "unavailable": everything else.
    """

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


# Exceptions of a library, and the codes of StoreError for them; the first that fits counts.
Codes = list[tuple[type[BaseException] | tuple[type[BaseException], ...], str]]


@contextmanager
def store_errors(url: str, codes: Codes, words: Callable[[Exception], str]) -> Iterator[None]:
    """Turns what a library raises into StoreError, "unavailable" where no code fits, with words(exception)."""
    try:
        yield
    except (StoreError, MemoryError):
        raise
    except Exception as error:
        code = next((code for types, code in codes if isinstance(error, types)), "unavailable")
        raise StoreError(code, f"{url}: {words(error)}") from error


class Found(NamedTuple):
    """An object."""

    bytes: int
    version: str  # changes with the content: an ETag, a version, the time of the last write; "" if there is none


class Entry(NamedTuple):
    """One line of a list."""

    name: str  # below the URL that was listed, without "/"
    found: Found | None  # None: a folder


class Upload(Protocol):
    """An object that is being written. Readers see nothing of it before finish()."""

    def write(self, data: memoryview) -> None:
        """Appends the next bytes. Afterwards `data` belongs to the caller again."""

    def finish(self) -> Found:
        """Makes the object appear, whole, in place of any that was there."""

    def give_up(self) -> None:
        """Nothing appears."""


@runtime_checkable
class Store(Protocol):
    """What register() takes: called with URLs as the user wrote them, without a "/" at the end, from any thread.

    Every function raises StoreError. It retries by itself what the network may have spoiled, and returns within a time
    of its own choice.
    """

    def find(self, url: str) -> Found:
        """What is at the URL; "not_found" also for a folder."""

    def find_and_read(self, url: str, first: memoryview) -> Found:
        """The same, and its first bytes: as many as there are and as fit into `first`."""

    def read(self, url: str, found: Found, at: int, out: memoryview) -> None:
        """Fills `out` from byte `at` on, where that many bytes are."""

    def list(self, url: str) -> list[Entry]:
        """Objects and folders directly below the URL; "not_found" where there are none."""

    def put(self, url: str, data: memoryview, create: bool) -> Found:
        """Makes the object appear, whole; with `create` only where there is none ("exists")."""

    def begin(self, url: str, length: int, memory: int) -> Upload:
        """Begins an object of `length` bytes. The upload holds about `memory` bytes of it: the more, the more requests
        are in flight."""

    def remove(self, url: str) -> None:
        """Removes the object. Does nothing where there is none."""
