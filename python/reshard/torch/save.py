"""Saves the tensors of a running job as a checkpoint, at once or in the background."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from .behind import Behind
from .entries import Entry, agreed, dtype_of, entries_of, gathered_or_raised, rank_in, span_or_alone, states_of
from .groups import Group, Span
from .mesh_texts import alike
from .progress import Progress, Told, told, told_of
from .state import rank_local as of_ranks
from .state import replicas
from .state.nested import leaves_of
from .state.values import pickled
from .stored import bytes_tensor, facts_of


def save(
    path: str | os.PathLike,
    state_dict: Mapping[str, Any],
    *,
    overwrite: bool = False,
    group: Group = None,
    progress: Progress = None,
    check_replicas: str = "small",
    rank_local: Iterable[str] = (),
) -> dict[str, Any]:
    """Saves a state dict as a distributed checkpoint, which torch.distributed.checkpoint.load reads too.

    Each rank writes what it holds; of replicas one is written, and all ranks write about the same amount. The checkpoint
    appears atomically and complete, or not at all, with a sidecar, reshard.json, that has meshes, layouts and hashes.
    DTensors with a shard order are saved as they are, which torch.distributed.checkpoint.save does not support.

    Collective: every rank of the group calls it. Ranks may pass different names, such as those of their pipeline
        stages. Without torch.distributed the process is alone.

    Args:
        path: the directory to create, on a filesystem that every rank sees, or a URL such as s3://bucket/step-1000.
        state_dict: nested as in torch.distributed.checkpoint, under keys of any type that has a text. A plain tensor is
            the same on all ranks that pass it, and one of them writes it; the same holds for values that are not
            tensors, which are pickled with torch.save. Tied weights are written under each of their names. A model,
            an optimizer or another `Stateful` object is asked for its state.
        overwrite: atomically replace what is at the path, once the new checkpoint is complete.
        group: the process group that takes part; None means the default group.
        progress: called with (bytes done, bytes in total) of what this rank writes, on this thread: before anything is
            written, a few times a second, and when all is written, just before the checkpoint appears. An exception from
            it, such as KeyboardInterrupt, ends the save on all ranks, and is raised here. True prints a line every 5
            seconds on stderr, on rank 0. Ranks may differ.
        check_replicas: which things that several ranks pass are compared before anything is written, by 128-bit
            fingerprints of their contents. "small": plain tensors and pickled values of up to 1 MiB; "all": of any size,
            such as the weights of a model in DistributedDataParallel, and replicas of DTensors; "none": nothing, and
            what one of the ranks has is written. The same on all ranks.
        rank_local: patterns of names (`*` is any text, `?` one character) of plain tensors and values that each rank
            has for itself, such as ["rng*"]. Rank 2 writes its NAME as NAME.rank_2, and `load` with the same patterns
            gives it back.

    Returns:
        What this rank did: tensors, written_bytes, seconds.

    Raises:
        ValueError: a partial tensor, ranks that pass different things under one name, or two things that would have one
            name; a pattern that matches nothing. Raised on every rank, unless it is this rank's own.
        NotImplementedError: a placement that no layout can express.
        FileExistsError, OSError: there is something at the path; the disk is full or cannot be written.
        RuntimeError: another rank failed, is gone or disagrees.

    After any of these, what was at the path is still there.
    """
    span = span_or_alone(group)
    tell = told_of(progress, rank_in(span))
    how = How(check_replicas, rank_local, copies=False)
    return write(path, Staged.of(state_dict, span, how), span, overwrite, tell)


class PendingSave(Behind[dict[str, Any]]):
    """A save in the background; see `save_async`."""


def save_async(
    path: str | os.PathLike,
    state_dict: Mapping[str, Any],
    *,
    overwrite: bool = False,
    group: Group = None,
    progress: Progress = None,
    check_replicas: str = "small",
    rank_local: Iterable[str] = (),
) -> PendingSave:
    """Saves the state as it is now, as `save` does, while the job goes on.

        pending = reshard.save_async("step-1000", {"model": model})
        ...                                                     # the next steps
        pending.wait()

    Copies the state into host memory, then writes it on a thread of its own, over process groups of its own, so that
    what the job communicates meanwhile is not in its way. A save that is not done delays the next one on the same group.
    A program waits for it before it exits; an error that nobody waits for becomes a warning.

    Collective; arguments and errors are those of `save`, but `progress` is called on the thread that writes. Errors in
    the state are raised here, all others by `wait`.

    Returns:
        The save, to wait for.
    """
    span = span_or_alone(group)
    tell = told_of(progress, rank_in(span))
    staged = Staged.of(state_dict, span, How(check_replicas, rank_local, copies=True))
    where = os.fspath(path)
    return PendingSave(
        span, lambda side: write(where, staged, side, overwrite, tell), f"{where} is not written yet", f"{where} was not saved"
    )


class How(NamedTuple):
    """How a state is staged: `check_replicas` and `rank_local` of `save`, and whether host memory is copied."""

    check_replicas: str
    rank_local: Iterable[str]
    copies: bool


class Staged(NamedTuple):
    """What a rank saves."""

    own: dict[str, Entry]
    items: dict[str, bytes]
    entries: list[tuple]  # the tensors of all ranks
    item_facts: dict[str, tuple[int, int]]  # of all ranks; name: rank, length
    paths: dict[str, tuple]

    @classmethod
    def of(cls, state_dict: Mapping[str, Any], span: Span, how: How) -> "Staged":
        if how.check_replicas not in replicas.MODES:
            raise ValueError(f'check_replicas is "small", "all" or "none", not {how.check_replicas!r}')
        own: dict[str, Entry] = {}
        items: dict[str, bytes] = {}
        values: dict[str, Any] = {}
        described: list[Any] = []
        error = None
        try:
            leaves = leaves_of(states_of(state_dict))
            mine = of_ranks.RankLocal(how.rank_local, leaves, rank_in(span))
            leaves = mine.renamed(leaves)
            values = {name: leaf.value for name, leaf in leaves.items()}
            own = entries_of(values, span)
            items = {name: pickled(value) for name, value in values.items() if name not in own}
            own = {name: entry._replace(local=_on_host(entry.local, how.copies)) for name, entry in own.items()}
            described = [
                [entry.described for entry in own.values()],
                {name: len(content) for name, content in items.items()},
                {name: leaf.path for name, leaf in leaves.items()},
                mine.described,
                how.check_replicas,
                replicas.sums_of(how.check_replicas, own, values, items),
            ]
        except Exception as failure:  # the others wait for what this rank says
            error = failure
        answers = gathered_or_raised(described, error, span)
        of_ranks.check([answer[3] for answer in answers], [answer[2] for answer in answers])
        entries = agreed([answer[0] for answer in answers])
        replicas.check([answer[4] for answer in answers], [answer[5] for answer in answers], values, items, span)
        item_facts: dict[str, tuple[int, int]] = {}
        all_paths: dict[str, tuple] = {}
        for ranks, (_, rank_lengths, rank_paths, *_) in alike(answers):
            for name, length in rank_lengths.items():
                item_facts.setdefault(name, (ranks[0], length))
            for name, rank_path in rank_paths.items():
                all_paths.setdefault(name, tuple(rank_path))
        return cls(own, items, entries, item_facts, all_paths)


def write(path: str | os.PathLike, staged: Staged, span: Span, overwrite: bool, tell: Told | None) -> dict[str, Any]:
    rank = rank_in(span)
    names = [entry[0] for entry in staged.entries]
    item_names = sorted(staged.item_facts)
    facts = staged.item_facts
    locals_ = [
        staged.own[name].local if name in staged.own else torch.empty([0], dtype=dtype_of(dtype))
        for name, _, _, dtype, _ in staged.entries
    ]
    arguments = (
        locals_,
        os.fspath(path),
        names,
        [entry[1] for entry in staged.entries],
        [entry[2] for entry in staged.entries],
        [int(entry[4]) for entry in staged.entries],
        [bytes_tensor(staged.items[name] if facts[name][0] == rank else b"") for name in item_names],
        item_names,
        [facts[name][0] for name in item_names],
        [facts[name][1] for name in item_names],
        json.dumps([list(staged.paths[name]) for name in names + item_names]),
        span.name,
        overwrite,
    )
    return facts_of(told(lambda progress: torch.ops.reshard._save(*arguments, progress), tell))


def _on_host(local: torch.Tensor, copies: bool) -> torch.Tensor:
    resolved = local.resolve_conj().resolve_neg()
    host = resolved.cpu()
    return host.clone() if copies and host.data_ptr() == local.data_ptr() else host
