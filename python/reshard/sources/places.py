"""Where sources are: under schemes of their own."""

import importlib
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..stores.interface import StoreError
from ..stores.schemes import add_kind, store_of
from .as_store import SourceStore
from .interface import Source

__all__ = ["at_place"]

# By scheme, which is also the name of the package's extra: the module here, and its class.
_KINDS = {
    "gguf": ("gguf", "GgufSource"),
    "hdf5": ("hdf5", "Hdf5Source"),
    "numpy": ("numpy_files", "NumpySource"),
    "orbax": ("orbax", "OrbaxSource"),
}
_OWN = "source"
_held: dict[str, Source] = {}
_numbers = itertools.count(1)


def _open_held(number: str) -> Source:
    if number not in _held:
        raise StoreError("not_found", f"{_OWN}://{number}: this source has been closed")
    return _held[number]


def store_of_scheme(scheme: str) -> SourceStore | None:
    """The store of a kind of sources; None: there is no such kind.

    Raises:
        StoreError: "unsupported": what reads it is not installed.
    """
    if scheme == _OWN:
        return SourceStore(_open_held)
    if scheme not in _KINDS:
        return None
    module, name = _KINDS[scheme]
    try:
        opens: Callable[[str], Source] = getattr(importlib.import_module(f".{module}", __package__), name)
    except ImportError as error:
        raise StoreError("unsupported", f"checkpoints of this kind need a package: pip install 'reshard[{scheme}]' ({error})") from error
    return SourceStore(opens)


add_kind(store_of_scheme)


@contextmanager
def at_place(path: Any) -> Iterator[str]:
    """The text of a path, or the URL that a Source has within the `with` block."""
    if not isinstance(path, Source):
        yield os.fspath(path)
        return
    number = str(next(_numbers))
    url = f"{_OWN}://{number}"
    _held[number] = path
    try:
        yield url
    finally:
        store = store_of(url)
        assert isinstance(store, SourceStore)
        store.forget(url)
        del _held[number]
