#!/usr/bin/env python3
"""State dicts in which names share memory: tied weights, transposes, slices and other views; on ranks and alone."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from checks import ChecksTest, main
from shared_folder import remove, shared_folder

ROWS, COLUMNS = 9, 7


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(ROWS, COLUMNS)
        self.head = torch.nn.Linear(COLUMNS, ROWS, bias=False)
        self.head.weight = self.embed.weight


def weight(seed=0):
    return torch.arange(ROWS * COLUMNS, dtype=torch.float32).reshape(ROWS, COLUMNS) * 3 + seed


def checkpoint(c, root):
    """With what every case below takes from it."""
    path = os.path.join(root, "saved")
    w = weight()
    state = {"embed": w, "head": w.clone(), "wrong": weight(1), "t": w.t().contiguous(), "rows": w[2:6].clone(),
             "wrong_rows": weight(1)[2:6].clone(), "low": w[:5].clone(), "bits": w.view(torch.int32).clone()}
    if c.rank == 0:
        dcp.save(state, checkpoint_id=path, no_dist=True)
    dist.barrier()
    return path


def share_of(placement, rank, world):
    """Of `weight()`, what the rank has of it under the placement."""
    if isinstance(placement, Replicate):
        return weight()
    parts = weight().chunk(world, placement.dim)
    return parts[rank] if rank < len(parts) else weight().narrow(placement.dim, 0, 0)


def other(placement):
    return Shard(1 - placement.dim) if isinstance(placement, Shard) else placement


def check_plain(c):
    import reshard

    root = shared_folder(c)
    path = checkpoint(c, root)
    for read in ("once", "own"):
        def load(what, state, **more):
            return c.run(f"{what}, {read}", lambda: reshard.load(path, state, read=read, **more))

        x = torch.zeros(ROWS, COLUMNS)
        report = load("tied", {"embed": x, "head": x})
        c.equal("tied", x, weight())
        c.true("both count", report["tensors"] == 2, report)
        x = torch.zeros(ROWS, COLUMNS)
        report = load("one of them is stored", {"absent": x, "embed": x, "z": x}, strict=False)
        c.equal("one of them is stored", x, weight())
        c.true("none is missing", report["missing"] == [] and report["tensors"] == 3, report)
        x = torch.zeros(ROWS, COLUMNS)
        load("one of them is stored, strict", {"absent": x, "embed": x})
        c.equal("one of them is stored, strict", x, weight())
        x = torch.zeros(ROWS, COLUMNS)
        load("all views", {"t": x.t(), "rows": x[2:6], "embed": x, "bits": x.view(torch.int32)})
        c.equal("all views", x, weight())
        x = torch.zeros(ROWS, COLUMNS)
        load("slices", {"low": x[:5], "rows": x[2:6]})
        c.equal("slices", x[:6], weight()[:6])
        c.equal("slices, the rest", x[6:], torch.zeros(ROWS - 6, COLUMNS))
        x = torch.zeros(ROWS, COLUMNS, dtype=torch.bfloat16)
        load("cast", {"embed": x, "t": x.t()}, cast=True)
        c.equal("cast", x, weight().bfloat16())
        for names in (("embed", "wrong"), ("t", "wrong"), ("rows", "wrong"), ("embed", "wrong_rows"), ("low", "wrong_rows")):
            x = torch.zeros(ROWS, COLUMNS)
            views = {"t": x.t(), "rows": x[2:6], "wrong_rows": x[2:6], "low": x[:5]}
            state = {name: views.get(name, x) for name in names}
            c.raises(f"{names} differ", lambda: reshard.load(path, state, read=read), *(f'"{name}"' for name in names), kind=ValueError)
        x, y = torch.zeros(ROWS, COLUMNS), torch.zeros(ROWS, COLUMNS)
        load("tied on one rank", {"embed": x, "head": x if c.rank == 0 else y})
        c.equal("tied on one rank", x, weight())
        c.equal("not tied elsewhere", y, torch.zeros_like(y) if c.rank == 0 else weight())
        c.raises("stored for one rank", lambda: reshard.load(path, {"embed": x, "absent": x if c.rank == 0 else y}, read=read),
                 '"absent" is not in', kind=ValueError)
        c.raises("of another form", lambda: reshard.load(path, {"embed": x, "absent": x.t()}, read=read),
                 '"absent" is not in', kind=ValueError)
        # Each rank its own names, as stages of a pipeline have them.
        x = torch.zeros(ROWS, COLUMNS)
        load("stages", {"embed": x} if c.rank == 0 else {"head": x, "z": x})
        c.equal("stages", x, weight())
    remove(c, root)


def check_dtensors(c):
    import reshard

    root = shared_folder(c)
    path = checkpoint(c, root)
    mesh = init_device_mesh("cpu", (c.world,))
    for read in ("once", "own"):
        for placement in (Shard(0), Shard(1), Replicate()):
            def dtensor(local, where=placement, rows=ROWS, columns=COLUMNS):
                return DTensor.from_local(local, mesh, [where], run_check=False, shape=(rows, columns), stride=(columns, 1))

            what = f"{placement}, {read}"
            share = share_of(placement, c.rank, c.world)
            x = dtensor(torch.zeros_like(share))
            report = c.run(what, lambda: reshard.load(path, {"embed": x, "head": x, "absent": x}, read=read))
            c.equal(what, x._local_tensor, share)
            c.true(f"{what}: all count", report["tensors"] == 3, report)
            local = torch.zeros_like(share)
            state = {"embed": dtensor(local), "t": dtensor(local.t(), other(placement), COLUMNS, ROWS)}
            c.run(f"transposed, {what}", lambda: reshard.load(path, state, read=read))
            c.equal(f"transposed, {what}", local, share)
            x = dtensor(torch.zeros_like(share))
            state = {"embed": x, "wrong": x}
            kind = ValueError if share.numel() else dist.DistBackendError  # of a rank that has nothing of it
            c.raises(f"they differ, {what}", lambda: reshard.load(path, state, read=read), '"embed" and "wrong"', kind=kind)
            x = dtensor(torch.zeros_like(share))
            state = {"embed": x, "head": x}
            planner = reshard.dcp.LoadPlanner(read=read)
            c.run(f"dcp, {what}", lambda: dcp.load(state, storage_reader=reshard.dcp.StorageReader(path), planner=planner))
            c.equal(f"dcp, {what}", x._local_tensor, share)
    remove(c, root)


def check_modules(c):
    """Saved under both names, loaded by reshard and by PyTorch into a model that is tied and one that is not."""
    import reshard

    root = shared_folder(c)
    path = os.path.join(root, "tied")
    torch.manual_seed(4)
    model = Tied()
    wanted = model.embed.weight.detach().clone()
    c.run("save", lambda: reshard.save(path, {"model": model}))
    torch.manual_seed(5)
    again = Tied()
    c.run("load", lambda: reshard.load(path, {"model": again}))
    c.equal("load", again.embed.weight.detach(), wanted)
    c.true("still tied", again.head.weight is again.embed.weight)
    apart = {"model": {"embed.weight": torch.zeros(ROWS, COLUMNS), "head.weight": torch.zeros(ROWS, COLUMNS)}}
    c.run("torch", lambda: dcp.load(apart, checkpoint_id=path))
    for name, tensor in apart["model"].items():
        c.equal(f"torch, {name}", tensor, wanted)
    remove(c, root)


class TiedTest(ChecksTest):
    def test_two_ranks(self):
        self.on_ranks(2, [check_plain, check_dtensors, check_modules], timeout=120)

    def test_four_ranks(self):
        self.on_ranks(4, [check_plain, check_dtensors], timeout=120)

    def test_alone(self):
        import reshard

        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "saved")
            reshard.save(path, {"embed": weight(), "t": weight().t(), "wrong": weight(1)})
            for read in ("once", "own"):
                x = torch.zeros(ROWS, COLUMNS)
                reshard.load(path, {"embed": x, "head": x, "t": x.t()}, read=read)
                self.assertTrue(torch.equal(x, weight()))
                with self.assertRaisesRegex(ValueError, '"embed" and "wrong"'):
                    reshard.load(path, {"embed": x, "wrong": x}, read=read)
                ChecksTest.checks += 2

    def test_staged(self):
        """What would be copied to a device and back: tensors that share memory there share it on the host, too."""
        from reshard.torch.state import tied

        x = torch.zeros(5, 6)
        apart = torch.zeros(3)
        locals_ = [x, x.t(), x[1:3], apart, x.view(torch.int16)[:, 2:4], torch.zeros(0)]
        host = tied.staged(locals_, lambda local: True)
        self.assertTrue(all(got.shape == local.shape and got.dtype == local.dtype for got, local in zip(host, locals_)))
        host[0].copy_(torch.arange(30.0).reshape(5, 6))
        self.assertTrue(torch.equal(host[1], host[0].t()) and torch.equal(host[2], host[0][1:3]))
        self.assertTrue(torch.equal(host[4], host[0].view(torch.int16)[:, 2:4]))
        self.assertFalse({host[0].data_ptr(), host[3].data_ptr()} & {local.data_ptr() for local in locals_})
        self.assertEqual(tied.clusters_of(locals_), [[0, 1, 2, 4]])
        self.assertEqual(tied.together(["a", "b", "c", "d"], [["a", "c"], ["c", "d"]]), [["a", "c", "d"], ["b"]])
        self.assertIs(tied.staged([x], lambda local: False)[0], x)
        ChecksTest.checks += 6


if __name__ == "__main__":
    main("tied")
