"""The tensors of a state dict as checkpoints see them, and what all ranks hold together."""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from ..errors import InputError
from .fragments import Fragment
from .groups import Group, Span, span_of_group
from .layouts import spec_texts
from .mesh_texts import alike, merged, mesh_of
from .private_pytorch import local_of, resolve_group, spec_of

ALONE = Span("", (0,))  # a process without a group

# The names of dtypes in recipes, and in PyTorch.
RECIPE_DTYPES = {
    "bool": "bool",
    "u8": "uint8",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
}


class Entry(NamedTuple):
    """One tensor of this rank: what all ranks have to know about it, and its memory."""

    name: str
    mesh: str | None  # None: a plain tensor, which every rank that has it holds whole
    layout: str
    dtype: str
    requires_grad: bool
    local: torch.Tensor

    @property
    def described(self) -> tuple:
        return self[:5]


def span_or_alone(group: Group) -> Span:
    """The ranks that take part: those of the group, or this process alone where there is none."""
    return ALONE if group is None and not dist.is_initialized() else span_of_group(group)


def rank_in(span: Span) -> int:
    """The number of this process among these ranks, which a joined group has also where there is no default group."""
    return 0 if span == ALONE else resolve_group(span.name).rank()


def is_stateful(value: Any) -> bool:
    # Checking a protocol takes as long as everything else that is done for a tensor.
    return not isinstance(value, torch.Tensor) and isinstance(value, Stateful)


def states_of(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with the state of each model, optimizer or other `Stateful` object in its place.

    Raises:
        InputError: it is not a dict.
    """
    if isinstance(state_dict, (str, os.PathLike)):
        raise InputError(f"the state dict is a path, {os.fspath(state_dict)!r}: the path comes first, as in reshard.save(path, state_dict)")
    if not isinstance(state_dict, Mapping):
        name = type(state_dict).__name__
        raise InputError(f'the state dict is a {name}, not a dict: pass {{"model": model, ...}}, or what state_dict() returns')
    return {key: value.state_dict() if is_stateful(value) else value for key, value in state_dict.items()}


def entries_of(flat: dict[str, Any], span: Span) -> dict[str, Entry]:
    """The tensors among the values.

    Raises:
        ValueError: a kind of tensor that has no layout.
        NotImplementedError: a placement that no layout can express.
    """
    entries = {}
    for name, value in flat.items():
        if isinstance(value, Fragment):
            mesh, layout = value.texts(span)
            entries[name] = Entry(name, mesh, layout, str(value.dtype), value.requires_grad, value.local.detach())
            continue
        if not isinstance(value, torch.Tensor):
            continue
        dtype = str(value.dtype)
        if isinstance(value, DTensor):
            mesh, layout = spec_texts(spec_of(value), span, name)
            entries[name] = Entry(name, mesh, layout, dtype, value.requires_grad, local_of(value).detach())
            continue
        if hasattr(value, "local_shards"):
            raise ValueError(
                f"{name} is a ShardedTensor: use reshard.dcp.StorageReader or StorageWriter with torch.distributed.checkpoint"
            )
        layout = "[" + ", ".join(map(str, value.shape)) + "]"
        entries[name] = Entry(name, None, layout, dtype, value.requires_grad, value.detach())
    return entries


def gathered(value: Any, span: Span) -> list[Any]:
    """Each rank's value, passed as JSON by this library's own exchange, which has deadlines and names the culprit.

    If all ranks say the same, as in most jobs, only its hash travels; else one of the ranks that say the same sends it.
    Ranks that say the same share the object that is returned for them (see `alike`); do not change it.
    """
    text = json.dumps(value).encode()
    if span == ALONE:
        return [json.loads(text)]
    head = len(text).to_bytes(8, "little") + hashlib.sha256(text).digest()
    heads = torch.ops.reshard.all_gather(torch.frombuffer(bytearray(head), dtype=torch.uint8), 0, span.name)
    said = [bytes(row) for row in heads.view(-1, len(head)).numpy()]
    senders: dict[bytes, int] = {}  # the first rank that says it
    for rank, one in enumerate(said):
        senders.setdefault(one, rank)
    if len(senders) == 1:
        return [json.loads(text)] * len(said)
    longest = max(int.from_bytes(one[:8], "little") for one in senders)
    is_sender = senders[head] == rank_in(span)
    data = torch.frombuffer(bytearray(text.ljust(longest)), dtype=torch.uint8) if is_sender else torch.empty(0, dtype=torch.uint8)
    ids = list(senders.values())
    whole = len(ids) * longest
    source, target = mesh_of([("r", len(ids))], ids), mesh_of([("r", len(said))], list(range(len(said))))
    texts = torch.ops.reshard.redistribute(data, source, f"[<r>{whole}]", f"[{whole}]", span.name, target)
    values = {one: json.loads(row.numpy().tobytes()) for one, row in zip(senders, texts.view(len(ids), longest))}
    return [values[one] for one in said]


def gathered_or_raised(value: Any, error: Exception | None, span: Span) -> list[Any]:
    """`gathered`, unless a rank has an error: that rank raises it, and the others raise one that names the rank.

    Raises:
        RuntimeError: another rank has an error.
    """
    text = f"{type(error).__name__}: {error}" if error else None
    answers = gathered([text, None if error else value], span)
    if error is not None:
        raise error
    for ranks, (failed, _) in alike(answers):
        if failed is not None:
            raise RuntimeError(f"rank {ranks[0]}: {failed}")
    return [answer for _, answer in answers]


def agreed(described: list[list]) -> list[tuple]:
    """The tensors of all ranks, sorted by name: (name, mesh, layout, dtype, requires_grad).

    Args:
        described: for each rank, what it says of its entries.

    Raises:
        ValueError: ranks have different tensors under one name. Raised on every rank.
    """

    def differ(name: str, rank: int, has: tuple, other: int, its: tuple) -> str:
        return f"ranks have different tensors under the name {name!r}: rank {rank} has {has[:3]}, rank {other} has {its[:3]}"

    return [(name, *rest) for name, rest in sorted(merged(described, "holders", differ).items())]


def dtype_of(text: str) -> torch.dtype:
    return getattr(torch, text.removeprefix("torch."))
