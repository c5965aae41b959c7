"""The tensors of a state dict as checkpoints see them, and what all ranks hold together."""

import json
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from .groups import Group, Span, span_of_group
from .layouts import spec_texts
from .mesh_texts import merged
from .private_pytorch import local_of, spec_of

ALONE = Span("", (0,))  # a process of no group


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
    return 0 if span == ALONE else span.ranks.index(dist.get_rank())


def states_of(state_dict: dict[str, Any]) -> dict[str, Any]:
    """The same with what models, optimizers and other `Stateful` objects say of themselves."""
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}


def entries_of(flat: dict[str, Any], span: Span) -> dict[str, Entry]:
    """The tensors among the values.

    Raises:
        ValueError: a kind of tensor that has no layout.
        NotImplementedError: a placement that no layout can express.
    """
    entries = {}
    for name, value in flat.items():
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
    """Each rank's value, passed as JSON by this library's own exchange, which has deadlines and names the culprit."""
    if span == ALONE:
        return [json.loads(json.dumps(value))]
    data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    lengths = torch.ops.reshard.all_gather(torch.tensor([data.numel()]), 0, span.name).tolist()
    padded = torch.nn.functional.pad(data, (0, max(lengths) - data.numel()))
    rows = torch.ops.reshard.all_gather(padded, 0, span.name).view(len(lengths), -1)
    return [json.loads(row[:length].numpy().tobytes()) for row, length in zip(rows, lengths)]


def gathered_or_raised(value: Any, error: Exception | None, span: Span) -> list[Any]:
    """`gathered`, unless a rank has an error: that rank raises it, and the others say which one has it.

    Raises:
        RuntimeError: another rank has an error.
    """
    text = f"{type(error).__name__}: {error}" if error else None
    answers = gathered([text, None if error else value], span)
    if error is not None:
        raise error
    for rank, (failed, _) in enumerate(answers):
        if failed is not None:
            raise RuntimeError(f"rank {rank}: {failed}")
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
