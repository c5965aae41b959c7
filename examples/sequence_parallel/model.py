"""A small causal transformer over bytes. It does not depend on how its sequence is sharded: `spread` exchanges what
attention needs."""

import torch
from torch import nn
from torch.nn import functional


class Whole:
    """The sequence is on one rank: there is nothing to exchange."""

    def heads(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return tensors

    def tokens(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, spread) -> torch.Tensor:
        # Only the attention in the middle mixes tokens. [batch, tokens here, heads, width of a head]
        qkv = [t.unflatten(-1, (self.heads, -1)) for t in self.qkv(x).chunk(3, dim=-1)]
        q, k, v = (t.transpose(1, 2) for t in spread.heads(qkv))  # some heads of all tokens, in their order
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(spread.tokens(attended.transpose(1, 2).contiguous()).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.RMSNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, spread) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), spread)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self, sequence: int, width: int = 64, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.tokens = nn.Embedding(256, width)
        self.positions = nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.RMSNorm(width)
        self.logits = nn.Linear(width, 256, bias=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, spread=Whole()) -> torch.Tensor:
        """tokens [batch, tokens here] and, for each of them, its position in the sequence -> logits."""
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x, spread)
        return self.logits(self.norm(x))
