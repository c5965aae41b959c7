"""Where versions are published: in the memory of hosts, under a name in a c10d store, or in a directory or bucket."""

import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch.distributed as dist

from ... import stores
from ...errors import InputError, PeerError
from ...stores.interface import StoreError
from ...stores.schemes import scheme_of, store_of
from ..shared_store import SharedStore, clone_of, default_timeout
from .host_memory import HostMemory
from .memory_store import MemoryStore

SOURCE = "source"  # the form of what is published under the trainer's own names

_FOLDER = re.compile(r"(\d{12})\.([a-z0-9]{1,32})\.([0-9a-f]{8})\Z")


class Version(NamedTuple):
    """One copy of the weights after one update: a checkpoint."""

    number: int
    form: str  # copies of one form have the same tensors under the same names
    token: str  # of this copy

    @classmethod
    def of_folder(cls, name: str) -> "Version | None":
        match = _FOLDER.match(name)
        return cls(int(match.group(1)), match.group(2), match.group(3)) if match else None

    @classmethod
    def new(cls, number: int, form: str) -> "Version":
        return cls(number, form, secrets.token_hex(4))

    @property
    def folder(self) -> str:
        return f"{self.number:012d}.{self.form}.{self.token}"


class Publications(Protocol):
    """The versions at one place. Calls that say nothing else are made by one rank of a job."""

    base: str  # the same text on all ranks

    def versions(self) -> list[Version]:
        """All that are complete: those that are read least come first among copies of one."""

    def prepare(self) -> None:
        """For the first version."""

    def announce(self, version: Version) -> None:
        """It is complete."""

    def reading(self, version: Version) -> contextlib.AbstractContextManager[None]:
        """So long it is not removed."""

    def failed(self, version: Version) -> None:
        """A copy that could not be read."""

    def is_read(self, version: Version) -> bool:
        """Whether somebody says so."""

    def hide(self, version: Version) -> None:
        """Nobody finds it from now on; those who read it go on."""

    def remove(self, version: Version) -> None:
        """A hidden one is gone."""

    def free(self, version: Version) -> None:
        """Gives back what this process has of it. On every rank."""

    def url(self, version: Version) -> str:
        return f"{self.base}/{version.folder}"


class InMemory(Publications):
    """Versions in shared memory of the hosts that publish them, and which there are in a c10d store."""

    def __init__(self, base: str, records: SharedStore, find_address: Callable[[], str]):
        self.base = base
        self.files = MemoryStore(base, records, lambda: HostMemory(find_address()))
        stores.register(scheme_of(base), self.files)

    def versions(self) -> list[Version]:
        found = [version for version in map(Version.of_folder, self._index()) if version]
        order = {version: (self._count("failed", version), self._count("read", version)) for version in found}
        return sorted(found, key=lambda version: (*order[version], secrets.randbits(16)))

    def prepare(self) -> None:
        pass

    def announce(self, version: Version) -> None:
        self._change(lambda names: [*names, version.folder])

    @contextlib.contextmanager
    def reading(self, version: Version) -> Iterator[None]:
        self.files.records.add(f"read:{version.folder}", 1)
        try:
            yield
        finally:
            with contextlib.suppress(PeerError):  # nobody waits for it longer than RESHARD_TIMEOUT_MS
                self.files.records.add(f"read:{version.folder}", -1)

    def failed(self, version: Version) -> None:
        self.files.records.add(f"failed:{version.folder}", 1)

    def is_read(self, version: Version) -> bool:
        return self._count("read", version) > 0

    def hide(self, version: Version) -> None:
        self._change(lambda names: [name for name in names if name != version.folder])

    def remove(self, version: Version) -> None:
        self.files.remove_folder(self.url(version))

    def free(self, version: Version) -> None:
        self.files.free_folder(self.url(version))

    def _index(self) -> list[str]:
        return json.loads(self.files.records.get("versions") or "[]")

    def _change(self, change: Callable[[list[str]], list[str]]) -> None:
        while True:
            before = self.files.records.get("versions")
            after = json.dumps(change(json.loads(before or "[]")))
            if self.files.records.compare_set("versions", before, after) == after:
                return

    def _count(self, what: str, version: Version) -> int:
        return int(self.files.records.get(f"{what}:{version.folder}") or 0)


class InFolder(Publications):
    """Versions as folders of a directory, or below a URL of a store."""

    def __init__(self, base: str):
        self.base = base.rstrip("/")
        if scheme_of(base) in ("http", "https"):
            raise InputError(f"{base}: what there is on a server cannot be listed; give a directory, a bucket, or a c10d store")

    def versions(self) -> list[Version]:
        found = [version for version in map(Version.of_folder, self._names(self.base)) if version]
        return [version for version in found if ".metadata" in self._names(self.url(version))]

    def prepare(self) -> None:
        if not scheme_of(self.base):
            os.makedirs(self.base, exist_ok=True)

    def announce(self, version: Version) -> None:
        pass  # its metadata does

    def reading(self, version: Version) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def failed(self, version: Version) -> None:
        pass

    def is_read(self, version: Version) -> bool:
        return False

    def hide(self, version: Version) -> None:
        pass  # what is removed at once

    def remove(self, version: Version) -> None:
        url = self.url(version)
        if not scheme_of(url):
            pathlib.Path(url, ".metadata").unlink(missing_ok=True)
            shutil.rmtree(url, ignore_errors=True)
            return
        for name in sorted(self._names(url), key=lambda name: name != ".metadata"):
            store_of(url).remove(f"{url}/{name}")

    def free(self, version: Version) -> None:
        pass

    def _names(self, folder: str) -> list[str]:
        if not scheme_of(folder):
            try:
                return os.listdir(folder)
            except FileNotFoundError:
                return []
        try:
            return [entry.name for entry in store_of(folder).list(folder)]
        except StoreError as error:
            if error.code == "not_found":
                return []
            raise OSError(str(error)) from error


_in_memory: dict[str, InMemory] = {}  # by base
os.register_at_fork(after_in_child=_in_memory.clear)  # threads that ask stores, and memory, stay with the parent


def place_of(place: "dist.Store | str | os.PathLike", name: str, address: str | None) -> Publications:
    """
    Args:
        name: of what is published, in a c10d store.
        address: of this host, for others; None: the one by which it reaches the store's server.

    Raises:
        PeerError: the store does not answer.
    """
    if not isinstance(place, dist.Store):
        return InFolder(os.fspath(place))
    if not re.fullmatch(r"[\w-]{1,64}", name):
        raise InputError(f"name: {name!r} is not up to 64 letters, digits, '-' and '_'")
    records = SharedStore(clone_of(place), f"reshard-published-{name}", default_timeout())
    token = records.compare_set("token", "", secrets.token_hex(8))
    base = f"published-{token}://{name}"
    made = _in_memory.get(base)
    if made is None:
        return _in_memory.setdefault(base, InMemory(base, records, lambda: address or _address_towards(place)))
    if made.files.records.is_lost:
        made.files.records = records
    else:
        records.close()
    return made


def _address_towards(store: dist.Store) -> str:
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    host = store.host if isinstance(store, dist.TCPStore) else socket.gethostname()
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        return probe.getsockname()[0]
    return "127.0.0.1"
