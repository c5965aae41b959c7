"""HDF5, and the files of Keras that contain it."""

import contextlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from .files import state_of
from .interface import SourceTensor

__all__ = ["Hdf5Source"]


class Hdf5Source:
    """All data sets of a file, by their paths without the leading "/". Links to other files are not followed, and data
    sets stored in other files are refused. For a `.keras` file: those of its weights."""

    def __init__(self, path: str):
        self._path = path
        self._open = contextlib.ExitStack()
        file: Any = path
        if path.endswith(".keras"):
            archive = self._open.enter_context(zipfile.ZipFile(path))
            file = self._open.enter_context(archive.open("model.weights.h5"))
        self._file = self._open.enter_context(h5py.File(file, "r"))
        self._sets: dict[str, Any] = {}
        self._file.visititems(self._add)

    def _add(self, name: str, found: Any) -> None:
        if not isinstance(found, h5py.Dataset) or found.shape is None:
            return
        if found.external or found.is_virtual:
            raise ValueError(f"{self._path}: data set {name} lies in other files, which is not read")
        self._sets[name] = found

    def tensors(self) -> Iterable[SourceTensor]:
        for name, found in self._sets.items():
            yield SourceTensor(name, found.dtype.name, found.shape, found.chunks)

    def read(self, name: str, offset: Sequence[int], shape: Sequence[int], out: memoryview) -> None:
        found = self._sets[name]
        place = np.frombuffer(out, dtype=found.dtype.newbyteorder("<")).reshape(shape)
        if found.shape:
            found.read_direct(place, tuple(slice(o, o + s) for o, s in zip(offset, shape)))
        else:
            place[...] = found[()]

    def notes(self) -> Mapping[str, str]:
        return {}

    def version(self) -> str:
        return state_of(self._path)

    def close(self) -> None:
        self._open.close()
