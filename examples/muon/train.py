"""Trains with Muon under FSDP2: the step that needs a whole matrix has it on one rank, and on no other.

    torchrun --nproc-per-node 4 train.py

The same training with every matrix gathered on every rank gives the same weights, bit by bit; both are run.
"""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import reshard

STEPS, LEARNING_RATE, MOMENTUM = 5, 0.02, 0.95


def orthogonal(matrix):
    """The matrix with its singular values near 1: five steps of a Newton-Schulz iteration (Jordan et al., 2024)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def work(shape):
    """The approximate cost of orthogonal()."""
    return max(shape) * min(shape) ** 2


class GatheredMuon:
    """The usual way: every rank gathers every matrix, and does all the work."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.momenta = [torch.zeros_like(p) for p in self.parameters]

    def received_bytes(self):
        ranks = dist.get_world_size()
        return sum(p.numel() * p.element_size() // ranks * (ranks - 1) for p in self.parameters)

    def step(self):
        for parameter, momentum in zip(self.parameters, self.momenta):
            momentum.mul_(MOMENTUM).add_(parameter.grad)
            whole = orthogonal(momentum.full_tensor())
            rows = whole.chunk(dist.get_world_size())[dist.get_rank()]
            parameter.to_local().sub_(rows, alpha=LEARNING_RATE)


class OwnedMuon:
    """Every matrix has an owner. One exchange brings all of them to their owners, another takes the updates back."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        ranks, rank = dist.get_world_size(), dist.get_rank()
        # The most work first, each matrix to the rank that has the least so far.
        load, owner = [0] * ranks, {}
        for i in sorted(range(len(self.parameters)), key=lambda i: -work(self.parameters[i].shape)):
            owner[i] = load.index(min(load))
            load[owner[i]] += work(self.parameters[i].shape)
        self.own = [i for i in range(len(self.parameters)) if owner[i] == rank]
        # A rank holds nothing of a matrix that another rank owns.
        self.whole = [torch.empty(p.shape if i in self.own else 0) for i, p in enumerate(self.parameters)]
        self.updates = [torch.empty_like(p.to_local()) for p in self.parameters]
        sharded = [f"[<dp>{rows}, {columns}]" for rows, columns in (p.shape for p in self.parameters)]
        whole = [f"[{rows}, {columns}]" for rows, columns in (p.shape for p in self.parameters)]
        mesh, owners = f"{{dp:{ranks}}}", [f"{{}}@{owner[i]}" for i in range(len(self.parameters))]
        shards = [m.to_local() for m in self.momenta]
        self.to_owners = reshard.bind(shards, self.whole, mesh, sharded, whole, target_mesh=owners)
        self.back = reshard.bind(self.whole, self.updates, owners, whole, sharded, target_mesh=mesh)

    def received_bytes(self):
        element, ranks = self.updates[0].element_size(), dist.get_world_size()
        arrives = sum(self.parameters[i].numel() // ranks * (ranks - 1) for i in self.own)
        returns = sum(update.numel() for i, update in enumerate(self.updates) if i not in self.own)
        return (arrives + returns) * element

    def step(self):
        for parameter, momentum in zip(self.parameters, self.momenta):
            momentum.mul_(MOMENTUM).add_(parameter.grad)
        self.to_owners.run()
        for i in self.own:
            self.whole[i].copy_(orthogonal(self.whole[i]))
        self.back.run()
        for parameter, update in zip(self.parameters, self.updates):
            parameter.to_local().sub_(update, alpha=LEARNING_RATE)


def train(muon):
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for width in (256, 384, 512, 384)
                            for layer in (nn.LazyLinear(width, bias=False), nn.ReLU())], nn.LazyLinear(256, bias=False))
    model(torch.zeros(1, 256))
    fully_shard(model)
    optimizer = muon(model.parameters())
    torch.manual_seed(1 + dist.get_rank())
    spent = 0.0
    with torch.no_grad():
        batches = [torch.randn(8, 256) for _ in range(STEPS)]
    for batch in batches:
        model.zero_grad()
        (model(batch) - batch).square().mean().backward()
        dist.barrier()
        begin = time.perf_counter()
        with torch.no_grad():
            optimizer.step()
        dist.barrier()
        spent += time.perf_counter() - begin
    weights = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return [w.detach() for w in weights], optimizer.received_bytes(), spent


dist.init_process_group("gloo", device_id=None)
torch.set_num_threads(1)
gathered, gathered_bytes, gathered_seconds = train(GatheredMuon)
owned, owned_bytes, owned_seconds = train(OwnedMuon)
same = all(torch.equal(a, b) for a, b in zip(gathered, owned))
most = torch.tensor([gathered_bytes, owned_bytes])
dist.all_reduce(most, dist.ReduceOp.MAX)
if dist.get_rank() == 0:
    print(f"weights after {STEPS} steps: {'the same' if same else 'DIFFERENT'}")
    print(f"received by the worst rank in a step: {most[0]} bytes gathered everywhere, {most[1]} to owners and back")
    print(f"time of the steps: {gathered_seconds / owned_seconds:.1f}x as long with everything gathered everywhere")
assert same
dist.destroy_process_group()
