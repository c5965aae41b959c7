"""Memory of other hosts by NIXL, NVIDIA's library for one-sided transfers: over InfiniBand or RoCE where there is one, else
over what its UCX finds. Nobody on the other side takes part.

    pip install nixl-cu13          # or nixl-cu12, on both sides
"""

import base64
import contextlib
import ctypes
import functools
import importlib
import importlib.util
import mmap
import os
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...stores.interface import StoreError

_PACKAGES = ("nixl", "nixl_cu13", "nixl_cu12")
_BOUNCE_BYTES = 8 << 20  # registered once and reused: registering memory costs more than copying it
_SECONDS = 30  # that a transfer may take


class Reach(NamedTuple):
    """How another process reaches memory of this one."""

    agent: str  # its metadata, base64
    address: int


def is_there() -> bool:
    return any(importlib.util.find_spec(package) is not None for package in _PACKAGES)


@functools.cache
def _agent() -> "_Agent":
    return _Agent()


os.register_at_fork(after_in_child=_agent.cache_clear)


class _Agent:
    """Of this process. The library's calls are made by one thread at a time."""

    def __init__(self) -> None:
        package = next(package for package in _PACKAGES if importlib.util.find_spec(package) is not None)
        api: Any = importlib.import_module(f"{package}._api")
        self.lock = threading.Lock()
        self.nixl = api.nixl_agent(f"reshard-{secrets.token_hex(8)}", api.nixl_agent_config(backends=["UCX"]))
        self.known: dict[str, str] = {}  # names of agents by their metadata
        self._bounces: list[_Bounce] = []

    @contextlib.contextmanager
    def bounce(self) -> Iterator["_Bounce"]:
        with self.lock:
            bounce = self._bounces.pop() if self._bounces else _Bounce(self.nixl)
        try:
            yield bounce
        finally:
            with self.lock:
                self._bounces.append(bounce)


class _Bounce:
    """Registered memory into which others' is read."""

    def __init__(self, nixl: Any):
        self.memory = mmap.mmap(-1, _BOUNCE_BYTES)
        self.address = _address_of(self.memory)
        nixl.register_memory([(self.address, _BOUNCE_BYTES, 0, "")], "DRAM")


class Sharing:
    """A file of shared memory that others read, until it is closed."""

    def __init__(self, file: int, length: int):
        """
        Raises:
            RuntimeError: NIXL cannot register it.
        """
        self._memory = mmap.mmap(file, length)
        agent = _agent()
        regions = [(_address_of(self._memory), length, 0, "")]
        with agent.lock:
            self._registered = agent.nixl.register_memory(regions, "DRAM")
            metadata = agent.nixl.get_agent_metadata()
        self.reach = Reach(base64.b64encode(metadata).decode(), _address_of(self._memory))

    def close(self) -> None:
        agent = _agent()
        with agent.lock:
            agent.nixl.deregister_memory(self._registered)
        self._memory.close()


def read(reach: Reach, at: int, out: memoryview) -> None:
    """Fills `out` from byte `at` of what is shared on.

    Raises:
        StoreError: "unavailable".
    """
    agent = _agent()
    with agent.bounce() as bounce:
        for begin in range(0, len(out), _BOUNCE_BYTES):
            size = min(_BOUNCE_BYTES, len(out) - begin)
            try:
                _transfer(agent, bounce, reach, at + begin, size)
            except StoreError:
                raise
            except Exception as error:  # of a library that has its own
                raise StoreError("unavailable", f"NIXL cannot read it: {error}") from error
            out[begin : begin + size] = memoryview(bounce.memory)[:size]


def _transfer(agent: _Agent, bounce: _Bounce, reach: Reach, at: int, size: int) -> None:
    nixl = agent.nixl
    with agent.lock:
        if reach.agent not in agent.known:
            name = nixl.add_remote_agent(base64.b64decode(reach.agent))
            agent.known[reach.agent] = name.decode() if isinstance(name, bytes) else name
        here = nixl.get_xfer_descs([(bounce.address, size, 0)], "DRAM")
        there = nixl.get_xfer_descs([(reach.address + at, size, 0)], "DRAM")
        handle = nixl.initialize_xfer("READ", here, there, agent.known[reach.agent])
        state = nixl.transfer(handle)
    deadline = time.monotonic() + _SECONDS
    pause = 1e-5
    while state == "PROC":
        time.sleep(pause)
        pause = min(pause * 1.5, 1e-3)
        if time.monotonic() > deadline:
            raise StoreError("unavailable", f"NIXL has not read {size} bytes within {_SECONDS} s")
        with agent.lock:
            state = nixl.check_xfer_state(handle)
    with agent.lock:
        nixl.release_xfer_handle(handle)
    if state != "DONE":
        raise StoreError("unavailable", f"NIXL cannot read it: {state}")


def _address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
