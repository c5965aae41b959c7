"""Which store a URL belongs to."""

import importlib.util
import threading
from collections.abc import Callable

from .interface import Store, StoreError

__all__ = ["add_kind", "register", "store_of"]

# What obstore has. Everything else is fsspec's.
_OBSTORE = {"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss"}
# What the library reads by itself.
_OWN = {"https", "http", "hf"}

_lock = threading.Lock()
_registered: dict[str, Store] = {}
_opened: dict[str, Store] = {}
_kinds: list[Callable[[str], Store | None]] = []


def scheme_of(url: str) -> str:
    """ "s3" of "s3://bucket/key", "simplecache::s3" of "simplecache::s3://bucket/key", "" of a path."""
    scheme, mark, _ = url.partition("://")
    names = scheme.replace("+", "").replace("-", "").replace(".", "").split("::")
    return scheme.lower() if mark and all(name.isalnum() for name in names) else ""


def register(scheme: str, store: Store | None) -> None:
    """From now on URLs that begin with "SCHEME://" belong to this store, in place of any other; None undoes that."""
    if scheme.lower() in _OWN:
        raise ValueError(f"{scheme}:// is read by the library itself")
    with _lock:
        if store is None:
            _registered.pop(scheme.lower(), None)
        else:
            _registered[scheme.lower()] = store


def add_kind(find: Callable[[str], Store | None]) -> None:
    """Also asks find(scheme), once per scheme that has no registered store; it returns a store, or None."""
    _kinds.append(find)


def store_of(url: str) -> Store:
    """The store of a URL, the same one for all of its scheme.

    Raises:
        StoreError: "unsupported" where there is none, with what to install.
    """
    scheme = scheme_of(url)
    with _lock:
        store = _registered.get(scheme) or _opened.get(scheme)
        if store is None:
            store = _opened[scheme] = _open(scheme)
        return store


def _open(scheme: str) -> Store:
    for kind in _kinds:
        if (store := kind(scheme)) is not None:
            return store

    def has(package: str) -> bool:
        return importlib.util.find_spec(package) is not None

    if scheme in _OBSTORE and has("obstore"):
        from .by_obstore import ObstoreStore

        return ObstoreStore()
    if has("fsspec"):
        from fsspec.registry import known_implementations, registry

        from .by_fsspec import FsspecStore

        if all(name in known_implementations or name in registry for name in scheme.split("::")):
            return FsspecStore(scheme)
    if scheme in _OBSTORE:
        raise StoreError("unsupported", f"URLs of {scheme}:// need a package: pip install 'reshard[stores]'")
    need = "fsspec does not know them" if has("fsspec") else "pip install fsspec, and what it asks for"
    raise StoreError("unsupported", f"URLs of {scheme}:// belong to no store: {need}")
