"""A small transformer with grouped-query attention and a mixture of experts, as it is trained: every projection and every
expert is a module of its own."""
import torch
from torch.nn import Embedding, Linear, Module, ModuleList, RMSNorm
from torch.nn import functional as F

LAYERS, VOCABULARY, WIDTH, HEADS, GROUPS, HEAD, EXPERTS, HIDDEN, CHOSEN = 2, 64, 32, 4, 2, 8, 4, 48, 2


def attend(q, k, v):
    """Causal attention of [batch, sequence, heads * HEAD] tensors, where each head of k and v serves several heads of q."""
    q, k, v = (x.unflatten(-1, (-1, HEAD)).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


def shares(scores):
    """The weight of each expert for each token: only the best CHOSEN ones count, in proportion."""
    best, which = scores.softmax(-1).topk(CHOSEN, -1)
    return torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))


class Expert(Module):
    def __init__(self):
        super().__init__()
        self.gate = Linear(WIDTH, HIDDEN, bias=False)
        self.up = Linear(WIDTH, HIDDEN, bias=False)
        self.down = Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.expert_norm = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.q = Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k = Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.v = Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.o = Linear(HEADS * HEAD, WIDTH, bias=False)
        self.router = Linear(WIDTH, EXPERTS, bias=False)
        self.experts = ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x):
        y = self.attention_norm(x)
        x = x + self.o(attend(self.q(y), self.k(y), self.v(y)))
        y = self.expert_norm(x)
        share = shares(self.router(y))
        return x + sum(share[..., e, None] * expert(y) for e, expert in enumerate(self.experts))


class Transformer(Module):
    def __init__(self):
        super().__init__()
        self.embedding = Embedding(VOCABULARY, WIDTH)
        self.layers = ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RMSNorm(WIDTH)
        self.head = Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))
