"""Fingerprints of what tensors contain, in a job's memory or in a checkpoint: the same for every mesh, layout, format
and order."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Union, overload

from .checkpoints import DTypes, Path, Progress, stored_fingerprints, terms_of
from .errors import InputError
from .sources.interface import Source
from .sources.places import at_place
from .stubs import Stub

if TYPE_CHECKING:
    import torch

    from .torch.groups import Group

    Contents = Union[torch.nn.Module, Mapping[str, Any], Sequence[torch.Tensor], Path]

__all__ = ["fingerprint"]

_HALF = (1 << 64) - 1


@overload
def fingerprint(
    contents: "Contents", group: "Group" = None, *, per_tensor: Literal[False] = False, **of_path: Any
) -> str: ...
@overload
def fingerprint(
    contents: "Contents", group: "Group" = None, *, per_tensor: Literal[True], **of_path: Any
) -> dict[str, str]: ...
def fingerprint(
    contents: "Contents",
    group: "Group" = None,
    *,
    per_tensor: bool = False,
    recipe: Mapping[str, Any] | Path | None = None,
    invert: bool = False,
    dtype: DTypes | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    weights_only: bool = False,
    strip_prefix: str = "",
    rename: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    add_prefix: str = "",
    allow_unmatched: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> str | dict[str, str]:
    """128 bits that tell whether two models have the same contents: on any ranks, in any layouts, in memory or in a
    checkpoint of any format.

        reshard.fingerprint(trainer_model) == reshard.fingerprint(rollout_model)      # each in its own job
        reshard.fingerprint({"model": model}) == reshard.fingerprint("step-1000", include=["model.*"])

    Depends on the name, dtype and global shape of every tensor and on the bits of every element, and on nothing else:
    not on meshes, placements, shard orders, the number of ranks, formats, or the order of tensors. No data is gathered:
    every rank reads its own fragments, or its part of the checkpoint, once, about as fast as memory or the disk allows,
    and 16 bytes per tensor are added up. Only the first replica is read: the result does not tell whether the others
    equal it.

    It guards against mistakes and flipped bits, not against an adversary who chooses the contents. A change within 4
    bytes is always found; of other changes, all but one in 2^50 or so (docs/design/fingerprint.md).

    Collective, if there is a process group: every rank of the group calls it, also for a checkpoint, of which each rank
        reads a part. Ranks may pass different tensors, such as those of their pipeline stages, but all pass the same
        checkpoint. Tensors on GPUs are copied to the host, one at a time. A checkpoint needs no PyTorch.

    Args:
        contents: a model, a state dict (nested as in torch.distributed.checkpoint) or a list, of DTensors and plain
            tensors; or a checkpoint: a directory, a file, a URL or a Source. A plain tensor is replicated over the ranks
            that pass it. What is not a tensor does not count.
        group: a process group that contains all meshes; None means the default group.
        per_tensor: return the fingerprint of each tensor by its name, in the order of names. The fingerprint of
            all is their sum, each half modulo 2^64.
        recipe, invert, dtype, include, exclude, weights_only, strip_prefix, rename, add_prefix, allow_unmatched: of a
            checkpoint, as for convert(): which of its tensors count, under which names, and what is made of them first.
        threads: of a checkpoint: 0 is one per core.
        progress: of a checkpoint: called with (bytes done, bytes to do, seconds) of what this rank reads; an exception
            from it ends the run.

    Returns:
        32 hexadecimal digits, the same on every rank.

    Raises:
        ValueError: a partial tensor, a placement that no layout can express, ranks that pass different things under one
            name, arguments of checkpoints with tensors.
        InputError, FileError: as convert(), for a path that is not a checkpoint, or a damaged one.
        RuntimeError: another rank failed, is gone or disagrees.
    """
    terms = terms_of(recipe, invert, dtype, include, exclude, weights_only, True, strip_prefix, rename, add_prefix)
    terms["allow_unmatched"] = allow_unmatched
    if isinstance(contents, (str, os.PathLike, Source)):
        with at_place(contents) as path:
            if group is not None or _has_process_group():
                found = _on_ranks().fingerprints_of_checkpoint(path, terms, threads, progress, group)
            else:
                found = stored_fingerprints(path, terms, 0, 1, threads, progress).by_name
    else:
        if terms != terms_of(None, False, None, (), (), False, True, "", (), "") or threads or progress:
            raise InputError(
                "of a fingerprint of tensors nothing but group and per_tensor can be chosen: pass other tensors, or names"
            )
        found = _on_ranks().fingerprints_of_tensors(contents, group)
    if per_tensor:
        return {name: _text(low, high) for name, (low, high) in found.items()}
    return _text(sum(low for low, _ in found.values()), sum(high for _, high in found.values()))


def _on_ranks() -> ModuleType:
    try:
        from .torch import fingerprints
    except ImportError as error:
        return Stub("fingerprint of tensors", error)()
    return fingerprints


def _has_process_group() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()


def _text(low: int, high: int) -> str:
    return f"{high & _HALF:016x}{low & _HALF:016x}"
