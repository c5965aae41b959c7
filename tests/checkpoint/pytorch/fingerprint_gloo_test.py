#!/usr/bin/env python3
"""reshard.fingerprint of checkpoints on Gloo ranks, which share the reading: that of the tensors that were saved, whoever
saved them; refusals."""

import os
import random

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import gloo
from checks import ChecksTest, main
from shared_folder import remove, shared_folder


def wholes():
    generator = torch.Generator().manual_seed(11)

    def floats(*shape):
        return torch.rand(shape, generator=generator)

    return {
        "embedding": floats(301, 1111),  # more than a megabyte
        "layers.0.weight": floats(9, 33).to(torch.bfloat16),
        "layers.0.mask": floats(5, 7) > 0.5,
        "layers.1.weight": floats(6, 5, 8).to(torch.float64),
        "empty": torch.empty(0, 4),
    }


def state_of(c, rng):
    """A model of these, each in a random layout over all ranks, and what is not a tensor. All ranks alike."""
    mesh = init_device_mesh("cpu", (c.world,), mesh_dim_names=("x",))
    model = {}
    for name, whole in wholes().items():
        placement = rng.choice([Replicate(), *(Shard(d) for d in range(whole.dim()))])
        model[name] = distribute_tensor(whole, mesh, [placement])
    return {"model": model, "step": torch.tensor(17), "epoch": 3}


def check_formats(c, seed):
    import reshard

    rng = random.Random(seed * 10 + c.world)
    root = shared_folder(c)
    state = state_of(c, rng)
    of_state = c.run("tensors", lambda: reshard.fingerprint(state))
    each = reshard.fingerprint(state, per_tensor=True)
    ours, theirs = os.path.join(root, "ours"), os.path.join(root, "theirs")
    c.run("save", lambda: reshard.save(ours, state))
    dcp.save(state, checkpoint_id=theirs)
    dist.barrier()
    for path in (ours, theirs):
        c.true(path, c.run(path, lambda: reshard.fingerprint(path)) == of_state)
        c.true(f"{path}, by tensor", c.run(path, lambda: reshard.fingerprint(path, per_tensor=True)) == each)
        model = c.run(path, lambda: reshard.fingerprint(path, include=["model.*"], strip_prefix="model."))
        c.true(f"{path}, the model", model == reshard.fingerprint(state["model"]))
    # A rank alone, whatever the others do.
    groups = [dist.new_group([rank]) for rank in range(c.world)]
    if c.rank == 0:
        c.true("alone", c.run("alone", lambda: reshard.fingerprint(ours, groups[0])) == of_state)
    remove(c, root)


def check_changes(c):
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    state = state_of(c, random.Random(5))
    of_state = reshard.fingerprint(state)
    for name in ("model.layers.1.weight", "step"):
        changed = {"model": {**state["model"]}, "step": state["step"]}
        if name == "step":
            changed["step"] = torch.tensor(18)
        else:
            changed["model"]["layers.1.weight"] = -state["model"]["layers.1.weight"]
        reshard.save(path + name, changed)
        c.true(name, reshard.fingerprint(path + name) != of_state)
        each, before = reshard.fingerprint(path + name, per_tensor=True), reshard.fingerprint(state, per_tensor=True)
        c.true(f"only {name}", [one for one in each if each[one] != before[one]] == [name])
    remove(c, root)


def check_refusals(c):
    import reshard

    root = shared_folder(c)
    one, two = os.path.join(root, "one"), os.path.join(root, "two")
    whole = torch.ones(4, 3)
    reshard.save(one, {"w": whole})
    reshard.save(two, {"w": whole.T.contiguous()})
    path = two if c.rank == 1 else one
    c.raises("another checkpoint", lambda: reshard.fingerprint(path), "ranks 0 and 1", one if c.rank != 1 else two, kind=ValueError)
    path = os.path.join(root, "none") if c.rank == 1 else one
    wanted = FileNotFoundError if c.rank == 1 else RuntimeError
    c.raises("nothing on rank 1", lambda: reshard.fingerprint(path), "rank 1" if c.rank != 1 else "none", kind=wanted)
    recipe = {"schema": "reshard.recipe/1", "dtype": [["w", "bf16" if c.rank == 1 else "f16"]]}
    c.raises("another recipe", lambda: reshard.fingerprint(one, recipe=recipe), "ranks 0 and 1", kind=ValueError)

    c.run("afterwards", lambda: reshard.fingerprint(one))
    remove(c, root)


class FingerprintGlooTest(ChecksTest):
    def test_formats(self):
        seed = gloo.seed()
        for world in (1, 2, 3, 4):
            with self.subTest(world=world):
                self.on_ranks(world, [check_formats], seed)

    def test_changes_and_refusals(self):
        self.on_ranks(3, [check_changes, check_refusals])


if __name__ == "__main__":
    main("fingerprint of checkpoints")
