"""Cuts tensors into pieces, so that staging them in other memory needs little of it."""

from collections.abc import Iterator

import torch

PIECE_BYTES = 32 << 20


def pieces_of(tensor: torch.Tensor, most: int) -> Iterator[tuple[list[int], torch.Tensor]]:
    """The tensor cut into views of at most `most` elements, with the offset of each; one index at least."""
    if tensor.numel() <= most or tensor.dim() == 0:
        yield [0] * tensor.dim(), tensor
        return
    dim = next(d for d, size in enumerate(tensor.size()) if size > 1)
    step = max(1, most * tensor.size(dim) // tensor.numel())
    for begin in range(0, tensor.size(dim), step):
        part = tensor.narrow(dim, begin, min(step, tensor.size(dim) - begin))
        for at, piece in pieces_of(part, most):
            at[dim] += begin
            yield at, piece
