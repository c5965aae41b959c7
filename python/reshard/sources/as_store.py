"""A source as a store (reshard.stores), with a folder per source that has two files: a listing of its tensors, and their
contents, which do not exist before they are read.

    orbax:///runs/7/items/reshard.listing.json      {"reshard_listing": 1, "tensors": [...]}
    orbax:///runs/7/items/contents                  the boxes of all tensors, one after the other
"""

import atexit
import bisect
import collections
import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from .. import _core
from ..stores.interface import Codes, Entry, Found, StoreError, Upload, store_errors
from .cells import boxes_of, cell_of
from .interface import Source, SourceTensor

__all__ = ["SourceStore"]

_LISTING, _CONTENTS = "reshard.listing.json", "contents"
_MOST_OPEN = 8
_LOOKED_FOR = 1.0  # seconds: checking whether a source has changed may be a request to a server
_MOST_KEPT = 64 << 20  # bytes of boxes that were read only in part


_CODES: Codes = [(FileNotFoundError, "not_found"), (PermissionError, "denied")]


def _words(error: Exception) -> str:
    said = isinstance(error, (ValueError, FileNotFoundError, PermissionError, TimeoutError))
    return str(error) if said else f"{type(error).__name__}: {error}"


def _said(base: str) -> AbstractContextManager[None]:
    """Turns what a source raises into an error of the store, with its type where that says more."""
    return store_errors(base, _CODES, _words)


class _Box:
    def __init__(self, at: int, tensor: SourceTensor, offset: tuple[int, ...], shape: tuple[int, ...], itemsize: int):
        self.at, self.tensor, self.offset, self.shape, self.itemsize = at, tensor, offset, shape, itemsize
        self.end = at + itemsize * math.prod(shape)


class _Opened:
    """A source whose tensors have places."""

    def __init__(self, source: Source):
        self.source, self.version, self._looked = source, source.version(), time.monotonic()
        # While there is an interpreter: a library may need it to close its files, and it was loaded before this.
        atexit.register(self.close)
        self._boxes: list[_Box] = []
        self._kept: collections.OrderedDict[int, bytearray] = collections.OrderedDict()
        self._lock = threading.Lock()  # of what is kept
        listed, at = [], 0
        for tensor in source.tensors():
            itemsize = _core.dtype_bytes(tensor.dtype)
            chunks: list[dict[str, object]] = []
            if not itemsize:  # it is named, and cannot be read
                chunks.append({"offset": [0] * len(tensor.shape), "shape": tensor.shape, "file": _CONTENTS, "at": at, "bytes": 0})
            else:
                for offset, shape in boxes_of(tensor.shape, cell_of(tensor.shape, tensor.chunk, itemsize)):
                    box = _Box(at, tensor, offset, shape, itemsize)
                    self._boxes.append(box)
                    chunks.append({"offset": offset, "shape": shape, "file": _CONTENTS, "at": at})
                    at = box.end
            listed.append({"name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape, "chunks": chunks})
        self._begins = [box.at for box in self._boxes]
        self.bytes = at
        self.listing = json.dumps({"reshard_listing": 1, "tensors": listed, "notes": dict(source.notes())}).encode()

    def close(self) -> None:
        atexit.unregister(self.close)
        self.source.close()

    def is_current(self) -> bool:
        now = time.monotonic()
        try:
            current = self.source.version() == self.version
        except Exception:  # opening it again says why
            return False
        self._looked = now
        return current

    def was_current(self) -> bool:
        """Like is_current, as of a moment ago."""
        return time.monotonic() - self._looked < _LOOKED_FOR or self.is_current()

    def read(self, at: int, out: memoryview) -> None:
        end = at + len(out)
        for number in range(bisect.bisect_right(self._begins, at) - 1, len(self._boxes)):
            box = self._boxes[number]
            if box.at >= end:
                break
            begin, stop = max(at, box.at), min(end, box.end)
            part = out[begin - at : stop - at]
            if (begin, stop) == (box.at, box.end):
                self.source.read(box.tensor.name, box.offset, box.shape, part)
            elif box.tensor.chunk or not box.shape:
                part[:] = memoryview(self._whole(number))[begin - box.at : stop - box.at]
            else:
                self._read_part(box, begin - box.at, stop - box.at, part)

    def _whole(self, number: int) -> bytearray:
        """A whole box, since its other parts will be read next."""
        box = self._boxes[number]
        with self._lock:
            if number not in self._kept:
                data = bytearray(box.end - box.at)
                self.source.read(box.tensor.name, box.offset, box.shape, memoryview(data))
                self._kept[number] = data
                while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _MOST_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(number)
            return self._kept[number]

    def _read_part(self, box: _Box, begin: int, end: int, out: memoryview) -> None:
        """Bytes [begin, end) of a box, from the rows that contain them."""
        d = next((i for i, size in enumerate(box.shape) if size > 1), 0)
        row = box.itemsize * math.prod(box.shape[d + 1 :])
        first, last = begin // row, -(-end // row)
        offset = (*box.offset[:d], box.offset[d] + first, *box.offset[d + 1 :])
        shape = (*box.shape[:d], last - first, *box.shape[d + 1 :])
        if (first * row, last * row) == (begin, end):
            self.source.read(box.tensor.name, offset, shape, out)
            return
        rows = memoryview(bytearray((last - first) * row))
        self.source.read(box.tensor.name, offset, shape, rows)
        out[:] = rows[begin - first * row : end - first * row]


class SourceStore:
    """The store of a scheme: `open_source` opens what follows "SCHEME://"; what it raises is an error of the store."""

    def __init__(self, open_source: Callable[[str], Source]):
        self._open_source = open_source
        self._opened: collections.OrderedDict[str, _Opened] = collections.OrderedDict()
        self._lock = threading.Lock()

    def _open(self, base: str, is_current: Callable[[_Opened], bool] = _Opened.is_current) -> _Opened:
        with self._lock:
            opened = self._opened.get(base)
            if opened is not None and not is_current(opened):
                self._opened.pop(base).close()
                opened = None
            if opened is None:
                opened = self._opened[base] = _Opened(self._open_source(base.partition("://")[2]))
            self._opened.move_to_end(base)
            while len(self._opened) > _MOST_OPEN:
                self._opened.popitem(last=False)[1].close()
            return opened

    def forget(self, base: str) -> None:
        """Closes the source there."""
        with self._lock:
            opened = self._opened.pop(base, None)
        if opened is not None:
            opened.close()

    def find(self, url: str) -> Found:
        base, _, name = url.rpartition("/")
        if name not in (_LISTING, _CONTENTS):
            raise StoreError("not_found", f"{url}: not a file of a source")
        with _said(base):
            opened = self._open(base)
            return Found(len(opened.listing) if name == _LISTING else opened.bytes, opened.version)

    def find_and_read(self, url: str, first: memoryview) -> Found:
        found = self.find(url)
        wanted = min(found.bytes, len(first))
        self.read(url, found, 0, first[:wanted])
        return found

    def read(self, url: str, found: Found, at: int, out: memoryview) -> None:
        base, _, name = url.rpartition("/")
        with _said(base):
            # Conversions check what they have read once more, so here a version as of a moment ago is good enough.
            opened = self._open(base, _Opened.was_current)
            if found.version != opened.version:
                raise StoreError("changed", f"{base}: it has changed")
            if name == _LISTING:
                out[:] = opened.listing[at : at + len(out)]
            else:
                opened.read(at, out)

    def list(self, url: str) -> list[Entry]:
        if url.rpartition("/")[2] in (_LISTING, _CONTENTS):
            raise StoreError("not_found", f"{url}: not a folder")
        with _said(url):
            opened = self._open(url)
            return [Entry(_CONTENTS, Found(opened.bytes, opened.version)), Entry(_LISTING, Found(len(opened.listing), opened.version))]

    def put(self, url: str, data: memoryview, create: bool) -> Found:
        raise StoreError("unsupported", f"{url}: sources are read, not written")

    def begin(self, url: str, length: int, memory: int) -> Upload:
        raise StoreError("unsupported", f"{url}: sources are read, not written")

    def remove(self, url: str) -> None:
        raise StoreError("unsupported", f"{url}: sources are read, not written")
