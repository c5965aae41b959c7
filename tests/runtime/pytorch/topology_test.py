#!/usr/bin/env python3
"""reshard.set_topology and RESHARD_TOPOLOGY: what operators then do, and that ranks have to agree."""

import json
import os
import tempfile

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import gloo
from checks import ChecksTest, main

OPS = torch.ops.reshard
# Two nodes of two ranks: 1000 times slower between them.
NODES = {"levels": [{"devices": 2, "gb_per_s": 100, "latency_us": 1}, {"gb_per_s": 0.1, "latency_us": 1}]}
GATHER = ("{X:4}", "[<X>4096, 64]", "[4096, 64]")


def gathered(c):
    """The result of an all-gather, and the operations that it took."""
    import reshard

    before = [operation["number"] for operation in reshard.recent_operations()]
    whole = torch.arange(4096.0 * 64).reshape(4096, 64)
    out = OPS.redistribute(whole.chunk(4)[c.rank].contiguous(), *GATHER, c.group)
    c.equal("gathered", out, whole)
    names = [o["operation"] for o in reshard.recent_operations() if o["number"] not in before]
    return [name for name in names if name != "agreement"]


def check_effect(c):
    import reshard

    flat = gathered(c)
    c.true("flat", len(flat) == 1, flat)
    reshard.set_topology(NODES)
    c.true("two nodes", len(gathered(c)) > 1, "as if all were equally far")
    reshard.set_topology("flat")
    c.true("flat again", gathered(c) == flat)
    for topology in (NODES, NODES, None):
        reshard.set_topology(topology)
        gathered(c)
    c.true("forgotten", gathered(c) == flat)


def check_chunks(c):
    """Steps within nodes and between them at the same time: an exchange a turn."""
    import reshard

    reshard.set_topology({"levels": [{"devices": 2, "gb_per_s": 1, "latency_us": 1}, {"gb_per_s": 0.5, "latency_us": 1}]})
    mesh = DeviceMesh("cpu", torch.arange(4))
    x = distribute_tensor(torch.arange(4096.0 * 64).reshape(4096, 64), mesh, [Shard(0)])
    facts = reshard.plan(x, [Replicate()])
    turns = len(facts["steps"]) + facts["chunks"]["count"] - 1
    operations = gathered(c)
    c.true("a turn each", len(operations) == turns and turns > 2, (operations, turns))
    whole = reshard.redistribute(x, [Replicate()])
    c.equal("of a DTensor", whole.to_local(), torch.arange(4096.0 * 64).reshape(4096, 64))
    c.true("not asked to", "chunks" not in json.loads(reshard.plan(x, [Replicate()], overlap=False).to_json()))
    out = torch.empty(4096, 128)[:, ::2]
    bound = reshard.bind([x.to_local()], [out], "{X:4}", [GATHER[1]], [GATHER[2]])
    for _ in range(3):
        out.zero_()
        bound.run()
        c.equal("bound, strided", out, torch.arange(4096.0 * 64).reshape(4096, 64))
    gradients = torch.arange(4096.0 * 64).reshape(4096, 64)
    partial = DTensor.from_local(gradients * (c.rank + 1), mesh, [Partial()])
    facts = reshard.plan(partial, [Replicate()])
    ops = [step["op"] for step in facts["steps"]]
    c.true("reduced in chunks", facts["chunks"]["count"] > 1 and ops.count("ReduceScatter") == 2, facts)
    c.equal("reduced", reshard.redistribute(partial, [Replicate()]).to_local(), gradients * 10)
    reshard.set_topology(None)


def check_groups(c):
    """A group sees the network by its members' global ranks."""
    import reshard

    reshard.set_topology(NODES)
    mesh = DeviceMesh("cpu", torch.tensor([[0, 2], [1, 3]]), mesh_dim_names=("node", "pair"))
    whole = torch.arange(64.0).reshape(8, 8)
    for name in ("node", "pair"):
        x = distribute_tensor(whole, mesh[name], [Shard(0)])
        y = reshard.redistribute(x, [Shard(1)])
        c.equal(name, y.to_local(), whole.chunk(2, 1)[mesh.get_local_rank(name)])
    reshard.set_topology(None)


def check_plans(c):
    import reshard

    mesh = DeviceMesh("cpu", torch.arange(4))
    x = distribute_tensor(torch.zeros(4096, 64), mesh, [Shard(0)])

    def levels(**options):
        return len(reshard.plan(x, [Shard(1)], **options)["options"]["topology"]["levels"])

    c.true("nothing told", levels() == 1)
    reshard.set_topology("dgx-h100")
    c.true("told", levels() == 2)
    c.true("by its name", reshard.plan(x, [Shard(1)])["options"]["topology"]["name"] == "dgx-h100")
    c.true("told otherwise", levels(topology="flat") == 1)
    c.true("of texts", len(reshard.plan("{X:4}", "[<X>4]", "[4]")["options"]["topology"]["levels"]) == 1)
    batch = reshard.plan_batch([x], [distribute_tensor(torch.zeros(4096, 64), mesh, [Shard(1)])])
    c.true("a batch", len(json.loads(batch.to_json())["options"]["topology"]["levels"]) == 2)
    c.raises("no such name", lambda: reshard.set_topology("nonsense"), "dgx-h100", kind=ValueError)
    c.raises("no such file", lambda: reshard.set_topology("no/such/file.json"), "no/such", kind=OSError)
    c.raises("no topology", lambda: reshard.set_topology({"levels": []}), "levels", kind=ValueError)
    c.true("and all is as before", levels() == 2)
    reshard.set_topology(None)


def check_disagreement(c):
    """Whoever was told something else: everybody gets an error that names it, and can go on."""
    import reshard

    other = {"levels": [{"gb_per_s": 7, "latency_us": 1}]}  # no domains, so that the plans are the same
    for topology in (NODES, other):
        reshard.set_topology(topology if c.rank == 2 else None)
        c.raises("told something else", lambda: gathered(c), "topology")
        reshard.set_topology(None)
        c.run("afterwards", lambda: gathered(c))


def operations(rank, _world):
    import reshard

    x = torch.ones(1024, 64) * rank
    try:
        OPS.redistribute(x, *GATHER, gloo.world_name())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [o["operation"] for o in reshard.recent_operations() if o["operation"] != "agreement"]


def with_environment_of_rank_1(rank, world, value):
    if rank == 1:
        os.environ["RESHARD_TOPOLOGY"] = value
    return operations(rank, world)


def check_calibration(c):
    """What it measures is a topology, the same on all ranks."""
    import reshard

    for nodes, devices in ((None, [None]), ((2, 2), [2, None]), ((4, 1), [None])):
        topology = reshard.calibrate(nodes=nodes, size="1MiB", repeat=3)
        levels = topology["levels"]
        c.true("levels", [level.get("devices") for level in levels] == devices, topology)
        c.true("positive", all(level["gb_per_s"] > 0 and level["latency_us"] > 0 for level in levels), topology)
        everywhere = [None] * 4
        torch.distributed.all_gather_object(everywhere, topology)
        c.true("agreed", everywhere == [topology] * 4, everywhere)
        reshard.set_topology(topology)
        c.true("planned", len(gathered(c)) >= 1)
        reshard.set_topology(None)
    c.raises("too few", lambda: reshard.calibrate(nodes=(2, 3)), "the group has 4", kind=ValueError)
    c.raises("size", lambda: reshard.calibrate(size=5), "the size must be", kind=ValueError)


class TopologyTest(ChecksTest):
    def test_on_ranks(self):
        self.on_ranks(4, [check_effect, check_chunks, check_groups, check_plans, check_disagreement, check_calibration])

    def test_environment(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(NODES, file)
            file.flush()
            for value, steps in (("flat", 1), (file.name, 2), ("dgx-h100", 1)):
                with self.subTest(value=value):
                    for got in gloo.values(gloo.run_ranks(4, operations, env={"RESHARD_TOPOLOGY": value})):
                        self.assertIsInstance(got, list, got)
                        self.assertGreaterEqual(len(got), steps) if steps > 1 else self.assertEqual(len(got), 1)

    def test_wrong_environment(self):
        """Of one rank alone: the others do not wait for it."""
        for value, word in (("nonsense", "dgx-h100"), ("no/such/file.json", "RESHARD_TOPOLOGY")):
            outcomes = gloo.values(gloo.run_ranks(4, with_environment_of_rank_1, value))
            for got in outcomes:
                self.assertIn("RESHARD_TOPOLOGY", got)
            self.assertIn(word, outcomes[1])


if __name__ == "__main__":
    main("topology")
