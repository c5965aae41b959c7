"""Orbax, with or without OCDBT, and groups of Zarr arrays of version 2 or 3: by tensorstore."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorstore as ts

from .interface import SourceTensor

__all__ = ["OrbaxSource"]

_CACHE_BYTES = 64 << 20
_MOST_OF_A_NOTE = 64 << 10

# By default tensorstore tries 32 times, for many minutes, before it reports that a server cannot be reached.
_RETRIES = {"max_retries": 6, "initial_delay": "200ms", "max_delay": "5s"}

# The keys whose values change when a checkpoint is replaced.
_STAMPED = ("manifest.ocdbt", "_METADATA", ".zgroup", "zarr.json")

# A place as tensorstore's JSON names it: {"driver": "s3", "bucket": "runs", "path": "step/", ...}.
_Place = dict[str, Any]


def _place(path: str) -> _Place:
    """A directory, or a prefix of a bucket. The environment sets the endpoint and the region of S3, and whether requests
    are signed, as for every other s3:// URL; tensorstore finds credentials that the environment lacks.

    Raises:
        ValueError: tensorstore has nothing for that scheme.
    """
    scheme, separator, rest = path.rstrip("/").partition("://")
    if not separator:
        return {"driver": "file", "path": path.rstrip("/") + "/"}
    bucket, _, prefix = rest.partition("/")
    place: _Place = {"driver": scheme, "bucket": bucket, "path": prefix + "/" if prefix else ""}
    if scheme == "gs":
        return place | {"driver": "gcs"}
    if scheme != "s3":
        raise ValueError(f"{path}: Orbax and Zarr are read from directories, s3:// and gs://; copy it to one of them")
    for member, names in {
        "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "aws_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    }.items():
        if said := next(filter(None, map(os.environ.get, names)), None):
            place[member] = said.rstrip("/")
    if os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true"):
        place["aws_credentials"] = {"type": "anonymous"}
    elif os.environ.get("AWS_ACCESS_KEY_ID"):  # else it complains about every place that it tries first
        place["aws_credentials"] = {"type": "environment"}
    return place


def _wait(future: Any, size: int = 0) -> Any:
    """The result of a tensorstore future, of `size` bytes. A server that accepts a connection and never answers is not an
    error to tensorstore.

    Raises:
        TimeoutError: nothing came within four times RESHARD_HTTPS_TIMEOUT_S plus a second per MiB.
    """
    limit = 4 * float(os.environ.get("RESHARD_HTTPS_TIMEOUT_S") or 30) + size / (1 << 20)
    try:
        return future.result(timeout=limit)
    except TimeoutError:
        future.cancel()
        raise TimeoutError(f"no answer within {limit:.0f} s: try again, or set RESHARD_HTTPS_TIMEOUT_S, of which it is four times") from None


def _value(kv: Any, key: str) -> bytes | None:
    """The value of a key; None where there is none."""
    found = _wait(kv.read(key))
    return bytes(found.value) if found.state == "value" else None


def _keys(kv: Any) -> list[str]:
    return sorted(bytes(key).decode() for key in _wait(kv.list()))


def _below(place: _Place, key: str) -> _Place:
    return place | {"path": place["path"] + key}


class OrbaxSource:
    """What one item of a checkpoint has, as orbax-checkpoint writes a PyTree: names are keys joined with ".", as in
    "params.decoder.layers.mlp.wi.kernel". Strings, and the JSON items beside it, become notes.

    A Zarr group: its arrays, by their paths.
    """

    def __init__(self, path: str):
        retries = {f"{driver}_request_retries": _RETRIES for driver in ("s3", "gcs")}
        self._context = ts.Context({"cache_pool": {"total_bytes_limit": _CACHE_BYTES}, **retries})
        self._notes: dict[str, str] = {}
        self._at, self._kv = self._find_item(path)
        stamped = self._read_stamped({})
        self._stamps = {key: found.stamp.generation for key, found in stamped.items()}
        self._has_ocdbt = stamped["manifest.ocdbt"].state == "value"
        self._inside = self._store({"driver": "ocdbt", "base": self._at}) if self._has_ocdbt else self._kv
        self._metadata: dict[str, Any] = json.loads(bytes(stamped["_METADATA"].value) or "{}")
        opened = {name: self._open_array(key, driver) for name, key, driver in self._find_arrays()}  # all are asked for at once
        self._arrays = {name: _wait(future) for name, future in opened.items()}

    def _store(self, place: _Place) -> Any:
        return _wait(ts.KvStore.open(place, context=self._context))

    def _read_stamped(self, known: Mapping[str, bytes]) -> dict[str, Any]:
        """Reads the keys of _STAMPED, without the values of those that have not changed since `known`."""
        reads = {key: self._kv.read(key, **{"if_not_equal": known[key]} if key in known else {}) for key in _STAMPED}
        return {key: _wait(read) for key, read in reads.items()}

    def _find_item(self, path: str) -> tuple[_Place, Any]:
        """Where the item that has arrays lies, and its contents.

        Raises:
            ValueError: there are several, or none.
        """
        place = _place(path)
        kv = self._store(place)
        if _value(kv, "_CHECKPOINT_METADATA") is None or self._has_arrays(kv):
            return place, kv
        items = sorted({key.split("/")[0] for key in _keys(kv) if "/" in key})
        stores = {item: self._store(_below(place, item + "/")) for item in items}
        arrays = [item for item, store in stores.items() if self._has_arrays(store)]
        if len(arrays) != 1:
            names = ", ".join(arrays) or "none"
            raise ValueError(f"{path} has several items with arrays ({names}); name the one that is meant, such as {path}/{arrays[0]}"
                             if arrays else f"{path} has no item with arrays")  # fmt: skip
        for item, store in stores.items():
            note = None if item in arrays else _value(store, "metadata")
            if note is not None and len(note) <= _MOST_OF_A_NOTE:
                self._notes[item] = note.decode(errors="replace")
        return _below(place, arrays[0] + "/"), stores[arrays[0]]

    @staticmethod
    def _has_arrays(store: Any) -> bool:
        return any(_value(store, key) is not None for key in ("_METADATA", "manifest.ocdbt"))

    def _find_arrays(self) -> Iterable[tuple[str, str, str]]:
        """(name, where it lies, driver)"""
        driver = "zarr3" if self._metadata.get("use_zarr3") else "zarr"
        strings = json.loads(_value(self._kv, "_strings.json") or "{}")
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
        for key in _keys(self._inside):
            place, _, last = key.rpartition("/")
            if last in marks and (last == ".zarray" or self._is_array(key)):
                yield place or "array", place + "/" if place else "", marks[last]

    def _is_array(self, key: str) -> bool:
        return json.loads(_value(self._inside, key) or "{}").get("node_type") == "array"

    def _open_array(self, key: str, driver: str) -> Any:
        kvstore = {"driver": "ocdbt", "base": self._at, "path": key} if self._has_ocdbt else _below(self._at, key)
        return ts.open({"driver": driver, "kvstore": kvstore}, open=True, read=True, context=self._context)

    def tensors(self) -> Iterable[SourceTensor]:
        for name, array in self._arrays.items():
            chunk = array.chunk_layout.read_chunk.shape
            yield SourceTensor(name, array.dtype.name, tuple(array.shape), tuple(chunk) if chunk else None)

    def read(self, name: str, offset: Sequence[int], shape: Sequence[int], out: memoryview) -> None:
        array = self._arrays[name]
        place = np.frombuffer(out, dtype=array.dtype.numpy_dtype).reshape(shape)
        box = array[tuple(slice(o, o + s) for o, s in zip(offset, shape))] if shape else array
        _wait(ts.array(place).write(box), len(out))

    def notes(self) -> Mapping[str, str]:
        return self._notes

    def version(self) -> str:
        stamps = [found.stamp.generation for found in self._read_stamped(self._stamps).values()]
        return "-".join(stamp.hex() for stamp in stamps)[-200:]

    def close(self) -> None:
        self._arrays.clear()
