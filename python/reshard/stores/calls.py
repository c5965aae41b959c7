"""Stores as the table of C functions that include/reshard/checkpoint/store_calls.h describes."""

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

from ..sources import places  # noqa: F401 - gives its schemes stores
from .interface import Found, StoreError, Upload
from .schemes import store_of

__all__ = ["take_over"]

_VERSION_BYTES, _ERROR_BYTES = 256, 1024
# The codes of absl::Status.
_CODES = {"not_found": 5, "exists": 6, "denied": 7, "changed": 9, "unsupported": 12, "unavailable": 14}
_INTERNAL = 13


class _Object(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_int64), ("version", ctypes.c_char * _VERSION_BYTES)]

    def fill(self, found: Found) -> None:
        version = found.version.encode()
        if len(version) >= _VERSION_BYTES:
            raise StoreError("unsupported", f"a version of {len(version)} bytes")
        self.bytes, self.version = found.bytes, version

    def found(self) -> Found:
        return Found(self.bytes, self.version.decode())


_Text, _Address, _Number, _Error = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
_TakeEntry = ctypes.CFUNCTYPE(None, _Address, _Text, _Number, _Text)
_ToObject = ctypes.POINTER(_Object)


def _memory(address: int | None, size: int) -> memoryview:
    """The caller's memory, which is gone once the call has returned."""
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _find(url: bytes, into: Any) -> None:
    into.contents.fill(store_of(url.decode()).find(url.decode()))


def _find_and_read(url: bytes, first: int, size: int, into: Any) -> None:
    into.contents.fill(store_of(url.decode()).find_and_read(url.decode(), _memory(first, size)))


def _read(url: bytes, found: Any, at: int, out: int, size: int) -> None:
    store_of(url.decode()).read(url.decode(), found.contents.found(), at, _memory(out, size))


def _list(url: bytes, take: int, taker: int) -> None:
    for entry in store_of(url.decode()).list(url.decode()):
        size, version = entry.found or (-1, "")
        _TakeEntry(take)(taker, entry.name.encode(), size, version.encode())


def _put(url: bytes, data: int, size: int, create: int, into: Any) -> None:
    into.contents.fill(store_of(url.decode()).put(url.decode(), _memory(data, size), bool(create)))


def _remove(url: bytes) -> None:
    store_of(url.decode()).remove(url.decode())


_numbers = itertools.count(1)
_uploads: dict[int, Upload] = {}


def _begin(url: bytes, length: int, memory: int, number: Any) -> None:
    upload = store_of(url.decode()).begin(url.decode(), length, memory)
    number[0] = next(_numbers)
    _uploads[number[0]] = upload


def _write(number: int, data: int, size: int) -> None:
    _uploads[number].write(_memory(data, size))


def _finish(number: int, into: Any) -> None:
    into.contents.fill(_uploads.pop(number).finish())


def _give_up(number: int) -> None:
    _uploads.pop(number).give_up()


def _guarded(function: Callable[..., None]) -> Callable[..., int]:
    """The function with a code as its result, and the address of an error as its last argument."""

    def call(*arguments: Any) -> int:
        try:
            function(*arguments[:-1])
            return 0
        except StoreError as error:
            code, text = _CODES.get(error.code, _INTERNAL), str(error)
        except MemoryError:
            code, text = 8, "out of memory in a store"
        except BaseException as error:  # nothing else would see it
            code, text = _INTERNAL, f"{type(error).__name__} in a store: {error}"
        message = " ".join(text.split()).encode()[: _ERROR_BYTES - 1] + b"\0"
        ctypes.memmove(arguments[-1], message, len(message))
        return code

    return call


_FUNCTIONS = [
    ("find", _find, [_Text, _ToObject]),
    ("find_and_read", _find_and_read, [_Text, _Address, _Number, _ToObject]),
    ("read", _read, [_Text, _ToObject, _Number, _Address, _Number]),
    ("list", _list, [_Text, _Address, _Address]),
    ("put", _put, [_Text, _Address, _Number, ctypes.c_int, _ToObject]),
    ("remove", _remove, [_Text]),
    ("begin", _begin, [_Text, _Number, _Number, ctypes.POINTER(ctypes.c_uint64)]),
    ("write", _write, [ctypes.c_uint64, _Address, _Number]),
    ("finish", _finish, [ctypes.c_uint64, _ToObject]),
]
_TYPES = [(name, ctypes.CFUNCTYPE(ctypes.c_int, *types, _Error)) for name, _, types in _FUNCTIONS]
_TYPES.append(("give_up", ctypes.CFUNCTYPE(None, ctypes.c_uint64)))


class _Table(ctypes.Structure):
    _fields_ = _TYPES


_lock = threading.Lock()
_table: _Table | None = None  # stays for as long as the process


def take_over(use: Callable[[int], None]) -> None:
    """Gives the stores of this package to a compiled part of it, which has a registry of its own: calls `use` with the
    address of the table."""
    global _table
    with _lock:
        if _table is None:
            functions = [kind(_guarded(function)) for (_, kind), (_, function, _) in zip(_TYPES, _FUNCTIONS)]
            _table = _Table(*functions, _TYPES[-1][1](_give_up))
    use(ctypes.addressof(_table))
