"""The collectives of sequence and tensor parallelism, over a process group, its name, or a one-dimensional mesh.

P is the size of the group, r this rank in it. Every function is collective: all ranks of the group call it, in the same
order. Results are new contiguous tensors that never alias an argument, even if P is 1. Invalid arguments raise on every
rank, and the group stays usable; if a rank is lost, the others get a RuntimeError that names it.
"""

import weakref

import torch
import torch.distributed as dist

from .groups import Group, group_name
from .private_pytorch import resolve_group

# Pairs, since a ReduceOp equals what it was made of and has another hash.
_OPS = (
    (dist.ReduceOp.SUM, "sum"),
    (dist.ReduceOp.AVG, "avg"),
    (dist.ReduceOp.MIN, "min"),
    (dist.ReduceOp.MAX, "max"),
    (dist.ReduceOp.PRODUCT, "prod"),
)

# By the group itself: another group may get its name later.
_warm: weakref.WeakKeyDictionary[dist.ProcessGroup, set[torch.device]] = weakref.WeakKeyDictionary()


def all_to_all_single(
    x: torch.Tensor, type: str, with_zigzag_splitting: bool = False, group: Group = None
) -> torch.Tensor:
    """Converts between a split sequence and split channels over the group.

    type "split_to_full":  [B, P*d, l, ...] -> [B, d, P*l, ...]
    type "full_to_split":  [B, d, L, ...] -> [B, P*d, L/P, ...]

    With zigzag splitting the sequence has 2P chunks, and rank r holds chunks r and 2P-1-r, the order that balances
    causal attention. The two types are inverse to each other, and each is the other's gradient.

    Raises:
        ValueError: unknown type, not 3 to 5 dimensions, P does not divide the channels, or P (zigzag: 2P) does not
            divide the sequence.
    """
    return torch.ops.reshard.all_to_all_single(x, group_name(group), type, with_zigzag_splitting)


def all_to_all_4d(
    x: torch.Tensor,
    scatter_dim: int = 2,
    gather_dim: int = 1,
    group: Group = None,
    *,
    gather_size: int | None = None,
) -> torch.Tensor:
    """Splits scatter_dim over the group and gathers gather_dim: Ulysses' exchange around attention.

    (2, 1): [B, s, P*h, e] -> [B, P*s, h, e], whole sequences of some heads; (1, 2) is its inverse and its gradient.
    Where P does not divide the n elements of scatter_dim, rank r gets the r-th chunk of ceil(n / P): 7 heads over 4
    ranks are 2, 2, 2 and 1. The inverse call is then given their number:

        q = reshard.all_to_all_4d(q, 2, 1)                                # heads [B, s, 7, e] -> [B, P*s, 2 or 1, e]
        out = reshard.all_to_all_4d(attention(q), 1, 2, gather_size=7)    # and back

    Args:
        gather_size: the size of gather_dim over all ranks, each of which passes its chunk; None: all pass equally much.

    Raises:
        ValueError: not 4 dimensions; a tensor that is not this rank's chunk of gather_size.
        RuntimeError: the same dimension twice; ranks that pass different sizes without gather_size.
    """
    return torch.ops.reshard.all_to_all_4d(x, scatter_dim, gather_dim, group_name(group), gather_size)


def all_gather(x: torch.Tensor, dim: int = -1, group: Group = None) -> torch.Tensor:
    """The concatenation along dim of all ranks' tensors, which have equal shapes. The gradient is summed over the ranks
    and scattered."""
    return torch.ops.reshard.all_gather(x, dim, group_name(group))


def all_gather_with_unpad(x: torch.Tensor, original_seq_len: int, dim: int = -1, group: Group = None) -> torch.Tensor:
    """all_gather, truncated to original_seq_len elements along dim, which removes the padding that `shard` added."""
    return torch.ops.reshard.all_gather_with_unpad(x, original_seq_len, dim, group_name(group))


def shard(x: torch.Tensor, dim: int = 1, group: Group = None) -> tuple[torch.Tensor, int]:
    """This rank's part of a replicated tensor along dim, after padding with zeros so that all parts are equally long,
    and the length before padding. The forward pass does not communicate; the gradient is gathered and divided by P."""
    return torch.ops.reshard.shard(x, dim, group_name(group))


def gather(x: torch.Tensor, dst: int = 0, dim: int = -1, group: Group = None) -> torch.Tensor | None:
    """The concatenation along dim of all ranks' tensors, on rank dst of the group; None on the others. The gradient is
    scattered from dst, so backward must run there and on the others alike."""
    return torch.ops.reshard.gather(x, dst, dim, group_name(group))


def all_reduce(
    x: torch.Tensor, op: str | dist.ReduceOp | dist.ReduceOp.RedOpType = "sum", group: Group = None
) -> torch.Tensor:
    """The elementwise reduction of all ranks' tensors, on every rank; op is "sum", "avg", "min", "max" or "prod", or
    the torch.distributed.ReduceOp of that name. Differentiable for sum and avg, whose gradients are reduced in the same
    way.

    Raises:
        ValueError: another op.
    """
    if not isinstance(op, str):
        name = next((name for known, name in _OPS if op == known), None)
        if name is None:
            raise ValueError(f"{op} is not one of {', '.join(name for _, name in _OPS)}")
        op = name
    return torch.ops.reshard.all_reduce(x, op, group_name(group))


def exchange_overlapping_regions(
    data: torch.Tensor, width: int, group: Group = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The halo exchange of sequences in zigzag order.

    `data` holds this rank's two chunks, one after the other along the last dimension; let a and b be the last `width`
    elements of each. Returns a of rank r-1 (zeros on rank 0) and b of rank r+1 (on the last rank its own a).
    """
    return torch.ops.reshard.exchange_overlapping_regions(data, width, group_name(group))


def warmup(device: torch.device | str | None = None, group: Group = None) -> None:
    """Runs each exchange of sequence parallelism once on tiny tensors, so that the first step of a program does not pay
    for setting up connections. Does this once per group and device: later calls do nothing, as do calls before groups exist."""
    if group is None and not dist.is_initialized():
        return
    name = group_name(group)
    process_group = resolve_group(name)
    device = torch.empty(0, device=device).device  # "cuda" is the current one
    warm = _warm.setdefault(process_group, set())
    if device in warm:
        return
    ranks = process_group.size()
    if ranks > 1:
        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.bfloat16, device=device)

        all_to_all_4d(zeros(1, 16, 4 * ranks, 64), 2, 1, name)
        all_to_all_4d(zeros(1, 16 * ranks, 4, 64), 1, 2, name)
        all_gather(zeros(1, 8, 4, 64), 2, name)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    warm.add(device)
