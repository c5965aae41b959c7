"""Arguments as users write them: sizes, dtypes, topologies. The lowest layer of the package: every part may import it."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core


def byte_count(value: int | str | None) -> int | None:
    """Bytes, from a number or from text such as "256MiB". InputError: text that is not a number of bytes."""
    return _core.parse_bytes(value) if isinstance(value, str) else value


# A name, a file, or the contents of one.
Topology = str | os.PathLike[str] | Mapping[str, Any]


def topology_text(topology: Topology) -> tuple[str, str | None]:
    """The name of a topology and, unless it is a preset, its JSON.

    Raises:
        OSError: a file that cannot be read.
    """
    name = str(topology)
    if isinstance(topology, Mapping):
        return "topology", json.dumps(topology)
    if "/" in name or "." in name:
        with open(topology, encoding="utf-8") as file:
            return name, file.read()
    return name, None


# Text such as "{dp:4,tp:8}", or sizes by axis, major first.
Mesh = str | Mapping[str, int]


def mesh_text(mesh: Mesh | None) -> str | None:
    """The text of {"dp": 4, "tp": 8}, such as the `shape` of a mesh of JAX; text, and None, as they are."""
    if not isinstance(mesh, Mapping):
        return mesh
    return "{" + ",".join(f"{axis}:{int(size)}" for axis, size in mesh.items()) + "}"


def dtype_name(dtype: object) -> str:
    """The name of "bf16", torch.bfloat16, numpy.dtype("float32") or numpy.float32."""
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)


def sizes(shape: Sequence[int] | None) -> list[int] | None:
    """A shape of any kind, such as a torch.Size, as numbers."""
    return None if shape is None else [int(size) for size in shape]
