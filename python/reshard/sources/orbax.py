"""Orbax, with or without OCDBT, and groups of Zarr arrays of version 2 or 3: by tensorstore."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorstore as ts

from .interface import SourceTensor

__all__ = ["OrbaxSource"]

_CACHE_BYTES = 64 << 20
_MOST_OF_A_NOTE = 64 << 10


class OrbaxSource:
    """What one item of a checkpoint has, as orbax-checkpoint writes a PyTree: names are keys joined with ".", as in
    "params.decoder.layers.mlp.wi.kernel". Strings, and the JSON items beside it, become notes.

    A Zarr group: its arrays, by their paths.
    """

    def __init__(self, path: str):
        self._context = ts.Context({"cache_pool": {"total_bytes_limit": _CACHE_BYTES}})
        self._notes: dict[str, str] = {}
        self._at, self._kv = self._find_item(path)
        text = self._text("_METADATA")
        self._metadata: dict[str, Any] = json.loads(text) if text else {}
        self._arrays = {name: self._open_array(key, driver) for name, key, driver in self._find_arrays()}

    @staticmethod
    def _url(path: str) -> str:
        return path.rstrip("/") + "/" if "://" in path else "file://" + path.rstrip("/") + "/"

    def _store(self, url: str) -> Any:
        return ts.KvStore.open(url, context=self._context).result()

    def _text(self, key: str) -> str:
        found = self._kv.read(key).result()
        return bytes(found.value).decode() if found.state == "value" else ""

    def _find_item(self, path: str) -> tuple[str, Any]:
        """The URL and the contents of the item that has arrays.

        Raises:
            ValueError: there are several, or none.
        """
        url = self._url(path)
        kv = self._store(url)
        if kv.read("_CHECKPOINT_METADATA").result().state != "value" or self._has_arrays(kv):
            return url, kv
        items = sorted({bytes(key).decode().split("/")[0] for key in kv.list().result() if b"/" in bytes(key)})
        stores = {item: self._store(url + item + "/") for item in items}
        arrays = [item for item, store in stores.items() if self._has_arrays(store)]
        if len(arrays) != 1:
            names = ", ".join(arrays) or "none"
            raise ValueError(f"{path} has several items with arrays ({names}); name the one that is meant, such as {path}/{arrays[0]}"
                             if arrays else f"{path} has no item with arrays")  # fmt: skip
        for item, store in stores.items():
            found = store.read("metadata").result()
            if item not in arrays and found.state == "value" and len(found.value) <= _MOST_OF_A_NOTE:
                self._notes[item] = bytes(found.value).decode(errors="replace")
        return url + arrays[0] + "/", stores[arrays[0]]

    @staticmethod
    def _has_arrays(store: Any) -> bool:
        return any(store.read(key).result().state == "value" for key in ("_METADATA", "manifest.ocdbt"))

    def _find_arrays(self) -> Iterable[tuple[str, str, str]]:
        """(name, where it lies, driver)"""
        driver = "zarr3" if self._metadata.get("use_zarr3") else "zarr"
        strings = json.loads(self._text("_strings.json") or "{}")
        for entry in self._metadata.get("tree_metadata", {}).values():
            name = ".".join(str(one["key"]) for one in entry["key_metadata"])
            kind = entry["value_metadata"]["value_type"]
            if kind == "string":
                self._notes[name] = str(strings.get(name, ""))
            elif kind in ("None", "Dict", "List", "Tuple", "NamedTuple"):  # empty
                continue
            else:
                yield name, name + "/", driver
        if self._metadata:
            return
        marks = {".zarray": "zarr", "zarr.json": "zarr3"}
        for key in sorted(bytes(key).decode() for key in self._arrays_store().list().result()):
            place, _, last = key.rpartition("/")
            if last in marks and (last == ".zarray" or self._is_array(key)):
                yield place or "array", place + "/" if place else "", marks[last]

    def _is_array(self, key: str) -> bool:
        text = bytes(self._arrays_store().read(key).result().value).decode()
        return json.loads(text).get("node_type") == "array"

    def _has_ocdbt(self) -> bool:
        return self._kv.read("manifest.ocdbt").result().state == "value"

    def _arrays_store(self) -> Any:
        return self._store(self._at + "|ocdbt:") if self._has_ocdbt() else self._kv

    def _open_array(self, key: str, driver: str) -> Any:
        kvstore: Any = self._at + key
        if self._has_ocdbt():
            kvstore = {"driver": "ocdbt", "base": self._at, "path": key}
        return ts.open({"driver": driver, "kvstore": kvstore}, open=True, read=True, context=self._context).result()

    def tensors(self) -> Iterable[SourceTensor]:
        for name, array in self._arrays.items():
            chunk = array.chunk_layout.read_chunk.shape
            yield SourceTensor(name, array.dtype.name, tuple(array.shape), tuple(chunk) if chunk else None)

    def read(self, name: str, offset: Sequence[int], shape: Sequence[int], out: memoryview) -> None:
        array = self._arrays[name]
        place = np.frombuffer(out, dtype=array.dtype.numpy_dtype).reshape(shape)
        box = array[tuple(slice(o, o + s) for o, s in zip(offset, shape))] if shape else array
        ts.array(place).write(box).result()

    def notes(self) -> Mapping[str, str]:
        return self._notes

    def version(self) -> str:
        stamps = [self._kv.read(key).result().stamp.generation for key in ("manifest.ocdbt", "_METADATA", ".zgroup", "zarr.json")]
        return "-".join(stamp.hex() for stamp in stamps)[-200:]

    def close(self) -> None:
        self._arrays.clear()
