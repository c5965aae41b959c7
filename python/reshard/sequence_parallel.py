"""The collectives of sequence and tensor parallelism, over a process group, its name, or a mesh of one dimension.

P is the size of the group, r this rank in it. Every function is a collective: all ranks of the group call it, in the
same order. Results are fresh contiguous tensors and never alias an argument, also where P is 1. Wrong arguments raise
on every rank, and the group stays usable; when a rank is lost, the others get a RuntimeError that names it.
"""

import torch
import torch.distributed as dist

from .groups import Group, group_name

_warm: set[str] = set()


def all_to_all_single(
    x: torch.Tensor, type: str, with_zigzag_splitting: bool = False, group: Group = None
) -> torch.Tensor:
    """Between "the sequence is split" and "the channels are split" over the group.

    type "split_to_full":  [B, P*d, l, ...] -> [B, d, P*l, ...]
    type "full_to_split":  [B, d, L, ...] -> [B, P*d, L/P, ...]

    With zigzag splitting the sequence is 2P chunks, and rank r holds chunks r and 2P-1-r: the order that balances
    causal attention. The two types undo each other, and each is the other's gradient.

    Raises:
        ValueError: unknown type, not 3 to 5 dimensions, P does not divide the channels, P (zigzag: 2P) not the
            sequence.
    """
    return torch.ops.reshard.all_to_all_single(x, group_name(group), type, with_zigzag_splitting)


def all_to_all_4d(x: torch.Tensor, scatter_dim: int = 2, gather_dim: int = 1, group: Group = None) -> torch.Tensor:
    """Cuts scatter_dim over the group and puts gather_dim together: Ulysses' exchange around attention.

    (2, 1): [B, s, P*h, e] -> [B, P*s, h, e], whole sequences of some heads; (1, 2) is the way back and its gradient.

    Raises:
        RuntimeError: not 4 dimensions, the same dimension twice, P does not divide scatter_dim.
    """
    return torch.ops.reshard.all_to_all_4d(x, scatter_dim, gather_dim, group_name(group))


def all_gather(x: torch.Tensor, dim: int = -1, group: Group = None) -> torch.Tensor:
    """All ranks' tensors, of equal shapes, one after the other along dim. The gradient is summed over the ranks and
    scattered."""
    return torch.ops.reshard.all_gather(x, dim, group_name(group))


def all_gather_with_unpad(x: torch.Tensor, original_seq_len: int, dim: int = -1, group: Group = None) -> torch.Tensor:
    """all_gather, then at most original_seq_len elements along dim: what `shard` padded comes off again."""
    return torch.ops.reshard.all_gather_with_unpad(x, original_seq_len, dim, group_name(group))


def shard(x: torch.Tensor, dim: int = 1, group: Group = None) -> tuple[torch.Tensor, int]:
    """This rank's part of a replicated tensor along dim, zeros appended so that all parts are equally long, and the
    length before that. Nothing travels forward; the gradient is gathered and divided by P."""
    return torch.ops.reshard.shard(x, dim, group_name(group))


def gather(x: torch.Tensor, dst: int = 0, dim: int = -1, group: Group = None) -> torch.Tensor | None:
    """All ranks' tensors one after the other along dim on rank dst of the group; None on the others. The gradient is
    scattered from dst, so backward runs there and on the others alike."""
    return torch.ops.reshard.gather(x, dst, dim, group_name(group))


def all_reduce(x: torch.Tensor, op: str = "sum", group: Group = None) -> torch.Tensor:
    """The reduction of all ranks' tensors, on every rank; op is "sum", "avg", "min", "max" or "prod".
    Differentiable for sum and avg, where the gradient is reduced the same way."""
    return torch.ops.reshard.all_reduce(x, op, group_name(group))


def exchange_overlapping_regions(
    data: torch.Tensor, width: int, group: Group = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The halo exchange of sequences in zigzag order.

    data is this rank's two chunks, one after the other along the last dimension; a and b are the last `width` elements
    of each. Returns a of rank r-1 (zeros on rank 0) and b of rank r+1 (on the last rank its own a).
    """
    return torch.ops.reshard.exchange_overlapping_regions(data, width, group_name(group))


def warmup(device: torch.device | str | None = None, group: Group = None) -> None:
    """Runs each exchange of sequence parallelism once on tiny tensors, so that the first step of a program does not pay
    for making connections. Once a group: later calls do nothing, as do calls before groups exist."""
    if group is None and not dist.is_initialized():
        return
    name = group_name(group)
    if name in _warm:
        return
    ranks = dist.distributed_c10d._resolve_process_group(name).size()
    if ranks > 1:
        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.bfloat16, device=device)

        all_to_all_4d(zeros(1, 16, 4 * ranks, 64), 2, 1, name)
        all_to_all_4d(zeros(1, 16 * ranks, 4, 64), 1, 2, name)
        all_gather(zeros(1, 8, 4, 64), 2, name)
        if torch.device(device or "cpu").type == "cuda":
            torch.cuda.synchronize(device)
    _warm.add(name)
