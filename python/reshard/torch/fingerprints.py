"""Fingerprints of what tensors contain, the same for every mesh, layout and order."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import torch

from .entries import Entry, agreed, dtype_of, entries_of, gathered_or_raised
from .groups import Group, span_of_group
from .private_pytorch import flatten_state_dict

Contents = torch.nn.Module | Mapping[str, Any] | Sequence[torch.Tensor]


@overload
def fingerprint(tensors: Contents, group: Group = None, *, per_tensor: Literal[False] = False) -> str: ...
@overload
def fingerprint(tensors: Contents, group: Group = None, *, per_tensor: Literal[True]) -> dict[str, str]: ...
def fingerprint(tensors: Contents, group: Group = None, *, per_tensor: bool = False) -> str | dict[str, str]:
    """128 bits that tell whether two models, on whatever ranks and in whatever layouts, have the same contents.

        reshard.fingerprint(trainer_model) == reshard.fingerprint(rollout_model)      # each in its own job

    Depends on the name, dtype and global shape of every tensor and on the bits of every element, and on nothing else:
    not on meshes, placements, shard orders, the number of ranks, or the order of tensors. No data is gathered: every
    rank reads its own fragments once, about as fast as memory allows, and 16 bytes per tensor are added up. Of replicas
    the first is read: it does not tell whether the others equal it.

    It is evidence against mistakes and flipped bits, not against somebody who chooses the contents. A change within 4
    bytes is always found, others but for one in 2^50 or so (docs/design/fingerprint.md).

    Collective: every rank of the group calls it. Ranks may pass different names, such as those of their pipeline
        stages. Tensors on GPUs are copied to the host, one at a time.

    Args:
        tensors: a model, a state dict (nested as in torch.distributed.checkpoint) or a list, of DTensors and plain
            tensors. A plain tensor is replicated over the ranks that pass it. Other values do not count.
        group: a process group that contains all meshes; None means the default group.
        per_tensor: return the fingerprint of each tensor by its name, in the order of names. That of all is their sum,
            of either half modulo 2^64.

    Returns:
        32 hexadecimal digits, the same on every rank.

    Raises:
        ValueError: a partial tensor, a placement that no layout can express, or ranks that pass different things under
            one name.
        RuntimeError: another rank failed, is gone or disagrees.
    """
    span = span_of_group(group)
    own: dict[str, Entry] = {}
    error = None
    try:
        own = entries_of(_flat(tensors), span)
    except Exception as failure:  # the others wait for what this rank says
        error = failure
    described = gathered_or_raised([entry.described for entry in own.values()], error, span)
    entries = agreed(described)
    if not entries:
        return {} if per_tensor else _text(0, 0)
    names = [entry[0] for entry in entries]
    locals_ = [
        own[name].local if name in own else torch.empty([0], dtype=dtype_of(dtype)) for name, _, _, dtype, _ in entries
    ]
    sums = torch.ops.reshard._fingerprints(
        locals_, names, [entry[1] for entry in entries], [entry[2] for entry in entries], span.name
    ).tolist()
    if per_tensor:
        return {name: _text(low, high) for name, (low, high) in zip(names, sums)}
    return _text(sum(low for low, _ in sums), sum(high for _, high in sums))


def _flat(tensors: Contents) -> dict[str, Any]:
    if isinstance(tensors, torch.nn.Module):
        tensors = tensors.state_dict(keep_vars=True)  # detached, they would lose their shard orders
    if isinstance(tensors, Mapping):
        return flatten_state_dict(dict(tensors))[0]
    return {str(index): tensor for index, tensor in enumerate(tensors)}


def _text(low: int, high: int) -> str:
    return f"{high % (1 << 64):016x}{low % (1 << 64):016x}"
