"""Every other URL that Python has a filesystem for, by fsspec."""

import hashlib
from contextlib import AbstractContextManager, suppress
from typing import Any

import fsspec

from .interface import Codes, Entry, Found, StoreError, store_errors

__all__ = ["FsspecStore"]

# Where an object appears when all of it is there. Elsewhere it is written under another name and moved.
_APPEAR_WHOLE = {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "tos", "hf"}
# What filesystems call what changes with the content.
_VERSIONS = ("ETag", "etag", "e_tag", "version_id", "generation", "md5", "LastModified", "last_modified", "mtime", "modified", "created")


_CODES: Codes = [
    (FileNotFoundError, "not_found"),
    (PermissionError, "denied"),
    ((NotImplementedError, ImportError), "unsupported"),
]


def _words(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such object"
    known = isinstance(error, (PermissionError, NotImplementedError, ImportError))
    return str(error) if known else f"{type(error).__name__}: {error}"


def _errors(url: str) -> AbstractContextManager[None]:
    return store_errors(url, _CODES, _words)


def _found(info: dict[str, Any]) -> Found:
    version = next((f"{key} {info[key]}" for key in _VERSIONS if info.get(key)), "")
    return Found(int(info["size"] or 0), version if len(version) < 200 else hashlib.sha256(version.encode()).hexdigest())


class FsspecStore:
    """All URLs of one scheme."""

    def __init__(self, scheme: str):
        self._appears_whole = scheme in _APPEAR_WHOLE

    def find(self, url: str) -> Found:
        with _errors(url):
            system, path = self._at(url)
            info = system.info(path)
            if info["type"] != "file":
                raise FileNotFoundError(path)
            return _found(info)

    def find_and_read(self, url: str, first: memoryview) -> Found:
        found = self.find(url)
        if wanted := min(len(first), found.bytes):
            self.read(url, found, 0, first[:wanted])
        return found

    def read(self, url: str, found: Found, at: int, out: memoryview) -> None:
        with _errors(url):
            system, path = self._at(url)
            data = system.cat_file(path, start=at, end=at + len(out))
            if len(data) != len(out):
                raise StoreError("changed", f"{url} has changed: it ends before byte {at + len(out)}")
            out[:] = data

    def list(self, url: str) -> list[Entry]:
        with _errors(url):
            system, path = self._at(url)
            own = path.rstrip("/")
            entries = []
            for info in system.ls(path, detail=True):
                name = info["name"].rstrip("/")
                if name == own or name == own.lstrip("/"):
                    continue  # the folder itself, or a file that was listed as if it were one
                entries.append(Entry(name.rpartition("/")[2], _found(info) if info["type"] == "file" else None))
        if not entries:
            raise StoreError("not_found", f"{url}: no such object")
        return entries

    def put(self, url: str, data: memoryview, create: bool) -> Found:
        if create:
            raise StoreError("unsupported", f"{url}: fsspec cannot tell whether something was there")
        upload = self.begin(url, len(data), 0)
        upload.write(data)
        return upload.finish()

    def begin(self, url: str, length: int, memory: int) -> "_Upload":
        with _errors(url):
            system, path = self._at(url)
            aside = path if self._appears_whole else path + ".part"
            if not self._appears_whole:
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
            return _Upload(url, system, path, aside)

    def remove(self, url: str) -> None:
        with _errors(url):
            system, path = self._at(url)
            with suppress(FileNotFoundError):
                system.rm_file(path)

    def _at(self, url: str) -> tuple[Any, str]:
        # Instances are fsspec's to keep. What it remembers of lists would hide what others write.
        return fsspec.url_to_fs(url, use_listings_cache=False)


class _Upload:
    def __init__(self, url: str, system: Any, path: str, aside: str):
        self._url, self._system, self._path, self._aside = url, system, path, aside
        self._file = system.open(aside, "wb")

    def write(self, data: memoryview) -> None:
        with _errors(self._url):
            self._file.write(bytes(data))

    def finish(self) -> Found:
        with _errors(self._url):
            self._file.close()
            if self._aside != self._path:
                self._system.mv(self._aside, self._path)
            return _found(self._system.info(self._path))

    def give_up(self) -> None:
        # Where discard is missing, close() would make of it an object that is not whole.
        with _errors(self._url):
            if hasattr(self._file, "discard"):
                self._file.discard()
            if self._aside != self._path:
                self._file.close()
                self._system.rm_file(self._aside)
