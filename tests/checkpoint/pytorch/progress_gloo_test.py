#!/usr/bin/env python3
"""How far loads and saves are, on Gloo ranks: what is told, on which thread, and what an exception there ends."""

import contextlib
import importlib
import io
import os
import tempfile
import threading
import unittest.mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import gloo
from checks import ChecksTest, main
from shared_folder import remove, shared_folder


class Calls:
    """Remembers them, and raises at the one with that number."""

    def __init__(self, failing=None, error=None):
        self.calls, self.threads, self.failing, self.error = [], set(), failing, error

    def __call__(self, done, total):
        self.calls.append((done, total))
        self.threads.add(threading.get_ident())
        if len(self.calls) - 1 == self.failing:
            raise self.error

    def check(self, c, what, total):
        done = [call[0] for call in self.calls]
        c.true(f"{what}: one total", {call[1] for call in self.calls} == {total}, (self.calls, total))
        c.true(f"{what}: from nothing to all", done and done[0] == 0 and done[-1] == total and done == sorted(done), self.calls)


def state_of(fill, seed=0):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    full = (torch.arange(96 * 64, dtype=torch.float32) + seed).reshape(96, 64)
    full = full if fill else torch.zeros_like(full)
    return {
        "blocks": distribute_tensor(full, mesh, [Shard(0), Shard(1)]),
        "replicas": distribute_tensor(full * 2, mesh, [Replicate(), Replicate()]),
        "first": distribute_tensor(full * 3, mesh["a"], [Shard(0)]),
        "step": 3 if fill else 0,
    }


def equal_states(c, what, got, wanted):
    for name in ("blocks", "replicas", "first"):
        c.equal(f"{what}, {name}", got[name].to_local(), wanted[name].to_local())
    c.true(f"{what}, step", got["step"] == wanted["step"])


def check_totals(c):
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    calls = Calls()
    saved = c.run("save", lambda: reshard.save(path, state_of(True), progress=calls))
    calls.check(c, "save", saved["written_bytes"])
    c.true("on this thread", calls.threads == {threading.get_ident()})
    calls = Calls()
    pending = c.run("behind", lambda: reshard.save_async(path + ".behind", state_of(True), progress=calls))
    calls.check(c, "behind", c.run("waited for", pending.wait)["written_bytes"])
    for read in ("once", "own"):
        calls, state = Calls(), state_of(False)
        report = c.run(f"load {read}", lambda: reshard.load(path, state, read=read, progress=calls))
        calls.check(c, f"load {read}", report["bytes"])
        c.true("on this thread", calls.threads == {threading.get_ident()})
        equal_states(c, f"load {read}", state, state_of(True))
    # Only one rank wants to know; and a rank that writes and reads nothing.
    calls = Calls()
    one = {"w": torch.ones(7, 3)}
    saved = c.run("one", lambda: reshard.save(path + ".one", one, progress=calls if c.rank == 2 else None))
    if c.rank == 2:
        calls.check(c, "one", saved["written_bytes"])
    calls = Calls()
    report = c.run("load one", lambda: reshard.load(path + ".one", one if c.rank == 1 else {}, progress=calls))
    calls.check(c, "load one", report["bytes"])
    c.raises("no function", lambda: reshard.load(path, {}, progress=3), "progress", kind=TypeError)
    remove(c, root)


def check_exceptions(c):
    """Of one rank of four, at each of its calls: raised there, heard of elsewhere, and nothing is left."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    c.run("first", lambda: reshard.save(path, state_of(True)))
    for culprit, error in ((1, ValueError("enough")), (0, KeyboardInterrupt()), (3, SystemExit(2))):
        for failing in (0, 1):
            what = f"rank {culprit}, {type(error).__name__}, call {failing}"
            mine = c.rank == culprit
            kind = type(error) if mine else RuntimeError
            texts = () if mine else (f"rank {culprit}", type(error).__name__)

            def calls():
                return Calls(failing, error) if mine else Calls()

            saves = lambda: reshard.save(path, state_of(True, 5), overwrite=True, progress=calls())
            raises(c, f"save, {what}", saves, kind, *texts)
            raises(c, f"save anew, {what}", lambda: reshard.save(path + ".new", state_of(True), progress=calls()), kind, *texts)
            raises(c, f"load, {what}", lambda: reshard.load(path, state_of(False), progress=calls()), kind, *texts)
            pending = c.run(f"behind, {what}", lambda: reshard.save_async(path + ".new", state_of(True), progress=calls()))
            raises(c, f"behind, {what}", pending.wait, kind, *texts)
            dist.barrier()
            c.true(f"{what}: nothing is left", os.listdir(root) == ["saved"], os.listdir(root))
    state = state_of(False)
    c.run("afterwards", lambda: reshard.load(path, state))
    equal_states(c, "the first one is still there", state, state_of(True))
    remove(c, root)


def raises(c, what, function, kind, *texts):
    """As c.raises, also of what is no Exception."""

    def ordinary():
        try:
            function()
        except (KeyboardInterrupt, SystemExit) as error:
            raise RuntimeError(type(error).__name__) if kind is type(error) else ValueError(error) from None

    c.raises(what, ordinary, *texts, kind=kind if issubclass(kind, Exception) else RuntimeError)


def check_torch_checkpoints(c):
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "saved")
    for threads in (1, 3):
        calls = Calls()
        writer = reshard.dcp.StorageWriter(path, thread_count=threads, progress=calls)
        c.run("save", lambda: dcp.save(state_of(True), storage_writer=writer))
        calls.check(c, f"save, {threads} threads", calls.calls[-1][1])
        totals = [None] * c.world
        dist.all_gather_object(totals, calls.calls[-1][1])
        c.true("each element is written once", sum(totals) == 3 * 96 * 64 * 4, totals)
    calls, state = Calls(), state_of(False)
    c.run("load", lambda: dcp.load(state, storage_reader=reshard.dcp.StorageReader(path, progress=calls)))
    calls.check(c, "load", sum(state[name].to_local().nbytes for name in ("blocks", "replicas", "first")))
    equal_states(c, "load", state, state_of(True))
    calls, state = Calls(), state_of(False)
    reader = reshard.dcp.StorageReader(path, progress=calls)
    c.run("load together", lambda: dcp.load(state, storage_reader=reader, planner=reshard.dcp.LoadPlanner()))
    calls.check(c, "load together", sum(state[name].to_local().nbytes for name in ("blocks", "replicas", "first")))
    for failing in (0, 1):
        bad = lambda: Calls(failing, ValueError("enough")) if c.rank == 1 else None
        writer = reshard.dcp.StorageWriter(path, progress=bad())
        c.raises("save ends", lambda: dcp.save(state_of(True, 5), storage_writer=writer), "enough", kind=CheckpointException)
        reader = reshard.dcp.StorageReader(path, progress=bad())
        c.raises("load ends", lambda: dcp.load(state_of(False), storage_reader=reader), "enough", kind=CheckpointException)
    state = state_of(False)
    c.run("afterwards", lambda: reshard.load(path, state))
    equal_states(c, "the old one is still there", state, state_of(True))
    remove(c, root)


class ProgressTest(ChecksTest):
    def test_totals(self):
        self.on_ranks(4, [check_totals], timeout=120)

    def test_exceptions(self):
        self.on_ranks(4, [check_exceptions], timeout=120)

    def test_torch_checkpoints(self):
        self.on_ranks(4, [check_torch_checkpoints], timeout=120)

    def test_alone(self):
        """Without torch.distributed; tensors that are staged in several parts are told of as one."""
        import reshard

        loads = importlib.import_module("reshard.torch.load")

        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "saved")
            state = {f"w{i}": torch.full((50, 3), float(i)) for i in range(4)}
            reshard.save(path, state)
            calls = Calls()
            alike = {name: torch.zeros(50, 3) for name in state}
            each = lambda entries, *_: [[entry] for entry in entries]
            with unittest.mock.patch.object(loads, "_batches", each):
                report = reshard.load(path, alike, progress=calls)
            self.assertTrue(all(torch.equal(alike[name], state[name]) for name in state))
            done = [call[0] for call in calls.calls]
            self.assertEqual({call[1] for call in calls.calls}, {report["bytes"]})
            self.assertEqual((done[0], done[-1], sorted(done)), (0, 2400, done))
            self.assertTrue({600, 1200, 1800} <= set(done), done)
            ChecksTest.checks += 4

    def test_lines(self):
        """True prints the command's words, on rank 0 alone."""
        from reshard.torch import progress

        self.assertIsNone(progress.told_of(True, 1))
        out = io.StringIO()
        with contextlib.redirect_stderr(out), unittest.mock.patch.object(progress, "time") as time:
            time.monotonic.return_value = 0.0
            say = progress.told_of(True, 0)
            for now, done in ((0, 0), (2, 1 << 20), (6, 3 << 20), (7, 3 << 20), (8, 8 << 20), (9, 8 << 20)):
                time.monotonic.return_value = float(now)
                say(done, 8 << 20)
        self.assertEqual(out.getvalue(), "3 MiB of 8 MiB, 512 KiB/s, 10 s left\n8 MiB of 8 MiB, 1 MiB/s, 0 s left\n")
        ChecksTest.checks += 2


if __name__ == "__main__":
    main("progress")
