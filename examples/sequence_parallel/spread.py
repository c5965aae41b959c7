"""Spreads sequences over the ranks of a group in zigzag order, and exchanges around attention, by means of layouts."""

import torch

import reshard.torch


class Zigzag:
    """Rank r of P holds chunks r and 2P-1-r of 2P, the order in which loaders for causal context parallelism distribute
    tokens, because all ranks then attend to the same number of pairs.

    Attention needs all tokens, in order, of some heads. One exchange converts between the two; putting the chunks back
    in order is part of the layout, and costs nothing extra. The gradients are moved in the reverse direction.
    """

    def __init__(self, group, ranks: int, batch: int, sequence: int, heads: int, head_width: int) -> None:
        self.mesh = f"{{cp:{ranks}}}"
        self.group = group.group_name
        self.whole = f"[{batch}, {sequence}]"
        self.dealt = f"[{batch}, <2,~cp>{sequence}]"
        self.by_tokens = f"[{batch}, <2,~cp>{sequence}, {heads}, {head_width}]"
        self.by_heads = f"[{batch}, {sequence}, <cp>{heads}, {head_width}]"

    def deal(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's tokens of a [batch, sequence] tensor that every rank has. Does not communicate."""
        return torch.ops.reshard.redistribute(tensor, self.mesh, self.whole, self.dealt, self.group)

    def heads(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Some tokens of all heads -> all tokens of some heads; queries, keys and values share one exchange."""
        count = len(tensors)
        return torch.ops.reshard.redistribute_batch(
            tensors, self.mesh, [self.by_tokens] * count, [self.by_heads] * count, self.group
        )

    def tokens(self, tensor: torch.Tensor) -> torch.Tensor:
        """All tokens of some heads -> some tokens of all heads."""
        return torch.ops.reshard.redistribute(tensor, self.mesh, self.by_heads, self.by_tokens, self.group)


def sum_gradients(parameters: list[torch.nn.Parameter], group) -> None:
    """Sums the gradients of all ranks, which have all parameters and some tokens, in one flat buffer."""
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    total = reshard.all_reduce(flat, "sum", group)
    for parameter, gradient in zip(parameters, total.split([parameter.numel() for parameter in parameters])):
        parameter.grad.copy_(gradient.view_as(parameter))
