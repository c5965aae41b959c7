"""Files in this host's shared memory that any process which knows their names reads: by themselves on the same host, from
others over HTTP. They are there for as long as this process is, and nobody asks it for anything."""

import atexit
import errno
import functools
import http.client
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from typing import NamedTuple

from ...stores.interface import StoreError
from . import by_nixl

_SECONDS = 30  # that another host may take to say something


class Where(NamedTuple):
    """Where a file is."""

    host: str  # another text for every start of every machine
    path: str  # on that host
    address: str  # of what serves it
    port: int
    reach: tuple[str, int] | None = None  # where NIXL reads it (by_nixl.Reach)


@functools.cache
def _this_host() -> str:
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class HostMemory:
    """A folder in shared memory, and the process that serves it at an address of this host."""

    def __init__(self, address: str):
        """
        Raises:
            OSError: this host has no such address, or no shared memory.
        """
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._folder = tempfile.mkdtemp(prefix="reshard-", dir=shared)
        self._address = address
        script = os.path.join(os.path.dirname(__file__), "serve.py")
        command = [sys.executable, "-I", "-S", script, self._folder, address]
        # In a session of its own: what interrupts this process, which may go on, does not end it.
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._server.stdout is not None
        port = self._server.stdout.readline()
        if not port:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise OSError(f"weights cannot be served at {address}: give an address of this host")
        self._port = int(port)
        self._shared: dict[str, by_nixl.Sharing] = {}  # by path
        self._process = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        atexit.unregister(self.close)
        if os.getpid() != self._process:
            return  # a fork of the one whose memory this is
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def create(self, length: int) -> tuple[int, Where]:
        """A new file, open for writing, for which there is memory now.

        Raises:
            OSError: there is not.
        """
        free = os.statvfs(self._folder)
        if length > free.f_bavail * free.f_frsize:
            raise OSError(errno.ENOSPC, f"{length} bytes of shared memory are wanted, and {free.f_bavail * free.f_frsize} are free")
        path = os.path.join(self._folder, secrets.token_hex(16))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        return file, Where(_this_host(), path, self._address, self._port)

    def shared_by_nixl(self, file: int, length: int, where: Where) -> Where:
        """The same file, for readers that have NIXL.

        Raises:
            RuntimeError: NIXL cannot register it.
        """
        self._shared[where.path] = sharing = by_nixl.Sharing(file, length)
        return where._replace(reach=sharing.reach)

    def remove(self, where: Where) -> None:
        """Who reads it reads on, but for hosts that ask for another range."""
        if where.path in self._shared:
            self._shared.pop(where.path).close()
        if os.path.dirname(where.path) == self._folder:
            pathlib.Path(where.path).unlink(missing_ok=True)


class Reader:
    """Reads files wherever they are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, int], list[http.client.HTTPConnection]] = {}

    def read(self, where: Where, at: int, out: memoryview) -> None:
        """Fills `out` from byte `at` of the file on.

        Raises:
            StoreError: "changed": it is not there any more; "unavailable": its host does not answer.
        """
        if where.host == _this_host() and self._read_here(where, at, out):
            return
        if not len(out):
            return
        if where.reach is not None and by_nixl.is_there():
            by_nixl.read(by_nixl.Reach(*where.reach), at, out)
        else:
            self._read_there(where, at, out)

    def _read_here(self, where: Where, at: int, out: memoryview) -> bool:
        try:
            file = os.open(where.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False  # another container of this host, or gone
        try:
            done = 0
            while done < len(out):
                got = os.preadv(file, [out[done:]], at + done)
                if not got:
                    raise StoreError("changed", f"{where.path} ends before byte {at + len(out)}")
                done += got
        finally:
            os.close(file)
        return True

    def _read_there(self, where: Where, at: int, out: memoryview) -> None:
        server = (where.address, where.port)
        while True:
            with self._lock:
                idle = self._idle.setdefault(server, [])
                kept = idle.pop() if idle else None
            connection = kept or http.client.HTTPConnection(*server, timeout=_SECONDS)
            try:
                self._ask(connection, where, at, out)
            except StoreError:
                connection.close()
                raise
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if kept is not None:
                    continue  # it may have been closed there since
                words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                raise StoreError("unavailable", f"{where.address}:{where.port} does not send {where.path}: {words}") from error
            with self._lock:
                idle.append(connection)
            return

    def _ask(self, connection: http.client.HTTPConnection, where: Where, at: int, out: memoryview) -> None:
        range_ = f"bytes={at}-{at + len(out) - 1}"
        connection.request("GET", f"/{os.path.basename(where.path)}", headers={"Range": range_})
        with connection.getresponse() as response:
            if response.status != 206:
                response.read()
                raise StoreError("changed", f"{where.path} no longer exists ({response.status})")
            done = 0
            while done < len(out):
                got = response.readinto(out[done:])
                if not got:
                    raise OSError("it ended early")
                done += got
