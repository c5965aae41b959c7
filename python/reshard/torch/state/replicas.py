"""Whether ranks that pass one thing to be saved pass the same contents: one of them writes it for all."""

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ...errors import InputError
from ..entries import Entry, gathered_or_raised
from ..groups import Span
from ..mesh_texts import alike
from ..private_pytorch import spec_of
from .values import bytes_sum, tensor_sums, value_sum

SMALL = 1 << 20  # bytes
MODES = ("small", "all", "none")
_MOST_SHOWN = 8  # names in an error

Sums = dict[str, list[Any]]  # by name: which part of it the rank has, and what it contains


def sums_of(mode: str, own: dict[str, Entry], values: dict[str, Any], items: dict[str, bytes]) -> Sums:
    """What other ranks that pass the same part of a name must have, too.

    Args:
        own: this rank's tensors, in host memory.
        values: the state dict by name.
        items: the pickled values.
    """
    if mode == "none":
        return {}
    parts: dict[str, str] = {}
    for name, entry in own.items():
        if entry.local.layout != torch.strided:
            continue  # refused where it is saved
        if entry.mesh is not None:
            if mode == "all" and entry.local.numel() and isinstance(values[name], DTensor):
                parts[name] = _part_of(values[name])
        elif mode == "all" or entry.local.nbytes <= SMALL:
            parts[name] = ""
    contents = tensor_sums([own[name].local for name in parts])
    sums: Sums = {name: [part, *content] for (name, part), content in zip(parts.items(), contents)}
    for name, content in items.items():
        is_compared = mode == "all" or len(content) <= SMALL
        sums[name] = ["", *bytes_sum(content)] if is_compared else ["", "more than is compared"]
    return sums


def check(modes: list[str], sums: list[Sums], values: dict[str, Any], items: dict[str, bytes], span: Span) -> None:
    """Compares what the ranks have. Collective only where pickles differ.

    Args:
        modes, sums: of each rank.
        values, items: of this rank, as `sums_of` takes them.

    Raises:
        ValueError: tensors or values that differ between ranks. Raised on every rank.
    """
    if len(set(modes)) > 1:
        raise InputError(f"ranks pass different check_replicas: {', '.join(modes)}")
    different = _different(sums)
    if not different:
        return
    # Equal values may be pickled in different ways.
    here, error = {}, None
    try:
        here = {name: ["", value_sum(values[name])] for name in different if name in items}
    except Exception as failure:  # the others wait for what this rank says
        error = failure
    pickles = gathered_or_raised(here, error, span)
    are_values = set().union(*pickles)
    different = {name: parts for name, parts in different.items() if name not in are_values} | _different(pickles)
    if different:
        raise InputError(_said(different))


def _different(sums: list[Sums]) -> dict[str, list[list[int]]]:
    """Of the names that ranks have different contents of, the ranks: a list for each content."""
    ranks: dict[tuple[str, str], dict[tuple, list[int]]] = {}
    said = alike(sums)
    for alike_ranks, of_ranks in said if len(said) > 1 else ():
        for name, (part, *content) in of_ranks.items():
            ranks.setdefault((name, part), {}).setdefault(tuple(content), []).extend(alike_ranks)
    different: dict[str, list[list[int]]] = {}
    for (name, _), contents in ranks.items():
        if len(contents) > 1:
            different.setdefault(name, sorted(map(sorted, contents.values())))
    return different


def _part_of(dtensor: DTensor) -> str:
    """Which part of it this rank has: what is replicated has the same on several ranks."""
    spec = spec_of(dtensor)
    coordinate = spec.mesh.get_coordinate() or []
    sharded = [at for at, placement in zip(coordinate, spec.placements) if not placement.is_replicate()]
    return ",".join(map(str, sharded))


def _said(different: dict[str, list[list[int]]]) -> str:
    names = sorted(different)
    shown = "; ".join(f"{name!r}: {_ranks(different[name])}" for name in names[:_MOST_SHOWN])
    more = f"; and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    what = "one value is" if len(names) == 1 else f"{len(names)} values are"
    example = names[0]
    return (
        f"{what} not the same on all ranks that pass {'it' if len(names) == 1 else 'them'}, and only one rank's would be "
        f"saved: {shown}{more}. If each rank has its own, rank_local=[{example!r}] saves one per rank (patterns with * are "
        'taken); if they should be equal, make them so; check_replicas="none" saves what one of the ranks has'
    )


def _ranks(contents: list[list[int]]) -> str:
    if len(contents) > 4:
        return f"{len(contents)} different contents on {sum(map(len, contents))} ranks"
    return " differs from ".join(("rank " if len(ranks) == 1 else "ranks ") + _listed(ranks) for ranks in contents)


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
