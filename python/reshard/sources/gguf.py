"""GGUF, the files of llama.cpp."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader

from .files import RangeFile, state_of
from .interface import SourceTensor

__all__ = ["GgufSource"]

_PLAIN = {
    GGMLQuantizationType.F64: "f64", GGMLQuantizationType.F32: "f32", GGMLQuantizationType.F16: "f16",
    GGMLQuantizationType.BF16: "bf16", GGMLQuantizationType.I64: "i64", GGMLQuantizationType.I32: "i32",
    GGMLQuantizationType.I16: "i16", GGMLQuantizationType.I8: "i8",
}  # fmt: skip


def _parts(path: str) -> list[str]:
    """All files of the model that the file at the path belongs to."""
    match = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path)
    if match is None:
        return [path]
    count = int(match[2])
    paths = [f"{match[1]}-{number:05}-of-{match[2]}.gguf" for number in range(1, count + 1)]
    if lacking := [os.path.basename(part) for part in paths if not os.path.exists(part)]:
        raise ValueError(f"{path} is one of {count} parts; missing: {', '.join(lacking[:5])}")
    return paths


class GgufSource:
    """The tensors of a file, or of all parts of a model, with the shapes that PyTorch has for them. Quantized tensors
    are listed, with the name of their type as the dtype, but not read."""

    def __init__(self, path: str):
        self._paths = _parts(path)
        self._files = [RangeFile(part) for part in self._paths]
        self._tensors: dict[str, tuple[SourceTensor, RangeFile, int, int]] = {}
        self._notes: dict[str, str] = {}
        for part, file in zip(self._paths, self._files):
            reader = GGUFReader(part)
            for tensor in reader.tensors:
                kind = GGMLQuantizationType(tensor.tensor_type)
                shape = tuple(int(size) for size in reversed(tensor.shape))
                one = SourceTensor(tensor.name, _PLAIN.get(kind, kind.name), shape)
                if self._tensors.setdefault(tensor.name, (one, file, int(tensor.data_offset), int(tensor.n_bytes)))[0] is not one:
                    raise ValueError(f"{part}: tensor {tensor.name} appears twice")
            for name, field in reader.fields.items():
                value: Any = field.contents() if name.startswith("general.") else None
                if isinstance(value, (str, int, float)):
                    self._notes.setdefault(name, str(value))

    def tensors(self) -> Iterable[SourceTensor]:
        for tensor, *_ in self._tensors.values():
            yield tensor

    def read(self, name: str, offset: Sequence[int], shape: Sequence[int], out: memoryview) -> None:
        tensor, file, at, size = self._tensors[name]
        elements = int(np.prod(tensor.shape, dtype=np.int64))
        first = int(np.ravel_multi_index(tuple(offset), tensor.shape)) if tensor.shape else 0
        file.read(at + first * (size // elements), out)

    def notes(self) -> Mapping[str, str]:
        return self._notes

    def version(self) -> str:
        return state_of(*self._paths)

    def close(self) -> None:
        for file in self._files:
            file.close()
