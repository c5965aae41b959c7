"""Checkpoints into the tensors of a running job, whatever layout, mesh and format they were saved in."""

import io
import json
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.checkpoint.stateful import Stateful

from .entries import Entry, agreed, dtype_of, entries_of, gathered_or_raised, rank_in, span_or_alone, states_of
from .groups import Group, Span
from .private_pytorch import flatten_state_dict, set_element
from .progress import Progress, Told, told, told_of
from .stored import Recipe, Stored, facts_of, recipe_text

STAGED_BYTES = 256 << 20  # of tensors on devices that are in host memory at a time, or one tensor's fragment
_CASTS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def load(
    path: str | os.PathLike,
    state_dict: dict[str, Any],
    *,
    read: str = "once",
    strict: bool = True,
    cast: bool = False,
    group: Group = None,
    check: bool = True,
    ignore_sidecar: bool = False,
    recipe: Recipe = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Loads a checkpoint into the tensors of a state dict, whatever layout, mesh and format it was saved in.

        reshard.load("step-1000", {"model": model, "optimizer": optimizer.state_dict()})

    Reads what torch.distributed.checkpoint.save, reshard.save and `reshard convert` write, safetensors, and files of
    torch.save. DTensors may have any mesh, placements and shard order; a plain tensor is replicated over the ranks that
    pass it. Tensors on devices are loaded through host memory, 256 MiB of them at a time. Nothing in the checkpoint is
    executed: values that are not tensors are read with torch.load(weights_only=True).

    Collective: every rank of the group calls it. Ranks may pass different names, such as those of their pipeline
        stages. Without torch.distributed the process is alone.

    Args:
        path: a directory, or a safetensors file, that every rank sees.
        state_dict: nested as in torch.distributed.checkpoint. Tensors are written in place, other values are replaced.
            A model, an optimizer or another `Stateful` object in it is asked for its state, and given what was loaded.
        read: "once": every byte is read by one rank and redistributed; "own": every rank reads what it needs.
        strict: all of the state dict must be in the checkpoint, which may have more. False leaves what is not there as
            it is.
        cast: floating-point tensors of another dtype are converted, as Tensor.to does. Without it they are an error.
        group: the process group that takes part; None means the default group.
        check: compare what is read with the checkpoint's checksums.
        ignore_sidecar: do not read reshard.json, for a checkpoint that something else has overwritten.
        recipe: what of the checkpoint is taken, under which names, and what is made of it (reshard.recipe/1): a file, or
            what is in one. The names in the state dict are those that it gives. The same on all ranks.
        progress: called with (bytes done, bytes in total) of this rank's tensors, on this thread: before anything is
            read, a few times a second, and when all is there. What it raises, such as KeyboardInterrupt, ends the load
            on all ranks, and is raised here. True prints a line every 5 seconds on stderr, on rank 0. Ranks may differ.

    Returns:
        What this rank did: tensors, bytes, read_bytes, received_bytes, seconds; and what differed, over all ranks:
        missing (names that are not in the checkpoint), unexpected (names that only it has), converted (name: [dtype in
        the checkpoint, dtype here]).

    Raises:
        ValueError: a recipe that is none, or does not fit; names that are not in the checkpoint (all of them, with the
            nearest ones that are), another shape or dtype, a placement that no layout can express, or ranks that pass
            different things under one name.
        FileNotFoundError, OSError: there is no checkpoint; it cannot be read.
        RuntimeError: the checkpoint is damaged; another rank failed, is gone or disagrees.
    """

    def opened(made: Recipe) -> Stored:
        return Stored(path, check=check, ignore_sidecar=ignore_sidecar, recipe=made)

    if read not in ("once", "own"):
        raise ValueError(f'read is "once" or "own", not {read!r}')
    return Loading(opened, recipe, read, strict, cast, span_or_alone(group), progress).into(state_dict)


class Loading:
    """One load, by what is common to `load` and to torch.distributed.checkpoint's planners."""

    def __init__(
        self,
        opened: Callable[[Recipe], Stored],
        recipe: Recipe,
        read: str,
        strict: bool,
        cast: bool,
        span: Span,
        progress: Progress,
    ):
        self._opened = opened
        self._recipe = recipe
        self._read = read
        self._strict = strict
        self._cast = cast
        self._span = span
        self._tell = told_of(progress, rank_in(span))

    def into(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """See `load`."""
        states = states_of(state_dict)
        flat, paths = flatten_state_dict(states)
        own: dict[str, Entry] = {}
        stored, error = None, None
        try:
            own = entries_of(flat, self._span)
            stored = self._opened(self._recipe)
        except Exception as failure:  # the others wait for what this rank says
            error = failure
        items = [name for name in flat if name not in own]
        # How many bytes of a tensor are staged, so that all ranks stage the same ones together.
        staged = [0 if entry.local.device.type == "cpu" else entry.local.nbytes for entry in own.values()]
        described = [[entry.described for entry in own.values()], items, staged]
        answers = gathered_or_raised(described, error, self._span)
        entries = agreed([answer[0] for answer in answers])
        asked = sorted(set().union(*(answer[1] for answer in answers)))
        report = self._differences(stored, entries, asked)
        if report["converted"]:
            stored, error = None, None
            try:
                stored = self._opened(_with_casts(self._recipe, report["converted"]))
            except Exception as failure:
                error = failure
            gathered_or_raised(None, error, self._span)
        if not self._strict:
            missing = set(report["missing"])
            entries = [entry for entry in entries if entry[0] not in missing]
            asked = [name for name in asked if name not in missing]
        most: dict[str, int] = {}
        for answer in answers:
            for entry, bytes_ in zip(answer[0], answer[2]):
                most[entry[0]] = max(most.get(entry[0], 0), bytes_)
        contents, facts = self._move(stored, own, entries, asked, most)
        for name, bytes_ in contents.items():
            if name in paths:
                set_element(states, paths[name], torch.load(io.BytesIO(bytes_), weights_only=True))
        for key, value in state_dict.items():
            if isinstance(value, Stateful):
                value.load_state_dict(states[key])
            else:
                state_dict[key] = states[key]
        return {**facts, **report}

    def _differences(self, stored: Stored, entries: list[tuple], items: list[str]) -> dict[str, Any]:
        """missing, unexpected and converted, the same on all ranks; empty where they would be errors."""
        names = {entry[0] for entry in entries}.union(items)
        there = set(stored.names())
        converted = {}
        for name, _, _, dtype, _ in entries:
            before = stored.tensors[name].dtype if name in stored.tensors else None
            if self._cast and before in _CASTS and dtype_of(dtype) in _CASTS and before != dtype_of(dtype):
                converted[name] = [str(before), dtype]
        return {
            "missing": [] if self._strict else sorted(names - there),
            "unexpected": sorted(there - names),
            "converted": converted,
        }

    def _move(
        self, stored: Stored, own: dict[str, Entry], entries: list[tuple], items: list[str], staged: dict[str, int]
    ) -> tuple[dict[str, bytes], dict[str, Any]]:
        totals: dict[str, Any] = {}
        contents: dict[str, bytes] = {}
        total = sum(own[entry[0]].local.nbytes for entry in entries if entry[0] in own)
        batches = _batches(entries, staged) or [[]]
        for index, batch in enumerate(batches):
            locals_ = [
                own[name].local if name in own else torch.empty([0], dtype=dtype_of(dtype)) for name, _, _, dtype, _ in batch
            ]
            host = [local if local.device.type == "cpu" else torch.empty_like(local, device="cpu") for local in locals_]
            names = items if index + 1 == len(batches) else []
            arguments = (
                host,
                [entry[0] for entry in batch],
                [entry[1] for entry in batch],
                [entry[2] for entry in batch],
                names,
                self._span.name,
                self._read == "once",
            )
            tell = _of_all(self._tell, totals.get("bytes", 0), total)
            bytes_, summary = told(lambda progress: stored.handle.load(*arguments, progress), tell)
            for key, value in facts_of(summary).items():
                totals[key] = totals.get(key, 0) + value
            for local, loaded in zip(locals_, host):
                if local is not loaded:
                    local.copy_(loaded)
            contents.update((name, item.numpy().tobytes()) for name, item in zip(names, bytes_))
        return contents, totals


def _of_all(tell: Told | None, before: int, total: int) -> Told | None:
    """Tells of a part of a load as of all of it."""
    return tell and (lambda done, _: tell(before + done, total))


def _batches(entries: list[tuple], staged: dict[str, int]) -> list[list[tuple]]:
    """Runs of entries of which not more than STAGED_BYTES are staged, or one: the same on all ranks."""
    batches: list[list[tuple]] = []
    bytes_ = 0
    for entry in entries:
        bytes_ += staged[entry[0]]
        if not batches or (bytes_ > STAGED_BYTES and staged[entry[0]] > 0):
            batches.append([])
            bytes_ = staged[entry[0]]
        batches[-1].append(entry)
    return batches


def _with_casts(recipe: Recipe, converted: dict[str, list[str]]) -> dict[str, Any]:
    """The recipe, which then casts these tensors, too.

    Raises:
        ValueError: a name that would be a pattern.
    """
    made: dict[str, Any] = {"schema": "reshard.recipe/1"} if recipe is None else json.loads(recipe_text(recipe))
    patterns = [name for name in converted if "*" in name or "?" in name]
    if patterns:
        raise ValueError(f"{patterns[0]!r} cannot be cast: its name would be a pattern; load it in a call of its own")
    casts = [[name, after.removeprefix("torch.")] for name, (_, after) in converted.items()]
    return {**made, "dtype": casts + list(made.get("dtype", []))}
