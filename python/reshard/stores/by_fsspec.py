"""Every other URL that Python has a filesystem for, by fsspec."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import fsspec
from fsspec.utils import infer_storage_options

from .interface import Codes, Entry, Found, StoreError, store_errors

__all__ = ["FsspecStore"]

# Where an object appears only once it is complete. Elsewhere it is written under another name and moved.
_APPEAR_WHOLE = {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "tos", "hf"}
# Where one connection serves one call at a time, and a server accepts few of them: all threads share one.
_ONE_CALL_AT_A_TIME = {"sftp", "ssh"}
_MOST_SILENT = 60  # seconds for which such a server may send nothing
_JOB = ".reshard-"  # begins the names of the folders of running jobs, which are removed with the last object in them
# Links of a chained URL that keep copies of what the next link has, under the same paths.
_CACHES = {"simplecache", "filecache", "blockcache"}
# The names that filesystems give to what changes with the content.
_VERSIONS = ("ETag", "etag", "e_tag", "version_id", "generation", "md5", "CRC", "LastModified", "last_modified", "mtime", "modified", "created")


_CODES: Codes = [
    (FileNotFoundError, "not_found"),
    (PermissionError, "denied"),
    ((NotImplementedError, ImportError), "unsupported"),
]


def _words(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such object"
    if isinstance(error, TimeoutError):
        return f"the server did not answer in time {error}".rstrip()
    known = isinstance(error, (PermissionError, NotImplementedError, ImportError))
    return str(error) if known else f"{type(error).__name__}: {error}"


def _errors(url: str) -> AbstractContextManager[None]:
    return store_errors(url, _CODES, _words)


def _found(info: dict[str, Any]) -> Found:
    size = int(info["size"] or 0)
    # With the size: SFTP servers give times in whole seconds, and an object may be replaced within one.
    version = next((f"{key} {info[key]} {size}" for key in _VERSIONS if info.get(key)), "")
    return Found(size, version if len(version) < 200 else hashlib.sha256(version.encode()).hexdigest())


def _as_chained(url: str) -> str:
    """The URL as fsspec reads it: "zip://step-1::s3://b/runs.zip" of "zip::s3://b/runs.zip!/step-1".

    Raises:
        StoreError: "unsupported" where an archive has no path in it.
    """
    schemes, _, rest = url.partition("://")
    *outer, last = schemes.split("::")
    archives = [scheme for scheme in outer if scheme not in _CACHES]
    path, *within = rest.split("!", len(archives))  # names in the outermost may have "!", too
    if len(within) < len(archives) or any(one[:1] not in ("", "/") for one in within):
        raise StoreError("unsupported", f"{url}: write {archives[-1]}://PATH::..., or {archives[-1]}://::... for its root")
    links = [f"{last}://{path}"]
    for scheme in reversed(outer):
        links.insert(0, scheme if scheme in _CACHES else f"{scheme}:/{within.pop(0) or '/'}")
    return "::".join(links)


class FsspecStore:
    """All URLs of one scheme. Chains are read only: what they write appears late, or as a whole archive."""

    def __init__(self, scheme: str):
        self._chain = scheme.split("::") if "::" in scheme else None
        self._appears_whole = scheme in _APPEAR_WHOLE
        self._connections = _Connections() if scheme in _ONE_CALL_AT_A_TIME else None

    def find(self, url: str) -> Found:
        with self._at(url) as (system, path):
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
        with self._at(url) as (system, path):
            data = system.cat_file(path, start=at, end=at + len(out))
            if len(data) != len(out):
                raise StoreError("changed", f"{url} has changed: it ends before byte {at + len(out)}")
            out[:] = data

    def list(self, url: str) -> list[Entry]:
        with self._at(url) as (system, path):
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
        if self._chain:
            raise StoreError("unsupported", f"{url}: results are written to {self._chain[-1]}:// itself, not through a chain")
        with self._at(url) as (system, path):
            if self._appears_whole:
                return _Upload(self, url, system.open(path, "wb"), path)
            folder, aside = path.rpartition("/")[0], path + ".part"
            system.makedirs(folder, exist_ok=True)
            try:
                return _Upload(self, url, system.open(aside, "wb"), aside)
            except FileNotFoundError:  # another process has just removed the folder: it was empty
                system.makedirs(folder, exist_ok=True)
                return _Upload(self, url, system.open(aside, "wb"), aside)

    def remove(self, url: str) -> None:
        with self._at(url) as (system, path):
            with suppress(FileNotFoundError):
                system.rm_file(path)
            folder = path.rpartition("/")[0]
            if not self._appears_whole and folder.rpartition("/")[2].startswith(_JOB):
                with suppress(Exception):  # something else is in it
                    system.rmdir(folder)

    @contextmanager
    def _at(self, url: str) -> Iterator[tuple[Any, str]]:
        """(filesystem, path) for one call, whose errors are those of a store."""
        with _errors(url):
            # fsspec keeps the instances. Its cache of listings would hide what others write.
            uncached = {"use_listings_cache": False}
            if self._chain:
                yield fsspec.url_to_fs(_as_chained(url), **{self._chain[-1]: uncached})
            elif self._connections is None:
                yield fsspec.url_to_fs(url, **uncached)
            else:
                with self._connections.of(url) as system_and_path:
                    yield system_and_path


class _Connections:
    """Filesystems over connections that serve one call at a time, by the part of a URL that names the server."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._systems: dict[str, Any] = {}

    @contextmanager
    def of(self, url: str) -> Iterator[tuple[Any, str]]:
        parts = infer_storage_options(url)
        scheme, path = parts.pop("protocol"), parts.pop("path")
        key = repr(sorted(parts.items()))
        with self._lock:
            if key not in self._systems:
                self._systems[key] = fsspec.filesystem(scheme, **parts, timeout=_MOST_SILENT, skip_instance_cache=True)
                self._systems[key].ftp.get_channel().settimeout(_MOST_SILENT)
            try:
                yield self._systems[key], path
            except (FileNotFoundError, PermissionError, StoreError):
                raise
            except Exception:
                self._systems.pop(key, None)  # what is wrong may be the connection
                raise


class _Upload:
    def __init__(self, store: FsspecStore, url: str, file: Any, aside: str):
        self._store, self._url, self._file, self._aside = store, url, file, aside

    def write(self, data: memoryview) -> None:
        with self._store._at(self._url):
            self._file.write(bytes(data))

    def finish(self) -> Found:
        with self._store._at(self._url) as (system, path):
            self._file.close()
            if self._aside != path:
                system.mv(self._aside, path)
            return _found(system.info(path))

    def give_up(self) -> None:
        # Where discard is missing, close() would leave an incomplete object.
        with self._store._at(self._url) as (system, path):
            if hasattr(self._file, "discard"):
                self._file.discard()
            if self._aside != path:
                self._file.close()
                system.rm_file(self._aside)
