#!/usr/bin/env python3
"""Batches that are bound once and run many times, on Gloo ranks: contents, strides, storages that move, refusals."""

import numpy as np
import torch

import gloo
from checks import ChecksTest, main
from reference import Layout, Mesh

OPS = torch.ops.reshard
WORLD = 4
MESH = "{X:2,Y:2}"
PAIRS = [
    ("[<X,Y>8, 6]", "[<Y,X>8, 6]"),
    ("[<X>7, 5]", "[7, <Y>5]"),
    ("[<X,Y>3]", "[3]"),
    ("[6, 4]", "[<Y>6, <X>4]"),
    ("[8, 3] sum<X>", "[<X>8, 3]"),
    ("[<2,~X>16]", "[<X>16]"),
    ("[]", "[]"),
]


def filled(text, device, seed):
    """The fragment of a tensor whose element number i has the value i + seed (times 2 where two devices add up)."""
    layout = Layout(text, Mesh(MESH))
    flat = torch.arange(int(np.prod(layout.shape, dtype=int)), dtype=torch.float32) + seed
    indices = layout.indices(device)
    tensor = flat.reshape(layout.shape)
    for dim, wanted in enumerate(indices):
        tensor = tensor.index_select(dim, torch.as_tensor(wanted, dtype=torch.int64))
    return tensor.contiguous()


def wanted(source, target, device, seed):
    return filled(target, device, seed) * (2 if "sum" in source else 1)


def bind(c, **changes):
    import reshard

    tensors = [filled(source, c.rank, 0) for source, _ in PAIRS]
    outs = [torch.full_like(filled(target, c.rank, 0), -1) for _, target in PAIRS]
    arguments = {
        "tensors": tensors,
        "outs": outs,
        "mesh": MESH,
        "sources": [source for source, _ in PAIRS],
        "targets": [target for _, target in PAIRS],
    } | changes
    return arguments["tensors"], arguments["outs"], c.run("bind", lambda: reshard.bind(**arguments))


def check_contents(c):
    tensors, outs, batch = bind(c)
    for seed in (0, 100, 7):
        for tensor, (source, _) in zip(tensors, PAIRS):
            tensor.copy_(filled(source, c.rank, seed))
        c.run("run", batch.run)
        for out, (source, target) in zip(outs, PAIRS):
            c.equal(f"{source} -> {target}, seed {seed}", out, wanted(source, target, c.rank, seed))


def check_strides(c):
    tensors = [filled(source, c.rank, 3).t().contiguous().t() for source, _ in PAIRS[:2]]
    places = [torch.full((*filled(target, c.rank, 0).shape, 2), -1.0) for _, target in PAIRS[:2]]
    _, _, batch = bind(
        c,
        tensors=tensors,
        outs=[place[..., 1] for place in places],
        sources=[source for source, _ in PAIRS[:2]],
        targets=[target for _, target in PAIRS[:2]],
    )
    c.run("run", batch.run)
    for place, (source, target) in zip(places, PAIRS):
        c.equal(f"strided {source} -> {target}", place[..., 1].contiguous(), wanted(source, target, c.rank, 3))
        c.true(f"untouched beside {target}", bool((place[..., 0] == -1).all()))


def check_storages_move(c):
    """A storage that was freed is refused on all ranks; given memory again, it is found where it is then."""
    tensors, outs, batch = bind(c)
    storage = outs[0].untyped_storage()
    size = storage.nbytes()
    if c.rank == 2:
        storage.resize_(0)
    c.raises("freed", batch.run, "rank 2", "freed or made smaller")
    if c.rank == 2:
        storage.resize_(size)
    keep = torch.zeros(1000)  # so that what comes next lies elsewhere
    c.run("run", batch.run)
    c.equal("found again", outs[0], wanted(*PAIRS[0], c.rank, 0))
    c.true("kept", keep.sum() == 0)
    tensors[0].resize_(100, 100)  # the bound tensor is another one over the same storage
    tensors[0].untyped_storage().copy_(torch.zeros(100, 100).untyped_storage())
    c.run("run", batch.run)
    c.equal("grown", outs[0], torch.zeros_like(outs[0]))


def check_refusals(c):
    import reshard

    layouts = ("[<X>8]", "[<Y>8]")

    def bound(tensor, out, source=layouts[0], target=layouts[1]):
        return lambda: reshard.bind([tensor], [out], MESH, [source], [target])

    x, y = torch.ones(4), torch.ones(4)
    good = bound(x, y)
    c.one_rank_errs("shape", 1, good, bound(torch.ones(3), y), "rank 1", "shape")
    c.one_rank_errs("text", 3, good, bound(x, y, source="[<Q>8]"), "rank 3", "Q")
    c.one_rank_errs("overlap", 0, good, bound(x, x), "rank 0", "share")
    out = torch.zeros(5)
    three = lambda outs: lambda: reshard.bind([x] * 3, outs, MESH, [layouts[0]] * 3, [layouts[1]] * 3)
    apart = [torch.zeros(4) for _ in range(3)]
    c.one_rank_errs("overlap of two", 1, three(apart), three([out[:4], apart[1], out[1:]]), "rank 1",
                    "the target of tensor 0 shares memory with the target of tensor 2")
    c.one_rank_errs("overlap with a source", 1, three(apart), three([apart[0], x, apart[2]]), "rank 1",
                    "the target of tensor 1 shares memory with the source of tensor")
    c.one_rank_errs("gradient", 2, good, bound(x, y.clone().requires_grad_()), "rank 2", "gradient")
    c.one_rank_errs("number", 2, good, lambda: reshard.bind([x], [y, y], MESH, ["[<X>8]"], ["[<Y>8]"]), "destinations")
    if c.rank == 0:
        c.raises("another target", bound(x, torch.ones(8), target="[8]"), "disagree")
    else:
        c.raises("another target", good, "disagree", "target")
    batch = c.run("bind", good)
    c.run("run", batch.run)
    parameter = torch.nn.Parameter(torch.zeros(4))
    with torch.no_grad():
        weights = c.run("under no_grad", bound(x, parameter))
    c.run("run", weights.run)
    c.equal("a parameter", parameter.detach(), torch.ones(4))


class BoundTest(ChecksTest):
    def test_on_ranks(self):
        self.on_ranks(WORLD, [check_contents, check_strides, check_storages_move, check_refusals])


if __name__ == "__main__":
    main("bound")
