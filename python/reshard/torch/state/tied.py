"""Tensors of one state dict that share memory: tied weights, and views of each other."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def forms_of(locals_: Sequence[torch.Tensor]) -> list[int]:
    """Of each tensor, the index of the first that is the same memory in the same form, which is its own where there is
    no other; -1 without elements.
    """
    first: dict[tuple, int] = {}
    return [
        first.setdefault((local.device, local.data_ptr(), local.dtype, local.shape, local.stride()), index)
        if _has_memory(local)
        else -1
        for index, local in enumerate(locals_)
    ]


def stand_ins(passed: list[tuple[list[str], list[int]]], specs: dict[str, Any], there: set[str]) -> dict[str, str]:
    """Of each name that the checkpoint lacks, one that it has, if both are the same memory in the same form and of the
    same spec on every rank that passes elements of it.

    Args:
        passed: of each rank, its names and what `forms_of` says of them.
        specs: of each name, what all ranks together have of it.
        there: the names in the checkpoint.
    """
    found: dict[str, set[str]] = {}
    for names, forms in passed:
        missing = [(name, form) for name, form in zip(names, forms) if name not in there and form >= 0]
        same: dict[int, list[str]] = {form: [] for _, form in missing}
        for name, form in zip(names, forms) if missing else ():
            if form in same and name in there:
                same[form].append(name)
        for name, form in missing:
            here = {other for other in same[form] if specs[other] == specs[name]}
            found[name] = found[name] & here if name in found else here
    return {name: min(others) for name, others in found.items() if others}


def clusters_of(locals_: Sequence[torch.Tensor]) -> list[list[int]]:
    """Indices of tensors whose address ranges meet, directly or through others; only lists of several."""
    spans = sorted((*_span(local), index) for index, local in enumerate(locals_) if _has_memory(local))
    clusters: list[list[int]] = []
    end = None
    for device, first, last, index in spans:
        if end is None or end[0] != device or first >= end[1]:
            clusters.append([])
            end = (device, last)
        clusters[-1].append(index)
        end = (device, max(end[1], last))
    return [sorted(cluster) for cluster in clusters if len(cluster) > 1]


def together(names: Sequence[str], clusters: list[list[str]]) -> list[list[str]]:
    """The names in their order, in lists: those of one cluster on any rank are in one."""
    leader = {name: name for name in names}

    def root(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for cluster in clusters:
        for name in cluster[1:]:
            leader[root(name)] = root(cluster[0])
    lists: dict[str, list[str]] = {}
    for name in names:
        lists.setdefault(root(name), []).append(name)
    return list(lists.values())


def staged(locals_: Sequence[torch.Tensor], is_staged: Callable[[torch.Tensor], bool]) -> list[torch.Tensor]:
    """The tensors in host memory: those that are not staged themselves, others new memory of the same form, which
    tensors that share memory share there, too. What is in it is not copied.
    """
    host = [torch.empty_like(local, device="cpu") if is_staged(local) else local for local in locals_]
    indices = [index for index, local in enumerate(locals_) if is_staged(local)]
    for cluster in clusters_of([locals_[index] for index in indices]):
        members = [indices[k] for k in cluster]
        spans = [_span(locals_[index]) for index in members]
        begin = min(first for _, first, _ in spans) // 16 * 16  # keeps what addresses are aligned to
        memory = torch.empty(max(last for _, _, last in spans) - begin, dtype=torch.uint8).untyped_storage()
        for index, (_, first, _) in zip(members, spans):
            local = locals_[index]
            view = torch.empty(0, dtype=local.dtype)
            host[index] = view.set_(memory, (first - begin) // local.itemsize, local.shape, local.stride())
    return host


def _has_memory(local: torch.Tensor) -> bool:
    return local.layout == torch.strided and local.numel() > 0


def _span(local: torch.Tensor) -> tuple[str, int, int]:
    """The device, and the addresses that a tensor with elements spans."""
    reach = sum((size - 1) * stride for size, stride in zip(local.shape, local.stride()))
    return str(local.device), local.data_ptr(), local.data_ptr() + (reach + 1) * local.itemsize
