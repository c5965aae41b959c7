"""Loads checkpoints into the tensors of a running job, whatever layout, mesh and format they were saved in."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..errors import InputError
from .entries import (
    Entry,
    agreed,
    dtype_of,
    entries_of,
    gathered_or_raised,
    is_stateful,
    rank_in,
    span_or_alone,
    states_of,
)
from .groups import Group, Span
from .mesh_texts import alike
from .progress import Progress, Told, told, told_of
from .state import rank_local as of_ranks
from .state import tied
from .state.nested import Leaf, check_replaceable, leaves_of
from .state.values import unpickled
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
    rank_local: Iterable[str] = (),
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
        state_dict: nested as in torch.distributed.checkpoint, under keys of any type that has a text. Tensors are
            written in place; other values are replaced, under the keys that they have here. Tensors may share memory,
            as tied weights do: of those of one form, one must be in the checkpoint, and tensors that overlap must be the
            same there. A model, an optimizer or another `Stateful` object in it is asked for its state, and then given
            what was loaded.
        read: "once": every byte is read by one rank and redistributed; "own": every rank reads what it needs.
        strict: all of the state dict must be in the checkpoint, which may have more. False leaves what is not there as
            it is.
        cast: floating-point tensors of another dtype are converted, as Tensor.to does. Without it they are an error.
        group: the process group that takes part; None means the default group.
        check: compare what is read with the checkpoint's checksums.
        ignore_sidecar: do not read reshard.json, for a checkpoint that something else has overwritten.
        recipe: what to take from the checkpoint, under which names, and what to make of it (reshard.recipe/1): a file,
            or the contents of one. The names in the state dict are those that it gives. The same on all ranks.
        progress: called with (bytes done, bytes in total) of this rank's tensors, on this thread: before anything is
            read, a few times a second, and when all is there. An exception from it, such as KeyboardInterrupt, ends the
            load on all ranks, and is raised here. True prints a line every 5 seconds on stderr, on rank 0. Ranks may
            differ.
        rank_local: patterns of names of plain tensors and values that each rank has for itself, as in `save`: rank 2
            loads NAME.rank_2 into its NAME.

    Returns:
        What this rank did: tensors, bytes, read_bytes, received_bytes, seconds; and what differed, over all ranks:
        missing (names that are not in the checkpoint), unexpected (names that only it has), converted (name: [dtype in
        the checkpoint, dtype here]).

    Raises:
        ValueError: text that is not a recipe, or one that does not fit; names that are not in the checkpoint (all of
            them, with the nearest ones that are), or only for other ranks; another shape or dtype, ranks that pass
            different things under one name, tensors that share memory and differ in the checkpoint, or a value of a
            class, which is not loaded because loading it may run what the checkpoint says. Leave it out of the state
            dict, or allow it with torch.serialization.add_safe_globals.
        NotImplementedError: a placement that no layout can express.
        FileNotFoundError, OSError: there is no checkpoint; it cannot be read.
        RuntimeError: the checkpoint is damaged; another rank failed, is gone or disagrees.
    """

    def opened(made: Recipe) -> Stored:
        return Stored(path, check=check, ignore_sidecar=ignore_sidecar, recipe=made)

    if read not in ("once", "own"):
        raise ValueError(f'read is "once" or "own", not {read!r}')
    return Loading(opened, recipe, read, strict, cast, span_or_alone(group), progress, rank_local).into(state_dict)


class Loading:
    """One load: what `load` and the planners for torch.distributed.checkpoint have in common."""

    def __init__(
        self,
        opened: Callable[[Recipe], Stored],
        recipe: Recipe,
        read: str,
        strict: bool,
        cast: bool,
        span: Span,
        progress: Progress,
        rank_local: Iterable[str] = (),
    ):
        self._opened = opened
        self._recipe = recipe
        self._read = read
        self._strict = strict
        self._cast = cast
        self._span = span
        self._tell = told_of(progress, rank_in(span))
        self._rank_local = rank_local

    def into(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """See `load`."""
        install, report = self._loaded(state_dict, STAGED_BYTES, _is_staged)
        install()
        return report

    def held(self, state_dict: dict[str, Any]) -> tuple[Callable[[], None], dict[str, Any]]:
        """The same into host memory, and a function that then brings it into the state dict, on this rank alone."""
        return self._loaded(state_dict, sys.maxsize, lambda _: True)

    def _loaded(
        self, state_dict: dict[str, Any], staged_bytes: int, is_staged: Callable[[torch.Tensor], bool]
    ) -> tuple[Callable[[], None], dict[str, Any]]:
        states: dict[str, Any] = {}
        leaves: dict[str, Leaf] = {}
        own: dict[str, Entry] = {}
        described: list[Any] = []
        stored, error = None, None
        try:
            states = states_of(state_dict)
            leaves = leaves_of(states)
            mine = of_ranks.RankLocal(self._rank_local, leaves, rank_in(self._span))
            leaves = mine.renamed(leaves)
            own = entries_of({name: leaf.value for name, leaf in leaves.items()}, self._span)
            items = [name for name in leaves if name not in own]
            for name in items:
                check_replaceable(name, leaves[name])
            described = [[entry.described for entry in own.values()], items, *_memory_of(own, is_staged), mine.described]
            stored = self._opened(self._recipe)
            if self._strict:
                mine.check_stored(leaves, set(stored.names()), len(self._span.ranks))
        except Exception as failure:  # the others wait for what this rank says
            error = failure
        answers = gathered_or_raised(described, error, self._span)
        said = [answer for _, answer in alike(answers)]
        names = [[entry[0] for entry in answer[0]] for answer in said]
        passed = {id(answer): of_rank + answer[1] for of_rank, answer in zip(names, said)}
        of_ranks.check([answer[5] for answer in answers], [passed[id(answer)] for answer in answers])
        entries = agreed([answer[0] for answer in answers])
        asked = sorted(set().union(*(answer[1] for answer in said)))
        specs = {name: spec[:3] for name, *spec in entries}
        stand_ins = tied.stand_ins([(of_rank, answer[3]) for of_rank, answer in zip(names, said)], specs, set(stored.names()))
        report = self._differences(stored, entries, asked, stand_ins)
        if report["converted"]:
            stored, error = None, None
            try:
                stored = self._opened(_with_casts(self._recipe, report["converted"]))
            except Exception as failure:
                error = failure
            gathered_or_raised(None, error, self._span)
        left_out = set(stand_ins).union(report["missing"])
        entries = [entry for entry in entries if entry[0] not in left_out]
        asked = [name for name in asked if name not in left_out]
        most: dict[str, int] = {}
        for of_rank, answer in zip(names, said):
            for name, bytes_ in zip(of_rank, answer[2]):
                most[name] = max(most.get(name, 0), bytes_)
        clusters = [[of_rank[i] for i in cluster] for of_rank, answer in zip(names, said) for cluster in answer[4]]
        batches = _batches(entries, tied.together([entry[0] for entry in entries], clusters), most, staged_bytes)
        copies, contents, facts = self._move(stored, own, batches, asked, is_staged)
        facts["tensors"] += len(stand_ins)
        values = self._values(leaves, contents, asked)

        def install() -> None:
            for local, loaded in copies:
                local.copy_(loaded)
            for name, value in values.items():
                leaves[name].put(value)
            for key, value in state_dict.items():
                if is_stateful(value):
                    value.load_state_dict(states[key])
                else:
                    state_dict[key] = states[key]

        return install, {**facts, **report}

    def _values(self, leaves: dict[str, Leaf], contents: dict[str, bytes], asked: list[str]) -> dict[str, Any]:
        """The values of the state dict, on all ranks or on none."""
        values, error = {}, None
        try:
            for name, content in contents.items():
                if name in leaves:
                    values[name] = unpickled(name, content, "or leave it out of the state dict")
        except Exception as failure:  # the others wait for what this rank says
            error = failure
        if asked:
            gathered_or_raised(None, error, self._span)
        return values

    def _differences(
        self, stored: Stored, entries: list[tuple], items: list[str], stand_ins: dict[str, str]
    ) -> dict[str, Any]:
        """missing, unexpected and converted, the same on all ranks; empty where they would be errors."""
        names = {entry[0] for entry in entries}.union(items)
        there = set(stored.names())
        converted = {}
        for name, _, _, dtype, _ in entries:
            before = stored.tensors[name].dtype if name in stored.tensors else None
            if self._cast and before in _CASTS and dtype_of(dtype) in _CASTS and before != dtype_of(dtype):
                converted[name] = [str(before), dtype]
        return {
            "missing": [] if self._strict else sorted(names - there - stand_ins.keys()),
            "unexpected": sorted(there - names),
            "converted": converted,
        }

    def _move(
        self,
        stored: Stored,
        own: dict[str, Entry],
        batches: list[list[tuple]],
        items: list[str],
        is_staged: Callable[[torch.Tensor], bool],
    ) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], dict[str, bytes], dict[str, Any]]:
        """What is left to copy of the last batch, and what was read."""
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        totals: dict[str, Any] = {}
        contents: dict[str, bytes] = {}
        total = sum(own[entry[0]].local.nbytes for batch in batches for entry in batch if entry[0] in own)
        for index, batch in enumerate(batches):
            locals_ = [
                own[name].local if name in own else torch.empty([0], dtype=dtype_of(dtype)) for name, _, _, dtype, _ in batch
            ]
            host = tied.staged(locals_, is_staged)
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
            copies = [(local, loaded) for local, loaded in zip(locals_, host) if local is not loaded]
            if index + 1 < len(batches):
                for local, loaded in copies:
                    local.copy_(loaded)
            contents.update((name, item.numpy().tobytes()) for name, item in zip(names, bytes_))
        return copies, contents, totals


def _of_all(tell: Told | None, before: int, total: int) -> Told | None:
    """Reports the progress of a part of a load as that of the whole."""
    return tell and (lambda done, _: tell(before + done, total))


def _is_staged(local: torch.Tensor) -> bool:
    return local.device.type != "cpu"


def _memory_of(own: dict[str, Entry], is_staged: Callable[[torch.Tensor], bool]) -> tuple[list[int], list[int], list[list[int]]]:
    """What the other ranks must know of these tensors' memory: how many bytes of each are staged, so that all ranks
    stage the same ones together; which are the same memory; which of those that are staged overlap.
    """
    locals_ = [entry.local for entry in own.values()]
    for name, entry in own.items():
        if entry.local.is_meta:
            raise InputError(f"{name} is on the meta device and has no memory; give it some, as Module.to_empty does")
    staged = [index for index, local in enumerate(locals_) if is_staged(local)]
    clusters = tied.clusters_of([locals_[index] for index in staged])
    bytes_ = [local.nbytes if is_staged(local) else 0 for local in locals_]
    return bytes_, tied.forms_of(locals_), [[staged[k] for k in cluster] for cluster in clusters]


def _batches(
    entries: list[tuple], lists: list[list[str]], staged: dict[str, int], staged_bytes: int
) -> list[list[tuple]]:
    """Runs of entries, at least one, of which not more than `staged_bytes` are staged, or those of one list of names: the
    same on all ranks.
    """
    by_name = {entry[0]: entry for entry in entries}
    batches: list[list[tuple]] = [[]]
    bytes_ = 0
    for names in lists:
        more = sum(staged[name] for name in names)
        bytes_ += more
        if batches[-1] and more > 0 and bytes_ > staged_bytes:
            batches.append([])
            bytes_ = more
        batches[-1].extend(by_name[name] for name in names)
    return batches


def _with_casts(recipe: Recipe, converted: dict[str, list[str]]) -> dict[str, Any]:
    """The recipe, extended by casts of these tensors.

    Raises:
        ValueError: a name that would be a pattern.
    """
    made: dict[str, Any] = {"schema": "reshard.recipe/1"} if recipe is None else json.loads(recipe_text(recipe))
    patterns = [name for name in converted if "*" in name or "?" in name]
    if patterns:
        raise ValueError(f"{patterns[0]!r} cannot be cast: its name would be a pattern; load it in a call of its own")
    casts = [[name, after.removeprefix("torch.")] for name, (_, after) in converted.items()]
    return {**made, "dtype": casts + list(made.get("dtype", []))}
