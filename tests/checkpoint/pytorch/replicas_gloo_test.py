#!/usr/bin/env python3
"""What ranks pass under one name: compared before it is saved, or saved for each rank, and loaded again."""

import collections
import datetime
import os
import random

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from checks import ChecksTest, main
from shared_folder import remove, shared_folder

LARGE = 1 << 19  # elements: more than 1 MiB


def check_differences(c):
    """A difference is an error on every rank that names what and who, and nothing is written."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    mine = float(c.rank == 1)
    base = {"w": torch.ones(3), "step": 4}
    for name, value in (("buffer", torch.full((2,), mine)), ("seed", mine), ("nested", {"a": [1, {"b": mine}]}),
                        ("pair", (torch.full((2,), mine), 1)), ("text", "x" * (1 + c.rank))):
        for save in (reshard.save, reshard.save_async):
            text = c.raises(f"{name} differs", lambda: save(path, {**base, name: value}), f"'{name}", "rank_local=['",
                            'check_replicas="none"', "differs from rank", kind=ValueError)
            c.true("only that", "'w'" not in text and "'step'" not in text, text)
    c.true("nothing is written", os.listdir(root) == [], os.listdir(root))
    names = {f"value{i:02}": mine for i in range(20)}
    c.raises("many", lambda: reshard.save(path, names), "20 values", "'value00'", "and 12 more", kind=ValueError)
    large = torch.full((LARGE,), mine)
    c.run("large ones are not compared", lambda: reshard.save(path, {"w": large}))
    c.raises("unless it is asked for", lambda: reshard.save(path, {"w": large}, check_replicas="all", overwrite=True), "'w'", kind=ValueError)
    c.run("none", lambda: reshard.save(path, {**base, "buffer": torch.full((2,), mine), "seed": mine}, check_replicas="none", overwrite=True))
    state = {"buffer": torch.full((2,), 7.0), "seed": None}
    c.run("one rank's", lambda: reshard.load(path, state))
    c.true("one rank's", state["buffer"].tolist() in ([0.0, 0.0], [1.0, 1.0]) and state["seed"] in (0.0, 1.0), state)
    c.raises("no mode", lambda: reshard.save(path, base, check_replicas="some"), "some", kind=ValueError)
    mode = "all" if c.rank else "small"
    c.raises("ranks differ", lambda: reshard.save(path + "2", base, check_replicas=mode), "different check_replicas", kind=ValueError)
    # Only those that pass it are asked.
    only = {"own": torch.full((2,), mine)} if c.rank == 0 else {}
    c.run("one rank has it", lambda: reshard.save(path, {**base, **only}, overwrite=True))
    remove(c, root)


class Settings:
    def __init__(self, items):
        self.items = items


def equal_states(rank):
    """The same on all ranks, but pickled in different ways."""
    texts = [chr(97 + i) * 3 for i in range(12)]
    random.Random(rank).shuffle(texts)
    shared = "".join(["sha", "red"])
    again = "".join(["sha", "red"]) if rank else shared
    order = {text: len(text) for text in texts}
    return {
        "set": set(texts),
        "dict": {"values": order, "counts": collections.Counter(order)},
        "frozen": (frozenset(texts), [shared, again]),
        "number": 5 if rank else 5.0,
        "object": Settings({texts[0], *texts}),
        "when": datetime.datetime(2020, 1, 1),
        "default": collections.defaultdict(list, {text: [1] for text in texts}),
        "tensor in it": (torch.arange(10)[:4] if rank else torch.arange(4), {"nan": float("nan")}),
    }


def check_equal_values(c):
    import reshard

    root = shared_folder(c)
    for mode in ("small", "all"):
        c.run(f"equal, {mode}", lambda: reshard.save(os.path.join(root, mode), equal_states(c.rank), check_replicas=mode))
    for name in ("set", "object", "dict"):
        state = equal_states(c.rank)
        changed = {"set": {"other", *state["set"]}, "object": Settings({"other"}), "dict": {**state["dict"], "counts": {**state["dict"]["counts"], "aaa": 7}}}
        if c.rank == c.world - 1:
            state[name] = changed[name]
        text = c.raises(f"{name} differs", lambda: reshard.save(os.path.join(root, "x"), state), f"'{name}", kind=ValueError)
        c.true(f"{name} alone differs", all(f"'{other}" not in text for other in state if other != name), text)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    state = {"model": model, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    c.run("a training state", lambda: reshard.save(os.path.join(root, "training"), state, check_replicas="all"))
    remove(c, root)


def check_dtensors(c):
    """Replicas of DTensors, when they are asked for."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    mesh = init_device_mesh("cpu", (2, c.world // 2), mesh_dim_names=("a", "b"))
    row, column = mesh.get_coordinate()
    for placements, number in (((Replicate(), Shard(0)), column), ((Shard(1), Replicate()), row), ((Replicate(), Replicate()), 0)):
        good = DTensor.from_local(torch.full((4, 6), float(number)), mesh, placements, run_check=False)
        c.run(f"{placements}", lambda: reshard.save(path, {"w": good}, check_replicas="all", overwrite=True))
        bad = DTensor.from_local(torch.full((4, 6), float(number + (c.rank == 0))), mesh, placements, run_check=False)
        is_shown = c.world > 2 or isinstance(placements[1], Shard) or placements == (Replicate(), Replicate())
        if is_shown:
            c.raises(f"{placements} differ", lambda: reshard.save(path, {"w": bad}, check_replicas="all", overwrite=True), "'w'", kind=ValueError)
        c.run(f"{placements}, not asked", lambda: reshard.save(path, {"w": bad}, overwrite=True))
    remove(c, root)


def check_rank_local(c):
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")

    def own(rank):
        return {"rng": {"cpu": torch.full((4,), float(rank)), "python": ("state", rank)}, "w": torch.ones(2), "seen": [rank, rank + 1]}

    patterns = ["rng*", "seen"]
    c.run("save", lambda: reshard.save(path, own(c.rank), rank_local=patterns))
    state = own(100)
    report = c.run("load", lambda: reshard.load(path, state, rank_local=patterns))
    c.equal("the tensor", state["rng"]["cpu"], torch.full((4,), float(c.rank)))
    c.true("the values", (state["rng"]["python"], state["seen"]) == (("state", c.rank), [c.rank, c.rank + 1]), state)
    c.true("nothing is unexpected", report["unexpected"] == [], report)
    state = own(100)
    reader, planner = reshard.dcp.StorageReader(path), reshard.dcp.LoadPlanner(rank_local=patterns)
    c.run("dcp", lambda: dcp.load(state, storage_reader=reader, planner=planner))
    c.true("by dcp", state["seen"] == [c.rank, c.rank + 1], state)
    flat = {"rng": {"cpu": {"rank_1": torch.zeros(4)}, "python": {"rank_0": None}}}
    c.run("PyTorch reads it", lambda: dcp.load(flat, checkpoint_id=path))
    c.true("PyTorch's", flat["rng"]["cpu"]["rank_1"].tolist() == [1.0] * 4 and flat["rng"]["python"]["rank_0"] == ("state", 0), flat)
    c.raises("without the patterns", lambda: reshard.load(path, own(0)), "rank_local=['", kind=ValueError)
    c.raises("all or none", lambda: reshard.load(path, own(0), rank_local=["*"]), "w.rank_", "without rank_local", kind=ValueError)
    for where in (lambda: reshard.save(path + "2", own(c.rank), rank_local=["rgn*"]), lambda: reshard.load(path, own(0), rank_local=["rgn*"])):
        c.raises("a pattern for nothing", where, "'rgn*' matches no name", kind=ValueError)
    taken = {"rng": c.rank, "rng.rank_1": 5}
    c.raises("a name is taken", lambda: reshard.save(path + "2", taken, rank_local=["rng"]), "rng.rank_1", "rename", kind=(ValueError, RuntimeError))
    uneven = ["rng"] if c.rank else []
    c.raises("on some ranks", lambda: reshard.save(path + "2", {"rng": 1}, rank_local=uneven), "rng is rank-local", kind=ValueError)
    mesh = init_device_mesh("cpu", (c.world,))
    w = DTensor.from_local(torch.ones(2), mesh, [Shard(0)])
    c.raises("a DTensor", lambda: reshard.save(path + "2", {"w": w}, rank_local=["w"]), "w is a DTensor", kind=ValueError)
    # By fewer ranks: the first of them.
    pair = dist.new_group([0, 1])
    if c.rank < 2:
        fewer = os.path.join(root, "fewer")
        c.run("by two", lambda: reshard.save(fewer, own(c.rank), rank_local=patterns, group=pair))
    dist.barrier()
    if c.world > 2:
        fewer = os.path.join(root, "fewer")
        state = own(100)
        c.raises("by more", lambda: reshard.load(fewer, state, rank_local=patterns), "rank_", "saved by 2 ranks", "strict=False", kind=(ValueError, RuntimeError))
        report = c.run("not strict", lambda: reshard.load(fewer, state, rank_local=patterns, strict=False))
        wanted = c.rank if c.rank < 2 else 100
        c.equal("not strict", state["rng"]["cpu"], torch.full((4,), float(wanted)))
        c.true("missing", report["missing"] == sorted(f"{name}.rank_{r}" for r in (2, 3) for name in ("rng.cpu", "rng.python", "seen")), report)
        if c.rank < 2:
            state = own(100)
            report = c.run("by fewer", lambda: reshard.load(path, state, rank_local=patterns, group=pair))
            c.true("by fewer", state["seen"] == [c.rank, c.rank + 1] and len(report["unexpected"]) == 6, state)
    remove(c, root)


class ReplicasTest(ChecksTest):
    def test_two_ranks(self):
        self.on_ranks(2, [check_differences, check_equal_values, check_dtensors, check_rank_local], timeout=120)

    def test_four_ranks(self):
        self.on_ranks(4, [check_equal_values, check_dtensors, check_rank_local], timeout=120)


if __name__ == "__main__":
    main("replicas")
