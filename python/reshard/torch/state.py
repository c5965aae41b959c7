"""Checkpoints of running jobs, in PyTorch's own format, with any layout, mesh and shard order."""

import io
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.tensor import DTensor

from ..errors import ExistingFileError, FileError, MissingFileError
from .groups import Group, Span, span_of_group
from .layouts import spec_texts


class _Entry(NamedTuple):
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


def load(
    path: str | os.PathLike,
    state_dict: dict[str, Any],
    *,
    read: str = "once",
    group: Group = None,
    check: bool = True,
    ignore_sidecar: bool = False,
    recipe: str | os.PathLike | Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Loads a checkpoint into the tensors of a state dict, whatever layout, mesh and format it was saved in.

        reshard.load("step-1000", {"model": model.state_dict(), "optimizer": optimizer.state_dict()})

    Reads what torch.distributed.checkpoint.save, reshard.save and `reshard checkpoint` write, and safetensors. DTensors
    may have any mesh, placements and shard order; a plain tensor is replicated over the ranks that pass it. Tensors on
    devices are loaded through host memory. Nothing in the checkpoint is executed: values that are not tensors are read
    with torch.load(weights_only=True).

    Collective: every rank of the group calls it. Ranks may pass different names, such as those of their pipeline
        stages.

    Args:
        path: a directory, or a safetensors file, that every rank sees.
        state_dict: nested as in torch.distributed.checkpoint. Tensors are written in place, other values are replaced.
            All of it must be in the checkpoint, with the same shapes and dtypes; the checkpoint may have more.
        read: "once": every byte is read by one rank and redistributed; "own": every rank reads what it needs.
        group: the process group that takes part; None means the default group.
        check: compare what is read with the checkpoint's checksums.
        ignore_sidecar: do not read reshard.json, for a checkpoint that something else has overwritten.
        recipe: what of the checkpoint is taken, under which names, and what is made of it (reshard.recipe/1): a file, or
            what is in one. The names in the state dict are those that it gives. The same on all ranks.

    Returns:
        What this rank did: tensors, bytes, read_bytes, received_bytes, seconds.

    Raises:
        ValueError: a recipe that is none, or does not fit; names that are not in the checkpoint (all of them, with the
            nearest ones that are), another shape or dtype, a placement that no layout can express, or ranks that pass
            different things under one name.
        FileNotFoundError, OSError: there is no checkpoint; it cannot be read.
        RuntimeError: the checkpoint is damaged; another rank failed, is gone or disagrees.
    """
    if read not in ("once", "own"):
        raise ValueError(f'read is "once" or "own", not {read!r}')
    recipe_text = _recipe_text(recipe)
    span = span_of_group(group)
    flat, paths = flatten_state_dict(state_dict)
    own = _entries(flat, span)
    items = [name for name in flat if name not in own]
    entries = _agreed(own, span)
    item_names = sorted(set().union(*_gathered(items, span)))
    locals_ = [
        own[name].local if name in own else torch.empty([0], dtype=_dtype(dtype)) for name, _, _, dtype, _ in entries
    ]
    staged = [local if local.device.type == "cpu" else torch.empty_like(local, device="cpu") for local in locals_]
    contents, summary = torch.ops.reshard._load(
        staged,
        os.fspath(path),
        [entry[0] for entry in entries],
        [entry[1] for entry in entries],
        [entry[2] for entry in entries],
        item_names,
        span.name,
        read == "once",
        check,
        ignore_sidecar,
        recipe_text,
    )
    facts = _facts(summary)
    for local, loaded in zip(locals_, staged):
        if local is not loaded:
            local.copy_(loaded)
    for name, bytes_ in zip(item_names, contents):
        if name in paths:
            value = torch.load(io.BytesIO(bytes_.numpy().tobytes()), weights_only=True)
            set_element(state_dict, paths[name], value)
    return facts


def _facts(summary: str) -> dict[str, Any]:
    """What the library reports, or what the system told it, raised."""
    facts = json.loads(summary)
    if "error" in facts:
        raise {"missing": MissingFileError, "existing": ExistingFileError, "file": FileError}[facts["error"]](facts["message"])
    return facts


def _recipe_text(recipe: str | os.PathLike | Mapping[str, Any] | None) -> str:
    if recipe is None:
        return ""
    if isinstance(recipe, Mapping):
        return json.dumps(recipe)
    return pathlib.Path(recipe).read_text(encoding="utf-8")


def save(
    path: str | os.PathLike, state_dict: dict[str, Any], *, overwrite: bool = False, group: Group = None
) -> dict[str, Any]:
    """Saves a state dict as a distributed checkpoint, which torch.distributed.checkpoint.load reads too.

    Each rank writes what it holds; of replicas one is written, and all ranks write about as much. The checkpoint
    appears atomically and complete, or not at all, with a sidecar, reshard.json, that has meshes, layouts and hashes.
    DTensors with a shard order are saved as they are, which torch.distributed.checkpoint.save does not support.

    Collective: every rank of the group calls it. Ranks may pass different names, such as those of their pipeline
        stages.

    Args:
        path: the directory to create, on a filesystem that every rank sees.
        state_dict: nested as in torch.distributed.checkpoint. A plain tensor is taken from the first rank that has it;
            values that are not tensors are pickled with torch.save, by the first rank that has them.
        overwrite: atomically replace what is at the path, once the new checkpoint is complete.
        group: the process group that takes part; None means the default group.

    Returns:
        What this rank did: tensors, written_bytes, seconds.

    Raises:
        ValueError: a placement that no layout can express, a partial tensor, or ranks that pass different things under
            one name.
        FileExistsError, OSError: there is something at the path; the disk is full or cannot be written.
        RuntimeError: another rank failed, is gone or disagrees.
        What was at the path is still there after any of them.
    """
    span = span_of_group(group)
    flat, paths = flatten_state_dict(state_dict)
    own = _entries(flat, span)
    items = {name: _pickled(value) for name, value in flat.items() if name not in own}
    rank = span.ranks.index(dist.get_rank())
    entries = _agreed(own, span)
    item_facts: dict[str, tuple[int, int]] = {}  # name: rank, length
    all_paths: dict[str, tuple] = {}
    described = ({name: len(bytes_) for name, bytes_ in items.items()}, paths)
    for holder, (lengths, rank_paths) in enumerate(_gathered(described, span)):
        for name, length in lengths.items():
            item_facts.setdefault(name, (holder, length))
        for name, rank_path in rank_paths.items():
            all_paths.setdefault(name, rank_path)
    locals_ = [
        own[name].local.resolve_conj().resolve_neg().cpu() if name in own else torch.empty([0], dtype=_dtype(dtype))
        for name, _, _, dtype, _ in entries
    ]
    item_names = sorted(item_facts)
    summary = torch.ops.reshard._save(
        locals_,
        os.fspath(path),
        [entry[0] for entry in entries],
        [entry[1] for entry in entries],
        [entry[2] for entry in entries],
        [int(entry[4]) for entry in entries],
        [_bytes_tensor(items[name] if item_facts[name][0] == rank else b"") for name in item_names],
        item_names,
        [item_facts[name][0] for name in item_names],
        [item_facts[name][1] for name in item_names],
        json.dumps([list(all_paths[name]) for name in [entry[0] for entry in entries] + item_names]),
        span.name,
        overwrite,
    )
    return _facts(summary)


def _pickled(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _bytes_tensor(bytes_: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(bytes_), dtype=torch.uint8) if bytes_ else torch.empty([0], dtype=torch.uint8)


def _entries(flat: dict[str, Any], span: Span) -> dict[str, _Entry]:
    entries = {}
    for name, value in flat.items():
        if not isinstance(value, torch.Tensor):
            continue
        dtype = str(value.dtype)
        if isinstance(value, DTensor):
            mesh, layout = spec_texts(value._spec, span)
            local = value._local_tensor.detach()
            entries[name] = _Entry(name, mesh, layout, dtype, value.requires_grad, local)
        else:
            layout = "[" + ", ".join(map(str, value.shape)) + "]"
            entries[name] = _Entry(name, None, layout, dtype, value.requires_grad, value.detach())
    return entries


def _gathered(value: Any, span: Span) -> list[Any]:
    """Each rank's value, passed as JSON by this library's own exchange, which has deadlines and names who fails."""
    data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    lengths = torch.ops.reshard.all_gather(torch.tensor([data.numel()]), 0, span.name).tolist()
    padded = torch.nn.functional.pad(data, (0, max(lengths) - data.numel()))
    rows = torch.ops.reshard.all_gather(padded, 0, span.name).view(len(lengths), -1)
    return [json.loads(row[:length].numpy().tobytes()) for row, length in zip(rows, lengths)]


def _agreed(own: dict[str, _Entry], span: Span) -> list[tuple]:
    """The tensors of all ranks, sorted by name: (name, mesh, layout, dtype, requires_grad).

    Raises:
        ValueError: ranks have different tensors under one name. Raised on every rank.
    """
    merged: dict[str, tuple] = {}
    holders: dict[str, list[int]] = {}
    for rank, described in enumerate(_gathered([entry.described for entry in own.values()], span)):
        for entry in map(tuple, described):
            before = merged.setdefault(entry[0], entry)
            if before != entry:
                raise ValueError(
                    f"ranks have different tensors under the name {entry[0]!r}: rank {holders[entry[0]][0]} has "
                    f"{before[1:4]}, rank {rank} has {entry[1:4]}"
                )
            holders.setdefault(entry[0], []).append(rank)
    agreed = []
    for name in sorted(merged):
        _, mesh, *rest = merged[name]
        if mesh is None:
            mesh = f"{{holders:{len(holders[name])}}}@[{','.join(map(str, holders[name]))}]"
        agreed.append((name, mesh, *rest))
    return agreed


def _dtype(text: str) -> torch.dtype:
    return getattr(torch, text.removeprefix("torch."))
