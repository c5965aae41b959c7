#!/usr/bin/env python3
"""Plans as objects, bytes counted against bytes planned, and the record of recent operations, on Gloo ranks."""

import os
import tempfile
import time

import torch
import torch.distributed as dist

import gloo
from checks import ChecksTest, main
from reference import Layout, Mesh

OPS = torch.ops.reshard
PAIRS = [
    ("{X:4}", "[<X>8, 8]", "[8, <X>8]", None),
    ("{X:4}", "[<X>6]", "[6]", None),
    ("{X:4}", "[6]", "[<X>6]", None),
    ("{X:2,Y:2}", "[<X,Y>512, 16]", "[<Y,X>512, 16]", None),
    ("{X:4}", "[8, 3] sum<X>", "[<X>8, 3]", None),
    ("{X:4}", "[8, 3] sum<X>", "[8, 3]", None),
    ("{X:4}", "[<X>7]", "[<Y>7]", "{Y:2}@[3,1]"),
    ("{X:4}", "[<X>8]", "[<X>8]", None),
    ("{X:2,Y:2}", "[<X>9, <Y>5]", "[<Y>9, <X>5]", None),
]


def check_bytes(c):
    """What each call received, all ranks together and the worst, is what its plan says."""
    import reshard

    for mesh, source, target, other in PAIRS:
        what = f"{mesh} {source} -> {other or ''} {target}"
        layout = Layout(source, Mesh(mesh))
        x = torch.ones(layout.local_shape(c.rank))
        c.run(what, lambda: OPS.redistribute(x, mesh, source, target, c.group, other))
        received = [None] * c.world
        dist.all_gather_object(received, reshard.last_timings()["received_bytes"])
        plan = reshard.plan(mesh, source, target, target_mesh=other, dtype=torch.float32)
        totals = plan["totals"]
        c.true(what, plan["schema"] == "reshard.plan/1", plan["schema"])
        c.true(
            what,
            [max(received), sum(received)] == [totals["recv_bytes_max"], totals["recv_bytes_total"]],
            f"{received}, planned {totals}",
        )


def check_plan(c):
    import reshard

    plan = reshard.plan("{X:2,Y:2}", "[<X>8, 8]", "[<Y>8, 8]", dtype="f32", objective="bytes")
    c.true("plan", plan["options"]["objective"] == "bytes" and plan["shape"] == [8, 8] and plan["dtype"] == "f32", plan)
    c.true("plan by torch.dtype", reshard.plan("{X:2}", "[<X>8]", "[8]", dtype=torch.bfloat16)["dtype"] == "bf16")
    c.raises("bad text", lambda: reshard.plan("{X:2}", "[<Q>8]", "[8]"), "Q")
    c.raises("unknown option", lambda: reshard.plan("{X:2}", "[<X>8]", "[8]", nonsense=1), "nonsense")


def check_recent_operations(c):
    import reshard

    OPS.redistribute(torch.ones(2, 8), "{X:4}", "[<X>8, 8]", "[8, <X>8]", c.group)
    operations = reshard.recent_operations()
    c.true(
        "recent operations", operations and all(o["state"] == "done" and o["operation"] for o in operations), operations
    )
    c.true(
        "numbered",
        [o["number"] for o in operations]
        == list(range(operations[0]["number"], operations[0]["number"] + len(operations))),
        operations,
    )
    c.true("in time", all(o["begin_us"] <= o["end_us"] <= time.time() * 1e6 + 1e6 for o in operations), operations)


def after_a_loss(rank, _world):
    import reshard

    OPS.all_reduce(torch.ones(2), "sum", gloo.world_name())
    if rank == 1:
        time.sleep(600)
    try:
        OPS.all_reduce(torch.ones(2), "sum", gloo.world_name())
    except RuntimeError as error:
        return str(error), reshard.recent_operations()
    return "no error", []


def logged(rank, _world):
    """What this rank has written to stderr, while rank 1 comes late to the second operation."""
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        for _ in range(2):
            OPS.redistribute(torch.ones(2, 8), "{X:3}", "[<X>6, 8]", "[6, 8]", gloo.world_name())
            time.sleep(7 if rank == 1 else 0)
        OPS.all_reduce(torch.ones(2), "sum", gloo.world_name())
        file.seek(0)
        return file.read().decode()


class DiagnosticsTest(ChecksTest):
    def test_log(self):
        info, debug, off = gloo.values(gloo.run_ranks(3, logged, env={"RESHARD_LOG": ["info", "debug", "off"]}))
        self.assertRegex(info, r"reshard \d\d:\d\d:\d\d\.\d{3} \w+ \d+ info: rank 0 of 3 has met all others; all ranks share memory")
        self.assertRegex(info, r"rank 0 plans \[2<X>6, 8\] to \[6, 8\]: AllGather; a device receives at most 128 bytes, lower_bound")
        self.assertRegex(info, r"rank 0 of the group has waited [5-7] s for rank 1 in operation \d+, ")
        self.assertNotIn("debug:", info)
        self.assertRegex(debug, r"debug: operation \d+, AllReduce of \d+ bytes, begins on rank 1 of 3")
        self.assertRegex(debug, r"debug: operation \d+, AllReduce, ended on rank 1 after ")
        self.assertEqual("", off)

    def test_on_ranks(self):
        self.on_ranks(4, [check_bytes, check_plan, check_recent_operations])

    def test_after_a_loss(self):
        outcomes = gloo.run_ranks(3, after_a_loss, victims=(1,), timeout=20, env={"RESHARD_TIMEOUT_MS": "1000"})
        for outcome in outcomes:
            if outcome.rank != 1:
                error, operations = gloo.values([outcome])[0]
                self.assertIn("rank 1", error)
                self.assertTrue(operations)
                self.assertNotEqual("done", operations[-1]["state"])
                self.assertIn("rank 1", operations[-1]["error"])


if __name__ == "__main__":
    main("diagnostics")
