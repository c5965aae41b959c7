#!/usr/bin/env python3
"""Checkpoints of running jobs, on Gloo ranks: PyTorch saves and reshard loads, reshard saves and PyTorch loads, and
reshard both; any mesh, placements, shard order. Every element is compared by its index in the whole tensor."""

import json
import os
import random
import signal
import subprocess
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import gloo
from checks import ChecksTest, main
from reference import Layout, Mesh
from shared_folder import remove, shared_folder

NAMES = ("a", "b", "c")
RESHARD = gloo.LIBRARY.parent.parent / "bin/reshard"
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint8)


def whole(shape, dtype, seed):
    """A tensor whose elements say where they are."""
    numbers = torch.arange(torch.Size(shape).numel(), dtype=torch.int64) * 131 + seed * 7919 + 17
    if dtype == torch.bool:
        return (numbers // 131 % 3 == 0).reshape(shape)
    if dtype.is_complex:
        return torch.complex(numbers.float(), -numbers.float()).to(dtype).reshape(shape)
    return (numbers % 251).to(torch.uint8).view(dtype).reshape(shape) if dtype.itemsize == 1 else numbers.to(dtype).reshape(shape)


class Placed:
    """A mesh with placements and a shard order, and what each rank holds of a tensor by the definition of layouts."""

    def __init__(self, mesh_shape, placements, shard_order=None, ranks=None):
        self.mesh_shape, self.placements, self.shard_order, self.ranks = mesh_shape, placements, shard_order, ranks

    def __repr__(self):
        return f"{self.mesh_shape}@{self.ranks} {self.placements} {self.shard_order}"

    def mesh(self):
        key = (self.mesh_shape, tuple(self.ranks or ()))
        if key not in _meshes:
            ranks = self.ranks or list(range(torch.Size(self.mesh_shape).numel()))
            names = NAMES[: len(self.mesh_shape)]
            _meshes[key] = DeviceMesh("cpu", torch.tensor(ranks).reshape(self.mesh_shape), mesh_dim_names=names)
        return _meshes[key]

    def layout(self, shape):
        factors = [[] for _ in shape]
        for name, placement in zip(NAMES, self.placements):
            if isinstance(placement, Shard):
                factors[placement.dim].append(name)
        for dim, order in self.shard_order or ():
            factors[dim] = [NAMES[d] for d in order]
        text = "[" + ", ".join(f"<{','.join(f)}>{n}" if f else str(n) for f, n in zip(factors, shape)) + "]"
        ranks = self.ranks or range(torch.Size(self.mesh_shape).numel())
        axes = ",".join(f"{name}:{size}" for name, size in zip(NAMES, self.mesh_shape))
        return Layout(text, Mesh(f"{{{axes}}}@[{','.join(map(str, ranks))}]"))

    def local(self, tensor, rank):
        layout = self.layout(tensor.shape)
        if not layout.holds(rank):
            return tensor.flatten()[:0].view([0] * max(1, tensor.ndim))
        for dim, wanted in enumerate(layout.indices(rank)):
            tensor = tensor.index_select(dim, torch.as_tensor(list(wanted), dtype=torch.int64))
        return tensor.contiguous()

    def dtensor(self, tensor, rank, fill=True):
        from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta

        local = self.local(tensor, rank)
        local = local.clone() if fill else torch.zeros_like(local)
        meta = TensorMeta(tensor.shape, tensor.stride(), tensor.dtype)
        order = self.shard_order and tuple(ShardOrderEntry(dim, tuple(dims)) for dim, dims in self.shard_order)
        more = {"shard_order": order} if order else {}
        return DTensor(local, DTensorSpec(self.mesh(), tuple(self.placements), tensor_meta=meta, **more), requires_grad=False)


_meshes = {}

FOUR = [
    Placed((4,), [Shard(0)]),
    Placed((4,), [Shard(1)]),
    Placed((4,), [Replicate()]),
    Placed((2, 2), [Shard(0), Shard(1)]),
    Placed((2, 2), [Shard(0), Shard(0)]),
    Placed((2, 2), [Shard(0), Shard(0)], shard_order=((0, (1, 0)),)),
    Placed((2, 2), [Replicate(), Shard(0)]),
    Placed((2, 2), [Shard(1), Shard(1)], shard_order=((1, (1, 0)),)),
    Placed((3,), [Shard(0)], ranks=[3, 1, 0]),
    Placed((2,), [Shard(1)], ranks=[2, 3]),
    Placed((1,), [Replicate()], ranks=[2]),
]
SHAPES = [(8, 6), (5, 3), (1, 9), (0, 4), (64, 32), (7, 5, 3)]


def saveable_by_torch(placed):
    return not placed.shard_order and not placed.ranks


def equal_bits(c, what, got, wanted):
    c.equal(what, got.contiguous().view(torch.uint8) if got.ndim else got, wanted.contiguous().view(torch.uint8) if wanted.ndim else wanted)


def tensors_for(placed, seed, rank, fill):
    state = {}
    for i, shape in enumerate(SHAPES):
        if any(isinstance(p, Shard) and p.dim >= len(shape) for p in placed.placements):
            continue
        dtype = DTYPES[(i + seed) % len(DTYPES)]
        state[f"t{i}"] = placed.dtensor(whole(shape, dtype, seed + i), rank, fill)
    return state


def check_loads_what_torch_saves(c):
    import reshard

    root = shared_folder(c)
    for s, saved in enumerate(p for p in FOUR if saveable_by_torch(p)):
        path = os.path.join(root, f"saved{s}")
        dcp.save(tensors_for(saved, s, c.rank, True), checkpoint_id=path)
        for wanted in FOUR:
            for read in ("once", "own"):
                state = tensors_for(wanted, s, c.rank, False)
                state = {k: v for k, v in state.items() if k in tensors_for(saved, s, c.rank, False)}
                c.run(f"{saved} -> {wanted}, {read}", lambda: reshard.load(path, state, read=read))
                for name, got in state.items():
                    i = int(name[1:])
                    full = whole(SHAPES[i], DTYPES[(i + s) % len(DTYPES)], s + i)
                    equal_bits(c, f"{saved} -> {wanted}, {read}, {name}", got._local_tensor, wanted.local(full, c.rank))
    remove(c, root)


def nested(c, seed, fill):
    """A state dict as trainers have it: DTensors, plain tensors, optimizer state, values that are not tensors."""
    rows, both = Placed((4,), [Shard(0)]), Placed((2, 2), [Replicate(), Shard(0)])
    plain = whole((3, 2), torch.float64, seed)
    return {
        "model": {"w": rows.dtensor(whole((10, 3), torch.bfloat16, seed), c.rank, fill), "b": plain if fill else plain * 0},
        "optimizer": {
            "state": {"w": {"step": torch.tensor(float(seed) if fill else 0.0),
                            "exp_avg": both.dtensor(whole((10, 3), torch.float32, seed + 1), c.rank, fill)}},
            "param_groups": [{"lr": 0.1 * seed if fill else None, "betas": (0.9, 0.99) if fill else None}],
        },
        "epoch": seed if fill else -1,
    }


def check_nested(c, state, seed, what):
    wanted = nested(c, seed, True)
    for name in ("w", "b"):
        got, want = state["model"][name], wanted["model"][name]
        equal_bits(c, f"{what}, {name}", getattr(got, "_local_tensor", got), getattr(want, "_local_tensor", want))
    got, want = (s["optimizer"]["state"]["w"] for s in (state, wanted))
    c.equal(f"{what}, step", got["step"], want["step"])
    equal_bits(c, f"{what}, exp_avg", got["exp_avg"]._local_tensor, want["exp_avg"]._local_tensor)
    c.true(f"{what}, groups", state["optimizer"]["param_groups"] == wanted["optimizer"]["param_groups"],
           state["optimizer"]["param_groups"])
    c.true(f"{what}, epoch", state["epoch"] == seed, state["epoch"])


def check_nested_states(c):
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "torch")
    dcp.save(nested(c, 5, True), checkpoint_id=path)
    state = nested(c, 5, False)
    c.run("load", lambda: reshard.load(path, state))
    check_nested(c, state, 5, "saved by torch")
    remove(c, root)


def check_large_chunks_are_read_once(c):
    """A chunk beyond 64 MiB, which one rank compares with its checksum, by rows and by columns."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "large")
    rows, columns = 2304, 8192  # 72 MiB
    full = torch.arange(rows * columns, dtype=torch.int32).view(rows, columns)
    if c.rank == 0:
        dcp.save({"w": full}, checkpoint_id=path, no_dist=True)
    dist.barrier()
    mesh = init_device_mesh("cpu", (c.world,))
    for dim in (0, 1):
        target = torch.empty(full.chunk(c.world, dim)[c.rank].shape, dtype=full.dtype)
        state = {"w": DTensor.from_local(target, mesh, [Shard(dim)])}
        report = c.run(f"cut along {dim}", lambda: reshard.load(path, state))
        c.equal(f"cut along {dim}", target, full.chunk(c.world, dim)[c.rank])
        # Rank 0 compares the chunk, and so reads all of it; the others read their rows.
        most = full.nbytes if c.rank == 0 else full.nbytes // c.world
        c.true(f"cut along {dim}, bytes read", report["read_bytes"] < 1.01 * most, report["read_bytes"])
    alone = torch.empty(rows, columns, dtype=full.dtype)
    report = c.run("alone", lambda: reshard.load(path, {"w": alone}, read="own"))
    c.equal("alone", alone, full)
    c.true("alone, bytes read", report["read_bytes"] < 1.01 * full.nbytes, report["read_bytes"])
    remove(c, root)


def check_torch_loads_what_is_saved(c):
    import reshard

    root = shared_folder(c)
    for s, saved in enumerate(FOUR):
        path = os.path.join(root, f"saved{s}")
        state = tensors_for(saved, s, c.rank, True)
        c.run(f"save {saved}", lambda: reshard.save(path, state))
        # What each rank wrote is about the same: no rank writes replicas that others have written.
        for wanted in (p for p in FOUR if saveable_by_torch(p)):
            got = {k: v for k, v in tensors_for(wanted, s, c.rank, False).items() if k in state}
            c.run(f"{saved}, torch loads {wanted}", lambda: dcp.load(got, checkpoint_id=path))
            for name, tensor in got.items():
                full = whole(SHAPES[int(name[1:])], tensor.dtype, s + int(name[1:]))
                equal_bits(c, f"{saved}, torch: {wanted}, {name}", tensor._local_tensor, wanted.local(full, c.rank))
        for wanted in FOUR[::3]:
            got = {k: v for k, v in tensors_for(wanted, s, c.rank, False).items() if k in state}
            c.run(f"{saved} -> {wanted}", lambda: reshard.load(path, got))
            for name, tensor in got.items():
                full = whole(SHAPES[int(name[1:])], tensor.dtype, s + int(name[1:]))
                equal_bits(c, f"{saved} -> {wanted}, {name}", tensor._local_tensor, wanted.local(full, c.rank))
    remove(c, root)


def check_saving(c):
    """Nested states, replicas shared out, refusals, overwriting."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "ours")
    c.run("save", lambda: reshard.save(path, nested(c, 6, True)))
    state = nested(c, 6, False)
    c.run("torch loads", lambda: dcp.load(state, checkpoint_id=path))
    check_nested(c, state, 6, "torch loads ours")
    state = nested(c, 6, False)
    c.run("load", lambda: reshard.load(path, state))
    check_nested(c, state, 6, "ours")
    # The rank that meets it raises what Python has for it, the others name that rank.
    c.raises("there already", lambda: reshard.save(path, nested(c, 7, True)), "already exists",
             kind=FileExistsError if c.rank == 0 else RuntimeError)
    c.run("overwrite", lambda: reshard.save(path, nested(c, 7, True), overwrite=True))
    state = nested(c, 7, False)
    c.run("load the new one", lambda: reshard.load(path, state))
    check_nested(c, state, 7, "overwritten")
    c.true("nothing is left beside it", sorted(os.listdir(root)) == ["ours"], os.listdir(root))
    replicas = Placed((4,), [Replicate()])
    done = c.run("replicas", lambda: reshard.save(
        os.path.join(root, "replicas"), {f"t{i}": replicas.dtensor(whole((16, 4), torch.float32, i), c.rank) for i in range(8)}))
    c.true("replicas are shared out", done["written_bytes"] == 2 * 16 * 4 * 4, done)
    odd = 3.0 if c.rank == 1 else torch.ones(2)
    c.raises("a tensor here, a number there", lambda: reshard.save(os.path.join(root, "odd"), {"x": odd}), "x")
    c.raises("no parent", lambda: reshard.save(os.path.join(root, "no", "parent"), nested(c, 6, True)), "no")
    c.true("nothing is left", sorted(os.listdir(root)) == ["ours", "replicas"], os.listdir(root))
    remove(c, root)


def check_pipeline_stages(c):
    """Ranks that pass different names: each stage its own."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    rows = Placed((4,), [Shard(0)])
    dcp.save({f"stage{i}": rows.dtensor(whole((6, 4), torch.float32, i), c.rank) for i in range(2)}, checkpoint_id=path)
    stage = c.rank // 2
    own = {f"own{stage}": whole((3,), torch.float32, stage), "values": {f"stage{stage}": stage + 0.5}}
    ours = os.path.join(root, "ours")
    c.run("save", lambda: reshard.save(ours, own))
    back = {f"own{stage}": torch.zeros(3), "values": {f"stage{stage}": None}}
    c.run("load own", lambda: reshard.load(ours, back))
    c.equal("own", back[f"own{stage}"], own[f"own{stage}"])
    c.true("value", back["values"] == own["values"], back)
    placed = [Placed((2,), [Shard(1)], ranks=[0, 1]), Placed((2,), [Shard(1)], ranks=[2, 3])]
    for each in placed:
        each.mesh()  # all ranks make all groups
    state = {f"stage{stage}": placed[stage].dtensor(whole((6, 4), torch.float32, stage), c.rank, False)}
    c.run("load", lambda: reshard.load(path, state))
    wanted = placed[stage].local(whole((6, 4), torch.float32, stage), c.rank)
    c.equal("stage", state[f"stage{stage}"]._local_tensor, wanted)
    remove(c, root)


def check_recipes(c):
    """What a recipe makes of the checkpoint is what ranks load, each its part."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    rows = Placed((4,), [Shard(0)])
    q, k, v = (whole((n, 6), torch.float32, i) for i, n in enumerate((8, 4, 4)))
    dcp.save({name: rows.dtensor(full, c.rank) for name, full in (("q", q), ("k", k), ("v", v))}, checkpoint_id=path)
    recipe = {"schema": "reshard.recipe/1", "dtype": [["qkv", "bf16"]], "tensors": [
        {"to": "qkv", "from": {"concatenate": ["q", "k", "v"]}}, {"to": "t", "from": {"transpose": {"stack": ["k", "v"]}, "dims": [0, -1]}}]}
    file = os.path.join(root, "recipe.json")
    if c.rank == 0:
        with open(file, "w", encoding="utf-8") as out:
            json.dump(recipe, out)
    dist.barrier()
    wanted = {"qkv": torch.cat([q, k, v]).to(torch.bfloat16), "t": torch.stack([k, v]).transpose(0, 2).contiguous()}
    for placed in FOUR:
        for read in ("once", "own"):
            state = {name: placed.dtensor(full, c.rank, False) for name, full in wanted.items()}
            c.run(f"made, {placed}, {read}", lambda: reshard.load(path, state, read=read, recipe=recipe if read == "once" else file))
            for name, full in wanted.items():
                equal_bits(c, f"made, {placed}, {read}, {name}", state[name]._local_tensor, placed.local(full, c.rank))
    plain = {"t": torch.zeros(6, 4, 2)}
    c.raises("no recipe", lambda: reshard.load(path, plain, recipe={"schema": "?"}), "this is not a recipe", kind=ValueError)
    other = {**recipe, "dtype": []} if c.rank == 1 else recipe
    c.raises("ranks differ", lambda: reshard.load(path, plain, recipe=other), "rank 1 has another recipe")
    c.raises("used up", lambda: reshard.load(path, {"q": q.clone()}, recipe=recipe), "is not in the checkpoint", kind=ValueError)
    c.run("a part", lambda: reshard.load(path, plain, recipe=recipe))
    c.equal("a part", plain["t"], wanted["t"])
    remove(c, root)


def check_errors(c):
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    rows = Placed((4,), [Shard(0)])
    full = whole((8, 4), torch.float32, 0)
    dcp.save({"w": rows.dtensor(full, c.rank)}, checkpoint_id=path)
    c.raises("no such name", lambda: reshard.load(path, {"v": rows.dtensor(full, c.rank)}), '"v" is not in', kind=ValueError)
    wrapped = {f"model.{name}": rows.dtensor(full, c.rank) for name in ("w", "w")} | {"model.x": rows.dtensor(full, c.rank)}
    c.raises("names", lambda: reshard.load(path, wrapped), "2 names", '"model.w"', '"model.x"', kind=ValueError)
    del wrapped["model.x"]
    c.raises("a prefix", lambda: reshard.load(path, wrapped), 'it is there without the prefix "model."', kind=ValueError)
    c.raises("a number", lambda: reshard.load(path, {"w": 3.0}), "is a tensor in the checkpoint", kind=ValueError)
    c.raises("another dtype", lambda: reshard.load(path, {"w": rows.dtensor(full.double(), c.rank)}), "not converted")
    c.raises("no checkpoint", lambda: reshard.load(root + "/none", {"w": rows.dtensor(full, c.rank)}), "none", kind=FileNotFoundError)
    c.raises("no mode", lambda: reshard.load(path, {}, read="twice"), "twice", kind=ValueError)
    mixed = full if c.rank == 2 else full[:4]
    c.raises("ranks differ", lambda: reshard.load(path, {"w": mixed}), "rank 2", kind=ValueError)
    state = {"w": rows.dtensor(full, c.rank, False)}
    c.run("afterwards", lambda: reshard.load(path, state))
    c.equal("afterwards", state["w"]._local_tensor, rows.local(full, c.rank))
    remove(c, root)


def check_differences(c):
    """strict=False and cast=True: what is there is loaded, what differs is said, on every rank alike."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    rows, both = Placed((4,), [Shard(0)]), Placed((2, 2), [Shard(1), Shard(0)])
    full = whole((8, 4), torch.float32, 0)
    dcp.save({"w": rows.dtensor(full, c.rank), "n": torch.arange(3), "old": full, "step": 3}, checkpoint_id=path)
    state = {"w": both.dtensor(full.bfloat16(), c.rank, False), "v": torch.ones(2), "step": 0, "z": "as it was"}
    report = c.run("not strict", lambda: reshard.load(path, state, strict=False, cast=True))
    c.equal("cast", state["w"]._local_tensor, both.local(full.bfloat16(), c.rank))
    c.equal("not there", state["v"], torch.ones(2))
    c.true("values", (state["step"], state["z"]) == (3, "as it was"), state)
    wanted = {"missing": ["v", "z"], "unexpected": ["n", "old"], "converted": {"w": ["torch.float32", "torch.bfloat16"]}}
    c.true("report", {key: report[key] for key in wanted} == wanted, report)
    # Each rank its own names: the report is of all of them.
    mine = {f"only{c.rank}": torch.ones(2)} if c.rank else {"w": torch.zeros(8, 4)}
    report = c.run("by rank", lambda: reshard.load(path, mine, strict=False))
    c.true("by rank", report["missing"] == ["only1", "only2", "only3"] and report["unexpected"] == ["n", "old", "step"], report)
    c.raises("integers", lambda: reshard.load(path, {"n": torch.zeros(3)}, cast=True), "not converted", kind=ValueError)
    c.raises("strict", lambda: reshard.load(path, {"v": torch.ones(2)}, cast=True), '"v"', kind=ValueError)
    # A rank whose state cannot be described says so to all.
    broken = {"w": both.dtensor(full, c.rank)} if c.rank != 1 else {"w": torch.zeros(8, 4).to_sparse()}
    c.raises("one rank", lambda: reshard.load(path, broken), "", kind=(ValueError, RuntimeError))
    remove(c, root)


def check_slices(c):
    """A parameter that tensor parallelism does not shard is on another slice of the mesh on every rank, as FSDP2 leaves
    it: saved once, and loaded on such slices."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    full = whole((9, 4), torch.float32, 4)
    mine = distribute_tensor(full, mesh["dp"], [Shard(0)])
    c.run("saved", lambda: reshard.save(path, {"w": mine}))
    state = {"w": torch.zeros(9, 4)}
    c.run("loaded whole", lambda: reshard.load(path, state))
    c.equal("whole", state["w"], full)
    state = {"w": distribute_tensor(torch.zeros(9, 4), mesh["tp"], [Shard(0)])}
    for read in ("once", "own"):
        state["w"].to_local().zero_()
        c.run(f"loaded, {read}", lambda: reshard.load(path, state, read=read))
        c.equal(f"slices, {read}", state["w"].to_local(), distribute_tensor(full, mesh["tp"], [Shard(0)]).to_local())
    stored = sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path) if name.endswith(".distcp"))
    c.true("stored once", stored < 2 * full.nbytes + 8192, stored)
    remove(c, root)


class Counter:
    def __init__(self, count):
        self.count = count

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def check_objects_and_behind(c):
    """Models and other objects with a state, saved while the job goes on, which changes what it has."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    rows = Placed((4,), [Shard(0)])
    full = whole((400, 64), torch.float32, 1)
    torch.manual_seed(7)  # what ranks pass under one name is the same
    model = torch.nn.Linear(3, 2)
    weight = model.weight.detach().clone()
    state = {"w": rows.dtensor(full, c.rank), "model": model, "counter": Counter(5)}
    pending = c.run("begun", lambda: reshard.save_async(path, state))
    with torch.no_grad():
        state["w"]._local_tensor.zero_()
        model.weight.zero_()
    reshard.redistribute(rows.dtensor(full, c.rank), [Replicate()])  # meanwhile, on the job's own group
    second = c.run("another", lambda: reshard.save_async(path + "2", {"w": rows.dtensor(full, c.rank)}))
    done = c.run("waited", pending.wait)
    c.true("what it did", pending.done() and done["written_bytes"] > 0, done)
    c.run("the other", second.wait)
    into = {"w": rows.dtensor(full, c.rank, False), "model": torch.nn.Linear(3, 2), "counter": Counter(0)}
    c.run("loaded", lambda: reshard.load(path, into))
    c.equal("tensor", into["w"]._local_tensor, rows.local(full, c.rank))
    c.equal("model", into["model"].weight.detach(), weight)
    c.true("object", into["counter"].count == 5, into["counter"].count)
    failing = reshard.save_async(path, {"w": rows.dtensor(full, c.rank)})
    c.raises("an error waits", failing.wait, "already exists", kind=FileExistsError if c.rank == 0 else RuntimeError)
    remove(c, root)


def save_and_die(rank, world, path, victim, delay):
    """Saves other contents over what is at the path; one rank is killed meanwhile. The error, if any."""
    import reshard

    rows = Placed((world,), [Shard(0)])
    reshard.save(path + ".warm", {"w": rows.dtensor(whole((8, 4), torch.float32, 0), rank)}, overwrite=True)
    state = {f"t{i}": rows.dtensor(whole((512, 512), torch.float32, 1000 + i), rank) for i in range(6)}
    dist.barrier()
    if rank == victim:
        gloo.signal_me_in(delay, signal.SIGKILL)
    try:
        while True:  # until the signal comes
            reshard.save(path, state, overwrite=True)
    except RuntimeError as error:
        return str(error)


def save_first(rank, world, path):
    import reshard

    rows = Placed((world,), [Shard(0)])
    for name, first in (("old", 0), ("new", 1000)):
        reshard.save(f"{path}.{name}", {f"t{i}": rows.dtensor(whole((512, 512), torch.float32, first + i), rank) for i in range(6)})
    reshard.save(path, {f"t{i}": rows.dtensor(whole((512, 512), torch.float32, i), rank) for i in range(6)})


class StateTest(ChecksTest):
    def test_killed_while_saving(self):
        """What is at the path is the old or the new checkpoint, whole; every survivor names the rank that died."""
        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "saved")
            gloo.values(gloo.run_ranks(3, save_first, path))
            for run in range(6):
                victim, delay = run % 3, random.uniform(0, 0.3)
                outcomes = gloo.run_ranks(3, save_and_die, path, victim, delay, env={"RESHARD_TIMEOUT_MS": "3000"}, victims=(victim,))
                for o in outcomes:
                    if o.rank != victim:
                        self.assertTrue(o.ok and f"rank {victim}" in o.value, f"victim {victim} after {delay:.3f} s: {o}")
                same = [
                    subprocess.run([RESHARD, "verify", path, f"{path}.{name}"], capture_output=True).returncode
                    for name in ("old", "new")
                ]
                self.assertEqual(sorted(same), [0, 1], f"victim {victim} after {delay:.3f} s: {same}")
                ChecksTest.checks += 3

    def test_loading(self):
        self.on_ranks(4, [check_loads_what_torch_saves], timeout=300)

    def test_saving(self):
        self.on_ranks(4, [check_torch_loads_what_is_saved, check_saving], timeout=300)

    def test_states(self):
        self.on_ranks(4, [check_nested_states, check_large_chunks_are_read_once, check_pipeline_stages, check_recipes, check_errors], timeout=120)

    def test_differences(self):
        self.on_ranks(4, [check_differences, check_slices, check_objects_and_behind], timeout=120)

    def test_alone(self):
        """Without torch.distributed."""
        import reshard

        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "saved")
            full = whole((5, 3), torch.float32, 2)
            reshard.save(path, {"w": full, "step": 4})
            state = {"w": torch.zeros(5, 3), "step": 0}
            reshard.load(path, state)
            self.assertTrue(torch.equal(state["w"], full) and state["step"] == 4)
            with self.assertRaises(FileExistsError):
                reshard.save(path, {"w": full})
            with self.assertRaisesRegex(ValueError, '"v" is not in'):
                reshard.load(path, {"v": full})
            dcp.save({"w": full + 1}, checkpoint_id=path, no_dist=True)
            with self.assertRaisesRegex(RuntimeError, "stale.*ignore_sidecar=True"):
                reshard.load(path, {"w": state["w"]})
            reshard.load(path, {"w": state["w"]}, ignore_sidecar=True)
            self.assertTrue(torch.equal(state["w"], full + 1))
            ChecksTest.checks += 5


if __name__ == "__main__":
    main("state")
