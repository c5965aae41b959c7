"""S3 and what speaks it, Google Cloud Storage and Azure, by obstore. obstore decides how requests are signed,
retried and limited, and where credentials come from, with one exception: boto3 reads AWS's configuration files where it
is installed and the environment has no key.
"""

import importlib.util
import os
import re
import threading
import time
from contextlib import AbstractContextManager, suppress
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import from_url

from .interface import Codes, Entry, Found, StoreError, store_errors

__all__ = ["ObstoreStore"]

# Bytes of a request of an upload. S3 wants at least the first, and at most 10,000 requests; the smaller they are, the
# more are in flight.
_LEAST_PART, _PART, _PARTS, _MOST_PARTS = 5 << 20, 8 << 20, 64, 10_000

_LONGEST_PAUSE = 4  # seconds
_ONLY_OVERWRITES = "{}: the server cannot create an object only where there is none (If-None-Match)"

_CODES: Codes = [
    (FileNotFoundError, "not_found"),
    ((exceptions.PermissionDeniedError, exceptions.UnauthenticatedError), "denied"),
    (exceptions.AlreadyExistsError, "exists"),
    (exceptions.PreconditionError, "changed"),
    ((exceptions.NotSupportedError, NotImplementedError), "unsupported"),
]


def _errors(url: str) -> AbstractContextManager[None]:
    return store_errors(url, _CODES, _words)


def _words(error: Exception) -> str:
    """What happened, without the program's own structures that follow, and without the queries of URLs, which sign."""
    first = re.split(r"\n\nDebug source:|: <\?xml", str(error))[0]
    text = re.sub(r"\?[^\s\"')]+", "?...", " ".join(first.split()))[:700]
    asked_machine = "169.254.169.254" in text or "metadata.google.internal" in text
    return text + (" (no credentials in the environment, and none of this machine's own)" if asked_machine else "")


def _found(meta: Any) -> Found:
    version = meta.get("e_tag") or meta.get("version") or ""
    return Found(meta["size"], version or f"{meta['last_modified']:%Y-%m-%dT%H:%M:%S.%f}")


class ObstoreStore:
    """Every bucket of every scheme that obstore has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, Any] = {}
        self._overwriting: set[int] = set()  # ids of those whose servers cannot create an object only where there is none

    def find(self, url: str) -> Found:
        with _errors(url):
            return _found(obstore.head(*self._at(url)))

    def find_and_read(self, url: str, first: memoryview) -> Found:
        store, path = self._at(url)
        with _errors(url):
            try:
                return self._get(url, {"range": (0, len(first))}, first)
            except exceptions.GenericError:  # an object without bytes has no first one
                found = _found(obstore.head(store, path))
                if found.bytes:
                    raise
                return found

    def read(self, url: str, found: Found, at: int, out: memoryview) -> None:
        options: dict[str, Any] = {"range": (at, at + len(out))}
        if found.version.startswith(('"', "W/")) or re.fullmatch(r"[0-9a-fA-F-]{32,}", found.version):
            options["if_match"] = found.version
        with _errors(url):
            if self._get(url, options, out) != found:
                raise StoreError("changed", f"{url} has changed")

    def _get(self, url: str, options: dict[str, Any], out: memoryview) -> Found:
        """Fills `out` as far as the object reaches. obstore retries where there is no answer, or half of one; this
        does the same where an answer is shorter than it should be."""
        store, path = self._at(url)
        pause = 0.2
        while True:
            got = obstore.get(store, path, options=options)
            found, data = _found(got.meta), memoryview(got.bytes())
            wanted = min(len(out), found.bytes - options["range"][0])
            if len(data) == wanted:
                out[: len(data)] = data
                return found
            if pause > _LONGEST_PAUSE:
                raise StoreError("unavailable", f"{url}: {len(data)} of {wanted} bytes came")
            time.sleep(pause)
            pause *= 4

    def list(self, url: str) -> list[Entry]:
        store, path = self._at(url)
        with _errors(url):
            listed = obstore.list_with_delimiter(store, path or None)
            entries = [Entry(one["path"].rpartition("/")[2], _found(one)) for one in listed["objects"]]
            entries += [Entry(one.rstrip("/").rpartition("/")[2], None) for one in listed["common_prefixes"]]
        if not entries:
            raise StoreError("not_found", f"{url}: no such object")
        return entries

    def put(self, url: str, data: memoryview, create: bool) -> Found:
        store, path = self._at(url)
        if create and id(store) in self._overwriting:
            raise StoreError("unsupported", _ONLY_OVERWRITES.format(url))
        try:
            with _errors(url):
                put = obstore.put(store, path, data, use_multipart=False, mode="create" if create else "overwrite")
        except StoreError as error:
            # From some servers that speak S3, such as Swift; obstore takes it for a transient error.
            if not create or "501 Not Implemented" not in str(error):
                raise
            self._overwriting.add(id(store))
            raise StoreError("unsupported", _ONLY_OVERWRITES.format(url)) from error
        return Found(len(data), put.get("e_tag") or put.get("version") or "")

    def begin(self, url: str, length: int, memory: int) -> "_Upload":
        store, path = self._at(url)
        part = max(_LEAST_PART, min(_PART, length // _PARTS), -(-length // _MOST_PARTS))
        with _errors(url):
            at_once = max(1, memory // part - 1)  # and one that is being filled
            writer = obstore.open_writer(store, path, buffer_size=part, max_concurrency=at_once)
            return _Upload(url, writer, store, path, length)

    def remove(self, url: str) -> None:
        with _errors(url), suppress(FileNotFoundError):
            obstore.delete(*self._at(url))

    def _at(self, url: str) -> tuple[Any, str]:
        """The bucket of a URL, and the path in it."""
        scheme, _, rest = url.partition("://")
        host, _, path = rest.partition("/")
        root = f"{scheme}://{host}"
        with self._lock:
            if root not in self._buckets:
                with _errors(url):
                    self._buckets[root] = _open(root)
            return self._buckets[root], path


def _open(root: str) -> Any:
    terms: dict[str, Any] = {}
    if root.startswith(("s3://", "s3a://")):
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        endpoint = next((os.environ[name] for name in names if os.environ.get(name)), "")
        if endpoint:
            terms["endpoint"] = endpoint
        if endpoint.startswith("http://"):  # whoever writes http:// means it
            terms["client_options"] = {"allow_http": True}
        if "AWS_ACCESS_KEY_ID" not in os.environ and importlib.util.find_spec("boto3") is not None:
            import boto3
            from obstore.auth.boto3 import Boto3CredentialProvider

            session = boto3.Session()
            if session.get_credentials() is not None:
                terms["credential_provider"] = Boto3CredentialProvider(session)
                if session.region_name:
                    terms["region"] = session.region_name
    return from_url(root, **terms)


class _Upload:
    def __init__(self, url: str, writer: Any, store: Any, path: str, length: int):
        self._url, self._writer, self._store, self._path, self._length = url, writer, store, path, length

    def write(self, data: memoryview) -> None:
        with _errors(self._url):
            self._writer.write(bytes(data))  # a copy: the writer sends it later, from the memory that it was given

    def finish(self) -> Found:
        with _errors(self._url):
            self._writer.close()
            found = _found(obstore.head(self._store, self._path))
        if found.bytes != self._length:
            raise StoreError("unavailable", f"{self._url} has {found.bytes} bytes after {self._length} were sent")
        return found

    def give_up(self) -> None:
        self._writer = None  # its parts stay with the store until a lifecycle rule removes them: nothing shows or aborts them
