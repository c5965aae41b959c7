"""Pads sequences to a length that the number of ranks divides, and removes the padding again. Nothing here
communicates."""

import torch


def compute_padding_for_sp(seq_len: int, sp_world_size: int) -> tuple[int, int]:
    """Returns (padded length, length of the padding) for a sequence to be split evenly over sp_world_size ranks.

    Raises:
        ValueError: a negative length, or no ranks.
    """
    if seq_len < 0 or sp_world_size < 1:
        raise ValueError(f"a length of at least 0 and at least 1 rank are needed, not {seq_len} and {sp_world_size}")
    padding = -seq_len % sp_world_size
    return seq_len + padding, padding


def pad_sequence_tensor(
    tensor: torch.Tensor, target_seq_len: int, seq_dim: int = 1, pad_value: float = 0.0
) -> torch.Tensor:
    """Returns `tensor` with pad_value appended along seq_dim up to a length of target_seq_len.

    Returns the tensor itself, not a copy, if it is already that long or longer.
    """
    missing = target_seq_len - tensor.size(seq_dim)
    if missing <= 0:
        return tensor
    shape = list(tensor.shape)
    shape[seq_dim] = missing
    return torch.cat([tensor, tensor.new_full(shape, pad_value)], dim=seq_dim)


def unpad_sequence_tensor(tensor: torch.Tensor, original_seq_len: int, seq_dim: int = 1) -> torch.Tensor:
    """The first original_seq_len elements along seq_dim: a view, not a copy. A shorter tensor is returned whole."""
    return tensor.narrow(seq_dim, 0, min(original_seq_len, tensor.size(seq_dim)))
