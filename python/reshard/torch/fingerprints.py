"""The sums behind reshard.fingerprint, over the ranks of a group: of their tensors, or of a checkpoint of which
each reads a part."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..checkpoints import Progress, stored_fingerprints
from .entries import Entry, agreed, dtype_of, entries_of, gathered_or_raised, rank_in, span_or_alone
from .groups import Group, span_of_group
from .state.nested import flat

Sums = dict[str, tuple[int, int]]  # low and high by name, in the order of names; 64 bits of each count


def fingerprints_of_tensors(tensors: torch.nn.Module | Mapping[str, Any] | Sequence[torch.Tensor], group: Group) -> Sums:
    """See reshard.fingerprint."""
    span = span_or_alone(group)
    own: dict[str, Entry] = {}
    error = None
    try:
        own = entries_of(_flat(tensors), span)
    except Exception as failure:  # the others wait for what this rank says
        error = failure
    described = gathered_or_raised([entry.described for entry in own.values()], error, span)
    entries = agreed(described)
    if not entries:
        return {}
    names = [entry[0] for entry in entries]
    locals_ = [
        own[name].local if name in own else torch.empty([0], dtype=dtype_of(dtype)) for name, _, _, dtype, _ in entries
    ]
    sums = torch.ops.reshard._fingerprints(
        locals_, names, [entry[1] for entry in entries], [entry[2] for entry in entries], span.name
    )
    return _by_name(names, sums)


def fingerprints_of_checkpoint(
    path: str, terms: dict[str, Any], threads: int, progress: Progress | None, group: Group
) -> Sums:
    """See reshard.fingerprint. `terms` are those of reshard.checkpoints.

    Raises:
        ValueError: ranks see different checkpoints, or take different things of them. Raised on every rank.
    """
    span = span_of_group(group)
    own: Sums = {}
    seen, error = "", None
    try:
        taken = stored_fingerprints(path, terms, rank_in(span), len(span.ranks), threads, progress)
        own = taken.by_name
        seen = hashlib.sha256(json.dumps([terms, taken.described]).encode()).hexdigest()
    except BaseException as failure:  # Ctrl-C, too: the others wait for what this rank says
        error = failure
    answers = gathered_or_raised(seen, error, span)
    other = next((rank for rank, answer in zip(span.ranks, answers) if answer != answers[0]), None)
    if other is not None:
        raise ValueError(
            f"ranks {span.ranks[0]} and {other} take fingerprints of different things: they see other tensors in {path}, "
            "or were passed other arguments"
        )
    if not own:
        return {}
    halves = torch.tensor([[_signed(low), _signed(high)] for low, high in own.values()])
    return _by_name(list(own), torch.ops.reshard.all_reduce(halves, "sum", span.name))


def _by_name(names: list[str], sums: torch.Tensor) -> Sums:
    return {name: (low, high) for name, (low, high) in zip(names, sums.tolist())}


def _signed(half: int) -> int:
    """The int64 with these 64 bits; sums of those wrap around, as sums modulo 2^64 do."""
    return half - (1 << 64) if half >> 63 else half


def _flat(tensors: torch.nn.Module | Mapping[str, Any] | Sequence[torch.Tensor]) -> dict[str, Any]:
    if isinstance(tensors, torch.nn.Module):
        tensors = tensors.state_dict(keep_vars=True)  # detached, they would lose their shard orders
    if isinstance(tensors, Mapping):
        return flat(tensors)
    return {str(index): tensor for index, tensor in enumerate(tensors)}
