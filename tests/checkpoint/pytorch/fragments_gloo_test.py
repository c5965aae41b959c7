#!/usr/bin/env python3
"""Fragments: what no DTensor can be, redistributed, bound, saved, loaded and refitted; parameters of real FSDP1; PyTorch
reads and writes the same checkpoints."""

import os
import random
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import gloo
from checks import ChecksTest, main
from shared_folder import remove, shared_folder


SEED = gloo.seed()  # of the parent: all ranks make the same layouts


def whole_of(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sharded(whole, mesh, placements):
    return DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim).redistribute(mesh, placements)


def check_redistribution(c):
    """From DTensors to fragments and back, with gradients."""
    import reshard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = whole_of((7, 6, 5))
    x = sharded(whole, mesh, [Shard(0), Shard(1)])
    flat = c.run("to a flat range", lambda: reshard.redistribute(x, "[<dp=[25,80]>(7, <tp>6, 5)]"))
    mine = whole[:, 3 * (c.rank % 2) : 3 * (c.rank % 2) + 3].flatten()
    mine = mine[25:] if c.rank // 2 else mine[:25]
    c.true("a fragment", isinstance(flat, reshard.Fragment) and flat.layout == "[80<dp=[25,80]>(7, 3<tp>6, 5)]", flat)
    c.true("its elements", torch.equal(flat.local, mine) and flat.shape == whole.shape, flat)
    back = c.run("to a DTensor", lambda: reshard.redistribute(flat, [Shard(2), Replicate()]))
    c.true("a DTensor", isinstance(back, DTensor) and torch.equal(back.full_tensor(), whole), back)
    other = c.run("between fragments", lambda: reshard.redistribute(flat, "[<tp,dp>(...)]"))
    c.true("between fragments", torch.equal(other.local, whole.flatten().split(105)[c.rank % 2].split(53)[c.rank // 2]), other)
    both = c.run("several", lambda: reshard.redistribute_all([x, flat], None, ["[<dp>(...)]", [Replicate(), Shard(0)]]))
    c.true("several", torch.equal(both[0].local, whole.flatten().split(105)[c.rank // 2]), both[0])
    c.true("several, a DTensor", torch.equal(both[1].full_tensor(), whole), both[1])

    y = sharded(whole, mesh, [Shard(0), Replicate()]).requires_grad_()
    part = reshard.redistribute(y, "[<dp>(...)]")
    (part.local**2).sum().backward()
    c.true("a gradient", torch.allclose(y.grad.full_tensor(), 2 * whole), y.grad)

    c.raises("no fragment", lambda: reshard.redistribute(whole, "[<dp>(...)]"), "DTensor or a Fragment", kind=TypeError)
    c.raises("no layout", lambda: reshard.Fragment(whole, mesh, "[<ep>7]"), 'unknown axis "ep"', kind=ValueError)
    wrong = reshard.Fragment(torch.zeros(3), mesh, "[<dp>(7, 6, 5)]")
    c.raises("a wrong shape", lambda: reshard.redistribute(wrong, [Replicate(), Replicate()]), "its layout gives this rank [105]")


def check_bound(c):
    """Bound once, between flat ranges, slots and DTensors; the contents of the moment are moved."""
    import reshard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = whole_of((6, 4), 3)
    flat = reshard.redistribute(sharded(whole, mesh, [Shard(0), Shard(1)]), "[<dp=[5,19]>(6, 4)]")
    same = c.run("fingerprints", lambda: [reshard.fingerprint({"w": w}) for w in (flat, sharded(whole, mesh, [Shard(1), Replicate()]))])
    c.true("fingerprints", same[0] == same[1] and same[0] != reshard.fingerprint({}), same)
    slots = reshard.Fragment(torch.zeros(3, 4), mesh, "[<tp={0,5,1|2-4}>6, 4]")
    tensor = sharded(torch.zeros(6, 4), mesh, [Replicate(), Shard(1)])
    batch = c.run("bind", lambda: reshard.bind({"a": flat, "b": flat}, {"a": slots, "b": tensor}))
    for times in (1, 2):
        flat.local.mul_(times)
        c.run("run", batch.run)
        c.true("slots", torch.equal(slots.local, times * whole[[2, 3, 4] if c.rank % 2 else [0, 5, 1]]), slots)
        c.true("a DTensor", torch.equal(tensor.full_tensor(), times * whole), tensor)
    other = reshard.Fragment(torch.zeros(5 if c.rank < 2 else 19), mesh, "[<dp=[5,19]>(4, 6)]")
    c.raises("another shape", lambda: reshard.bind([flat], [other]), "[6, 4]", "[4, 6]", kind=ValueError)


def check_checkpoints(c):
    """Saved as flat ranges and read by PyTorch, and the other way round; slot tables, too."""
    import reshard

    root = shared_folder(c)
    rng = random.Random(SEED)
    mesh = init_device_mesh("cpu", (c.world,), mesh_dim_names=("dp",))
    for trial in range(8):
        shape = [rng.randint(1, 9) for _ in range(rng.randint(1, 3))]
        whole = whole_of(shape, trial)
        cuts = sorted(rng.randint(0, whole.numel()) for _ in range(c.world - 1))
        ends = [0, *cuts, whole.numel()]
        sizes = [end - begin for begin, end in zip(ends, ends[1:])]
        layout = f"[<dp={sizes}>({', '.join(map(str, shape))})]"
        table = "|".join(",".join(str(rng.randrange(shape[0])) for _ in range(rng.randint(0, shape[0]))) for _ in range(c.world - 1))
        slots = f"[<dp={{{table}|0-{shape[0] - 1}}}>{', '.join(map(str, shape))}]"
        flat = reshard.Fragment(whole.flatten()[ends[c.rank] : ends[c.rank + 1]].clone(), mesh, layout)
        experts = reshard.redistribute(flat, slots)
        path = os.path.join(root, f"ours{trial}")
        c.run("save", lambda: reshard.save(path, {"flat": flat, "experts": experts}))
        into = {"flat": torch.zeros(shape), "experts": torch.zeros(shape)}
        c.run("PyTorch loads", lambda: dcp.load(into, checkpoint_id=path))
        c.true("PyTorch loads", all(torch.equal(into[name], whole) for name in into), f"{layout} {slots}")
        theirs = os.path.join(root, f"theirs{trial}")
        dcp.save({"flat": sharded(whole, mesh, [Shard(rng.randrange(len(shape)))]), "experts": whole}, checkpoint_id=theirs)
        for read in ("once", "own"):
            empty = {
                "flat": reshard.Fragment(torch.zeros_like(flat.local), mesh, layout),
                "experts": reshard.Fragment(torch.zeros_like(experts.local), mesh, slots),
            }
            c.run("load", lambda: reshard.load(theirs, empty, read=read))
            c.true("load", torch.equal(empty["flat"].local, flat.local), f"{layout} {read}")
            c.true("load slots", torch.equal(empty["experts"].local, experts.local), f"{slots} {read}")
    remove(c, root)


def check_fsdp1(c):
    """Parameters of a model in FullyShardedDataParallel are saved and loaded where they are."""
    import reshard
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    root = shared_folder(c)
    for original in (True, False):
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Sequential(torch.nn.Linear(7, 3), torch.nn.Linear(3, 7)))
        model.append(torch.nn.Linear(7, 5))
        model[2].bias = model[2].bias
        want = {name: value.clone() for name, value in model.state_dict().items()}
        policy = ModuleWrapPolicy({torch.nn.Sequential})
        wrapped = FSDP(model, auto_wrap_policy=policy, use_orig_params=original, device_id=torch.device("cpu"))
        fragments = c.run("fragments", lambda: reshard.fsdp1_fragments(wrapped))
        c.true("names", set(fragments) == set(want), set(fragments) ^ set(want))
        for name, fragment in fragments.items():
            full = reshard.redistribute(fragment, "[...]").full_tensor()
            c.true("whole", torch.equal(full, want[name]), name)
        path = os.path.join(root, f"fsdp1-{original}")
        c.run("save", lambda: reshard.save(path, fragments))
        into = {name: torch.zeros_like(value) for name, value in want.items()}
        dcp.load(into, checkpoint_id=path)
        c.true("PyTorch loads", all(torch.equal(into[name], want[name]) for name in want))
        changed = {name: value + 1 for name, value in want.items()}
        dcp.save(changed, checkpoint_id=path + "-1")
        c.run("load", lambda: reshard.load(path + "-1", fragments))
        out = wrapped(torch.ones(2, 5))
        plain = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Sequential(torch.nn.Linear(7, 3), torch.nn.Linear(3, 7)))
        plain.append(torch.nn.Linear(7, 5))
        plain.load_state_dict(changed)
        c.true("the model has them", torch.equal(out, plain(torch.ones(2, 5))), out)
    c.raises("no FSDP", lambda: reshard.fsdp1_fragments(model[0]), "no parameters of FullyShardedDataParallel", kind=ValueError)
    remove(c, root)


def check_refit(c):
    """A trainer in FSDP1, hybrid, into an engine with its projections in one, and an engine's weights into flat parameters."""
    import reshard
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import ShardingStrategy

    torch.manual_seed(6)
    layers = {"q": torch.nn.Linear(5, 6), "k": torch.nn.Linear(5, 2), "v": torch.nn.Linear(5, 2), "o": torch.nn.Linear(6, 5)}
    model = torch.nn.Sequential(OrderedDict(layers))
    want = {name: value.clone() for name, value in model.state_dict().items()}
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    strategy = ShardingStrategy.HYBRID_SHARD
    wrapped = FSDP(model, device_mesh=mesh, sharding_strategy=strategy, device_id=torch.device("cpu"))
    fragments = reshard.fsdp1_fragments(wrapped)
    own, numel = (sum(tensor.numel() for tensor in of) for of in ([part.local for part in fragments.values()], want.values()))
    c.true("two copies", fragments["q.weight"].mesh.shape == (2, 2) and own <= -(-numel // 2), fragments)
    qkv = torch.cat([want[f"{name}.weight"] for name in "qkv"])
    engine_mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    names = [f"{layer}.{kind}" for layer in "qkvo" for kind in ("weight", "bias")]
    recipe = {"schema": "reshard.recipe/1", "keep": ["*.bias", "o.weight"], "tensors": [
        {"to": "qkv", "from": {"concatenate": [f"{name}.weight" for name in "qkv"]}}]}  # fmt: skip
    engine = {"qkv": sharded(torch.zeros(10, 5), engine_mesh, [Replicate(), Shard(0)])} | {
        name: sharded(torch.zeros_like(want[name]), engine_mesh, [Shard(0), Replicate()]) for name in names if name[0] == "o" or "bias" in name}
    root = shared_folder(c)
    joined = reshard.join(dist.FileStore(os.path.join(root, "store"), -1), c.rank, c.world)
    there = c.run("make", lambda: reshard.Refit(source=fragments, target=engine, recipe=recipe, group=joined))
    c.run("refit", there)
    c.true("in one", torch.equal(engine["qkv"].full_tensor(), qkv), engine["qkv"].full_tensor() - qkv)
    for name in engine.keys() - {"qkv"}:
        c.true(name, torch.equal(engine[name].full_tensor(), want[name]), name)
    c.true("at the bound", there.timings()["received_bytes"] == there.timings()["received_bytes_bound"], there.timings())
    # Back: parts of one tensor into flat ranges, in place.
    split = {"schema": "reshard.recipe/1", "keep": ["*.bias", "o.weight"], "tensors": [
        {"to": f"{name}.weight", "from": {"split": "qkv", "sizes": [6, 2, 2], "part": part}} for part, name in enumerate("qkv")]}  # fmt: skip
    for tensor in engine.values():
        tensor._local_tensor.add_(1)
    back = c.run("make", lambda: reshard.Refit(source=engine, target=fragments, recipe=split, group=joined))
    c.run("refit back", back)
    for name, fragment in fragments.items():
        c.true("whole", torch.equal(reshard.redistribute(fragment, "[...]").full_tensor(), want[name] + 1), name)
    joined.leave()
    remove(c, root)


class FragmentsTest(ChecksTest):
    def test_three_ranks(self):
        self.on_ranks(3, [check_checkpoints], timeout=120)

    def test_four_ranks(self):
        self.on_ranks(4, [check_redistribution, check_bound, check_checkpoints, check_fsdp1, check_refit], timeout=120)


if __name__ == "__main__":
    main("fragments")
