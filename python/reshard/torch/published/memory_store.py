"""A store of checkpoints in the memory of the hosts that write them: what reshard.save writes below its URL stays in the
shared memory of each rank's host, and reshard.load reads it from there.

Which objects there are, and where, is in a c10d store that all processes can reach; so are small objects themselves.

    d:FOLDER        how many names the folder has had; d:FOLDER:3 is the third of them
    n:PATH          there is such a name
    o:PATH          {"bytes": 734, "version": "5f...", "data": "..."}, or where: {"bytes": ..., "where": [host, path, ...]}
"""

import base64
import json
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...errors import PeerError
from ...stores.interface import Codes, Entry, Found, StoreError, store_errors
from ..shared_store import SharedStore
from .host_memory import HostMemory, Reader, Where

__all__ = ["MemoryStore"]

_SMALL = 16 << 10  # bytes of an object that is in the c10d store itself
_MOST_KNOWN = 10_000  # records, of some 200 bytes
_CODES: Codes = [(PeerError, "unavailable")]


def _errors(url: str) -> AbstractContextManager[None]:
    return store_errors(url, _CODES, str)


class MemoryStore:
    """Of one c10d store: all URLs below `base`."""

    def __init__(self, base: str, records: SharedStore, make_memory: Callable[[], HostMemory]):
        """
        Args:
            make_memory: where objects of this process will be; called when it writes the first one.
        """
        self.records = records
        self.by_nixl = False  # whether what is written from now on can be read by NIXL, too
        self._base, self._make_memory = base, make_memory
        self._memory: HostMemory | None = None
        self._own: dict[str, Where] = {}  # by path: what this process has in its memory
        self._lock = threading.Lock()  # of both
        self._known: dict[str, dict[str, Any]] = {}  # by URL: records of what was found last
        self._reader = Reader()

    # Of reshard.stores.Store:

    def find(self, url: str) -> Found:
        with _errors(url):
            return self._found(self._record(url))

    def find_and_read(self, url: str, first: memoryview) -> Found:
        with _errors(url):
            record = self._record(url)
            wanted = min(record["bytes"], len(first))
            self._read(record, 0, first[:wanted])
            return self._found(record)

    def read(self, url: str, found: Found, at: int, out: memoryview) -> None:
        with _errors(url):
            record = self._known.get(url) or self._record(url)
            if found.version != record["version"]:
                record = self._record(url)
            if found.version != record["version"]:
                raise StoreError("changed", f"{url}: it is another one")
            self._read(record, at, out)

    def list(self, url: str) -> list[Entry]:
        with _errors(url):
            entries = []
            folder = self._path(url)
            for name in self._names(folder):
                path = f"{folder}/{name}"
                if text := self.records.get(f"o:{path}"):
                    entries.append(Entry(name, self._found(json.loads(text))))
                elif any(self.records.get(f"o:{path}/{below}") for below in self._names(path)):
                    entries.append(Entry(name, None))
            if not entries:
                raise StoreError("not_found", f"{url}: no such object")
            return entries

    def put(self, url: str, data: memoryview, create: bool) -> Found:
        with _errors(url):
            if len(data) > _SMALL:
                upload = self.begin(url, len(data), 0)
                upload.write(data)
                return upload.finish()
            text = base64.b64encode(data).decode()
            return self._appear(url, {"bytes": len(data), "data": text}, create)

    def begin(self, url: str, length: int, memory: int) -> "_Upload":
        with _errors(url):
            with self._lock:
                self._memory = self._memory or self._make_memory()
            return _Upload(self, url, self._memory, length)

    def remove(self, url: str) -> None:
        with _errors(url):
            path = self._path(url)
            self.records.remove([f"o:{path}"])
            self._free(path)

    # Beyond it:

    def remove_folder(self, url: str) -> None:
        """Nobody finds what was in it. The memory is given back by those who have it."""
        with _errors(url):
            self._remove_folder(self._path(url))

    def free_folder(self, url: str) -> None:
        """Gives back the memory that this process has of it."""
        folder = self._path(url)
        with self._lock:
            own = [path for path in self._own if path.startswith(folder + "/")]
        for path in own:
            self._free(path)

    def appear(self, url: str, length: int, where: Where) -> Found:
        """An object of this process, all of which is in its memory."""
        found = self._appear(url, {"bytes": length, "where": list(where)})
        with self._lock:
            self._own[self._path(url)] = where
        return found

    def _remove_folder(self, folder: str) -> None:
        keys = [f"d:{folder}"]
        for number, name in enumerate(self._names(folder), 1):
            path = f"{folder}/{name}"
            self._remove_folder(path)
            keys += [f"o:{path}", f"n:{path}", f"d:{folder}:{number}"]
        self.records.remove(keys)

    def _free(self, path: str) -> None:
        with self._lock:
            where = self._own.pop(path, None)
        if where is not None and self._memory is not None:
            self._memory.remove(where)

    def _path(self, url: str) -> str:
        if not url.startswith(self._base + "/"):
            raise StoreError("not_found", f"{url}: nothing is published there")
        return url[len(self._base) + 1 :]

    def _record(self, url: str) -> dict[str, Any]:
        text = self.records.get(f"o:{self._path(url)}")
        if not text:
            raise StoreError("not_found", f"{url}: no such object")
        record = json.loads(text)
        if "where" in record:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[url] = record
        return record

    def _found(self, record: dict[str, Any]) -> Found:
        return Found(record["bytes"], record["version"])

    def _read(self, record: dict[str, Any], at: int, out: memoryview) -> None:
        if "data" in record:
            data = base64.b64decode(record["data"])[at : at + len(out)]
            if len(data) != len(out):
                raise StoreError("changed", "it ends early")
            out[:] = data
        else:
            self._reader.read(Where(*record["where"]), at, out)

    def _names(self, folder: str) -> Sequence[str]:
        count = int(self.records.get(f"d:{folder}") or 0)
        names = (self.records.get(f"d:{folder}:{number}") for number in range(1, count + 1))
        return [name for name in names if name]

    def _appear(self, url: str, record: dict[str, Any], create: bool = False) -> Found:
        path = self._path(url)
        record = {**record, "version": secrets.token_hex(8)}
        self._name(path)
        if create:
            there = self.records.compare_set(f"o:{path}", "", json.dumps(record))
            if json.loads(there)["version"] != record["version"]:
                raise StoreError("exists", f"{url}: it already exists")
        else:
            self.records.set(f"o:{path}", json.dumps(record))
            self._free(path)
        return self._found(record)

    def _name(self, path: str) -> None:
        """Into the folder's list, once."""
        folder, _, name = path.rpartition("/")
        mark = secrets.token_hex(8)
        if not folder or self.records.compare_set(f"n:{path}", "", mark) != mark:
            return
        self.records.set(f"d:{folder}:{self.records.add(f'd:{folder}', 1)}", name)
        self._name(folder)


class _Upload:
    def __init__(self, store: MemoryStore, url: str, memory: HostMemory, length: int):
        self._store, self._url, self._memory, self._length = store, url, memory, length
        self._file, self._where = memory.create(length)
        self._done = 0

    def write(self, data: memoryview) -> None:
        with _errors(self._url):
            while len(data):
                count = os.pwrite(self._file, data, self._done)
                self._done += count
                data = data[count:]

    def finish(self) -> Found:
        with _errors(self._url):
            where = self._where
            if self._store.by_nixl and self._length:
                where = self._memory.shared_by_nixl(self._file, self._length, where)
            os.close(self._file)
            return self._store.appear(self._url, self._length, where)

    def give_up(self) -> None:
        os.close(self._file)
        self._memory.remove(self._where)
