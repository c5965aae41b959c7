#!/usr/bin/env python3
"""A model under FSDP2 and tensor parallelism, trained as PyTorch has it and after reshard.install(): the same losses,
norms of gradients and weights, with the plans that are cheaper, and with all that there are."""

import logging
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from checks import ChecksTest, main

WORDS, WIDTH = 20, 16
HIDDEN = 30  # 15 for each rank of tensor parallelism, which FSDP does not divide


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.first, self.second = nn.Embedding(WORDS, WIDTH), Block(), Block()
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.out(self.second(self.first(self.words(x))))


def parallel(net, mesh):
    """A sequence in shards between the blocks, as in torchtitan."""
    rows = {"output_layouts": Shard(1), "use_local_output": False}
    plan = {
        "words": RowwiseParallel(input_layouts=Replicate(), **rows),
        "out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    for block in ("first", "second"):
        plan[f"{block}.norm"] = SequenceParallel()
        plan[f"{block}.up"] = ColwiseParallel(input_layouts=Shard(1))
        plan[f"{block}.down"] = RowwiseParallel(**rows)
    parallelize_module(net, mesh["tp"], plan)
    for block in (net.first, net.second, net):
        fully_shard(block, mesh=mesh["dp"])
    return net


def trained(mesh):
    """Loss and norm of the gradients at each step, and the weights at the end."""
    torch.manual_seed(0)
    net = parallel(Net(), mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    torch.manual_seed(1 + mesh.get_local_rank("dp"))
    steps = []
    for _ in range(3):
        words = torch.randint(WORDS, (2, 8))
        loss = F.cross_entropy(net(words).flatten(0, 1), words.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        steps += [loss.detach(), norm.full_tensor().detach() if isinstance(norm, DTensor) else norm]
        optimizer.step()
        optimizer.zero_grad()
    return [*steps, *(weight.full_tensor().detach() for weight in net.parameters())]


def check_training(c):
    import reshard
    from reshard.torch import inside_dtensor

    warnings.simplefilter("ignore")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    own = trained(mesh)
    for what in ("cheaper plans", "all plans"):
        reshard.install()
        ours = c.run(what, lambda: trained(mesh))
        reshard.uninstall()
        for got, wanted in zip(ours, own):
            same = got.shape == wanted.shape and torch.allclose(got, wanted, rtol=1e-4, atol=1e-5)
            c.true(what, same, f"{got} instead of {wanted}")
        inside_dtensor._ways.clear()
        inside_dtensor.own_way = lambda *_: None  # as if DTensor had no way


class DTensorTrainingTest(ChecksTest):
    def test_training(self):
        self.on_ranks(4, [check_training], timeout=100)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main("dtensor_training")
