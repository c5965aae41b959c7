"""Files of NumPy: .npy and .npz."""

import io
import threading
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .files import RangeFile, state_of
from .interface import SourceTensor

__all__ = ["NumpySource"]


class _Array(NamedTuple):
    dtype: Any
    shape: tuple[int, ...]
    at: int | None  # of the first element in the file; None: it is compressed, in Fortran order, or big-endian
    member: str


def _header(file: Any) -> tuple[tuple[int, ...], bool, Any]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return tuple(shape), fortran, dtype


class NumpySource:
    """The array of a .npy file, which is called "array", or those of a .npz file. Arrays of objects are pickles: they are
    listed, but not read. A compressed array is in memory as a whole while it is read."""

    def __init__(self, path: str):
        self._path = path
        self._file = RangeFile(path)
        self._lock = threading.Lock()
        self._whole: tuple[str, Any] | None = None  # the last array that was read as a whole
        self._arrays: dict[str, _Array] = {}
        with open(path, "rb") as file:
            if file.read(2) == b"PK":
                self._look_into(zipfile.ZipFile(path))
            else:
                file.seek(0)
                shape, fortran, dtype = _header(file)
                plain = not fortran and dtype.byteorder != ">"
                self._arrays["array"] = _Array(dtype, shape, file.tell() if plain else None, "")

    def _look_into(self, archive: zipfile.ZipFile) -> None:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            with archive.open(info) as member:
                shape, fortran, dtype = _header(member)
                header = member.tell()
            at = None
            if info.compress_type == zipfile.ZIP_STORED and not fortran and dtype.byteorder != ">":
                local = memoryview(bytearray(30))
                self._file.read(info.header_offset, local)
                at = info.header_offset + 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little") + header
            self._arrays[info.filename[: -len(".npy")]] = _Array(dtype, shape, at, info.filename)

    def tensors(self) -> Iterable[SourceTensor]:
        for name, array in self._arrays.items():
            yield SourceTensor(name, array.dtype.name, array.shape, array.shape if array.at is None else None)

    def read(self, name: str, offset: Sequence[int], shape: Sequence[int], out: memoryview) -> None:
        array = self._arrays[name]
        if array.at is not None:
            first = 0
            for o, s in zip(offset, array.shape):
                first = first * s + o
            self._file.read(array.at + first * array.dtype.itemsize, out)
            return
        with self._lock:
            if self._whole is None or self._whole[0] != name:
                self._whole = None  # before the next one is read
                self._whole = name, self._read_whole(array)
            part = self._whole[1][tuple(slice(o, o + s) for o, s in zip(offset, shape))]
            np.frombuffer(out, dtype=array.dtype.newbyteorder("<")).reshape(shape)[...] = part

    def _read_whole(self, array: _Array) -> Any:
        if not array.member:
            return np.load(self._path, mmap_mode="r", allow_pickle=False)
        with zipfile.ZipFile(self._path) as archive, archive.open(array.member) as member:
            return np.lib.format.read_array(io.BufferedReader(member), allow_pickle=False)

    def notes(self) -> Mapping[str, str]:
        return {}

    def version(self) -> str:
        return state_of(self._path)

    def close(self) -> None:
        self._file.close()
