#!/usr/bin/env python3
"""torch.distributed.checkpoint with its own storage and with reshard's, in one run.

    dcp_bench.py [RANKS]      4 by default, over Gloo

Each line: what, PyTorch's milliseconds, ours, how many times as long PyTorch takes. Medians of three, the two in turn,
of the slowest rank; checkpoints in memory where the machine has a filesystem there. Saves do not sync.
"""

import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/pytorch"))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import gloo

RUNS = 3
STATES = [("16 tensors of 16 MiB", 16, 2048), ("500 tensors of 16 KiB", 500, 64)]


def seconds_of(function):
    dist.barrier()
    begin = time.perf_counter()
    function()
    seconds = torch.tensor([time.perf_counter() - begin])
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item()


def in_turn(what, theirs, ours):
    times = [(seconds_of(theirs), seconds_of(ours)) for _ in range(RUNS + 1)][1:]
    a, b = (statistics.median(column) for column in zip(*times))
    return f"{what:48} {a * 1e3:9.1f} {b * 1e3:9.1f} {a / b:6.2f}"


def state_of(mesh, count, size, placement):
    rows = size
    return {
        f"layers.{i}.weight": DTensor.from_local(
            torch.rand(rows // mesh.size(), size) if placement.dim == 0 else torch.rand(rows, size // mesh.size()), mesh, [placement]
        )
        for i in range(count)
    }


def measure(rank, world, folder):
    import reshard

    warnings.filterwarnings("ignore")
    mesh = init_device_mesh("cpu", (world,))
    lines = []
    for name, count, size in STATES:
        rows, columns = (state_of(mesh, count, size, Shard(dim)) for dim in (0, 1))
        torch_path, path = os.path.join(folder, f"torch{count}"), os.path.join(folder, f"reshard{count}")
        lines.append(
            in_turn(
                f"save, {name}",
                lambda: dcp.save(rows, storage_writer=dcp.FileSystemWriter(torch_path, sync_files=False)),
                lambda: dcp.save(rows, storage_writer=reshard.dcp.StorageWriter(path, sync_files=False)),
            )
        )
        for what, state in (("as saved", rows), ("rows to columns", columns)):
            load = lambda reader, planner=None: dcp.load(state, storage_reader=reader, planner=planner)
            torchs = lambda: load(dcp.FileSystemReader(torch_path))
            lines.append(in_turn(f"load, {name}, {what}", torchs, lambda: load(reshard.dcp.StorageReader(torch_path))))
            planned = lambda: load(reshard.dcp.StorageReader(torch_path), reshard.dcp.LoadPlanner())
            lines.append(in_turn("    with our planner", torchs, planned))
        read = lambda reader: reader.read_metadata().planner_data
        lines.append(
            in_turn(
                f"read_metadata, {count} tensors, {count * world} chunks",
                lambda: read(dcp.FileSystemReader(torch_path)),
                lambda: read(reshard.dcp.StorageReader(torch_path)),
            )
        )
    return lines


if __name__ == "__main__":
    gloo.load_library()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = tempfile.mkdtemp(prefix="reshard-dcp-bench-", dir=memory)
    try:
        ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 4
        print(*gloo.values(gloo.run_ranks(ranks, measure, root, timeout=600))[0], sep="\n")
    finally:
        shutil.rmtree(root, ignore_errors=True)
