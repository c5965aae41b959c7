"""all_to_all_v: exchanges chunks of flat buffers, whose sizes each rank gives in a small table."""

import torch

from .groups import Group, group_name


def all_to_all_v(
    src: torch.Tensor,
    dst: torch.Tensor,
    metadata: torch.Tensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    group: Group = None,
) -> None:
    """Sends chunks of `src`, one to each rank, into `dst` on that rank.

    Both are treated as flat buffers; counts and displacements are in elements. metadata is a contiguous int64 or uint32
    tensor of shape [3, G] or [4, G] for G ranks; column j is about rank j of the group:

        row 0  how many elements go to rank j
        row 1  where in src they start; chunks may overlap
        row 2  how many come from rank j: not read, and set by this call unless recv_counts_known
        row 3  where in dst they go, with has_rdispls; without it they go to the j-th of G equal slots of dst

    Writes dst (nothing outside the received chunks) and row 2 of metadata. Not differentiable.

    Raises:
        ValueError: a chunk does not fit src, dst or its slot, two received chunks overlap, or the metadata has another
            shape or dtype. The other ranks get a torch.distributed.DistBackendError that names this one; the group
            stays usable.
    """
    torch.ops.reshard.all_to_all_v(src, dst, metadata, recv_counts_known, has_rdispls, group_name(group))


def build_all_to_all_v_metadata(
    expert_index: torch.Tensor, num_ranks: int, num_experts: int, has_rdispls: bool = False
) -> torch.Tensor:
    """Returns the metadata that sends tokens, sorted by expert, to the ranks that hold the experts.

    Args:
        expert_index: integers of shape [T, K], the experts of each token; rank j holds experts
            [j * num_experts / num_ranks, (j + 1) * num_experts / num_ranks).

    Returns:
        int64 of shape [3, num_ranks], or [4, num_ranks] with has_rdispls: rows 0 and 1 are filled in, the others 0.

    Raises:
        ValueError: num_experts is not a multiple of num_ranks, or an expert is out of range.
    """
    if num_ranks < 1 or num_experts < 1 or num_experts % num_ranks != 0:
        raise ValueError(f"{num_experts} experts cannot be dealt evenly to {num_ranks} ranks")
    experts = expert_index.reshape(-1)
    if experts.numel() and not (0 <= int(experts.min()) and int(experts.max()) < num_experts):
        raise ValueError(f"an expert is out of range: experts are 0 to {num_experts - 1}")
    ranks = torch.div(experts.long(), num_experts // num_ranks, rounding_mode="floor")
    metadata = torch.zeros(4 if has_rdispls else 3, num_ranks, dtype=torch.int64, device=expert_index.device)
    metadata[0] = torch.bincount(ranks, minlength=num_ranks)
    metadata[1, 1:] = metadata[0].cumsum(0)[:-1]
    return metadata
