#!/usr/bin/env python3
"""Checkpoints on disk and in jobs, side by side with `cp -r` and PyTorch, in one run.

    build/venv/bin/python tests/bench/convert_bench.py [--reshard build/full/bin/reshard] [--mib 2048] [--rounds 5]

A model of 2048 x 4096 floats a tensor, saved by PyTorch on a mesh of 2 x 2 ranks as [Shard(0), Shard(1)], on a
filesystem in memory. Times are medians over rounds that take turns; ratios are medians of the ratios within a round.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/runtime/pytorch"))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import gloo

ROWS, COLUMNS = 2048, 4096
LOADS = [
    "torch.distributed.checkpoint.load",  # compares no checksums
    "reshard.load, once",
    "reshard.load, own",
    "reshard.load, unchecked",
    "preadv alone",
]
PYTHON_WAY = """
import sys, time, os
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
def peak(): return int(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1])
before, start = peak(), time.perf_counter()
dcp_to_torch_save(sys.argv[1], sys.argv[2] + '.pt')
torch_save_to_dcp(sys.argv[2] + '.pt', sys.argv[2])
seconds = time.perf_counter() - start
os.remove(sys.argv[2] + '.pt')
print(seconds, (peak() - before) / 1024)
"""


def state(tensors, mesh, placements, fill):
    torch.manual_seed(mesh.get_rank())
    make = torch.randn if fill else torch.zeros
    shape = [ROWS, COLUMNS]
    for size, placement in zip(mesh.shape, placements):
        shape[placement.dim] //= size
    return {f"layer{i}.weight": DTensor.from_local(make(shape), mesh, placements, run_check=False) for i in range(tensors)}


def save(rank, world, path, tensors):
    torch.set_num_threads(1)
    dcp.save(state(tensors, init_device_mesh("cpu", (2, 2)), [Shard(0), Shard(1)], True), checkpoint_id=path)


def in_turns(ways, rounds, after=lambda: None):
    """Seconds of each way, each round, on all ranks together; the first round is for nothing."""
    times = []
    for _ in range(rounds + 1):
        times.append([])
        for way in ways:
            dist.barrier()
            start = time.perf_counter()
            way()
            dist.barrier()
            times[-1].append(time.perf_counter() - start)
            after()
    return times[1:]


def read_only(path, rank, world, state_dict):
    """Reads this rank's share of a checkpoint's bytes into the memory of its tensors: what no load can do without."""
    blocks = [memoryview(t.to_local().numpy().reshape(-1)).cast("B") for t in state_dict.values()]
    begin = rank * sum(len(block) for block in blocks)  # of this rank's bytes, in all files one after the other
    files = []
    for file in sorted(pathlib.Path(path).glob("*.distcp")):
        files.append((os.open(file, os.O_RDONLY), file.stat().st_size))
    for block in blocks:
        start = 0  # of the file
        for descriptor, size in files:
            while len(block) > 0 and start <= begin < start + size:
                count = os.preadv(descriptor, [block[: start + size - begin]], begin - start)
                block, begin = block[count:], begin + count
            start += size
    for descriptor, _ in files:
        os.close(descriptor)


def write_only(path, rank, state_dict):
    """Writes this rank's bytes into a file: what no save can do without."""
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, str(rank)), "wb", buffering=0) as file:
        for tensor in state_dict.values():
            file.write(memoryview(tensor.to_local().numpy().reshape(-1)).cast("B"))


def load(rank, world, path, tensors, rounds):
    """Seconds of each of LOADS, each round."""
    import reshard

    torch.set_num_threads(1)
    target = state(tensors, init_device_mesh("cpu", (world,)), [Shard(1)], False)
    ways = [
        lambda: dcp.load(target, checkpoint_id=path),
        lambda: reshard.load(path, target),
        lambda: reshard.load(path, target, read="own"),
        lambda: reshard.load(path, target, check=False),
        lambda: read_only(path, rank, world, target),
    ]
    return in_turns(ways, rounds)


def job_save(rank, world, path, tensors, rounds):
    """[dcp.save, reshard.save, writing alone] seconds, each round, where nothing was before."""
    import reshard

    torch.set_num_threads(1)
    source = state(tensors, init_device_mesh("cpu", (2, 2)), [Shard(0), Shard(1)], True)
    ways = [
        lambda: dcp.save(source, checkpoint_id=path),
        lambda: reshard.save(path, source),
        lambda: write_only(path, rank, source),
    ]
    return in_turns(ways, rounds, lambda: rank == 0 and shutil.rmtree(path))


def timed(*command):
    start = time.perf_counter()
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - start, out


def row(name, seconds, payload, ratio, note=""):
    print(f"{name:44}{statistics.median(seconds):9.2f}{payload / 2**30 / statistics.median(seconds):9.2f}"
          f"{statistics.median(ratio):9.2f}  {note}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reshard", default=str(ROOT / "build/full/bin/reshard"))
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    parser.add_argument("--skip-python", action="store_true")
    arguments = parser.parse_args()
    gloo.load_library()
    tensors = max(1, arguments.mib * 2**20 // (4 * ROWS * COLUMNS))
    payload = tensors * 4 * ROWS * COLUMNS
    with tempfile.TemporaryDirectory(dir=arguments.directory) as root:
        source, target = os.path.join(root, "source"), os.path.join(root, "target")
        gloo.values(gloo.run_ranks(4, save, source, tensors, timeout=600))
        ways = {"cp -r": ["cp", "-r", source, target]}
        flags = [arguments.reshard, "checkpoint", source, target, "--json"]
        ways["reshard, rows over 4"] = [*flags, "--mesh", "{x:4}", "--layout", "[<x>, ...]"]
        ways["reshard, columns over 4"] = [*flags, "--mesh", "{x:4}", "--layout", "[*, <x>]"]
        ways["reshard, as it is: 2 x 2"] = [*flags, "--mesh", "{x:2,y:2}", "--layout", "[<x>, <y>]"]
        ways["reshard to safetensors"] = [*flags, "--format", "safetensors"]
        if not arguments.skip_python:
            ways["dcp_to_torch_save + torch_save_to_dcp"] = [sys.executable, "-c", PYTHON_WAY, source, target]
        seconds = {name: [] for name in ways}
        peaks = {name: 0.0 for name in ways}
        for _ in range(arguments.rounds):
            for name, command in ways.items():
                took, out = timed(*command)
                if name.startswith("reshard"):
                    peaks[name] = max(peaks[name], json.loads(out)["peak_resident_bytes"] / 2**20)
                elif name.startswith("dcp"):
                    took, peak = map(float, out.split())
                    peaks[name] = max(peaks[name], peak)
                seconds[name].append(took)
                shutil.rmtree(target)
        print(f"{payload / 2**30:.2f} GiB, 4 ranks wrote it as 2 x 2, {os.cpu_count()} cores\n")
        print(f"{'offline':44}{'seconds':>9}{'GiB/s':>9}{'/ cp -r':>9}  peak memory")
        for name, times in seconds.items():
            ratio = [t / c for t, c in zip(times, seconds["cp -r"])]
            row(name, times, payload, ratio, f"{peaks[name]:.0f} MiB" if peaks[name] else "")
        for world in (2, 4):
            times = gloo.values(gloo.run_ranks(world, load, source, tensors, arguments.rounds, timeout=600))[0]
            print(f"\n{f'into {world} ranks, columns':44}{'seconds':>9}{'GiB/s':>9}{'/ torch':>9}")
            for i, name in enumerate(LOADS):
                row(name, [t[i] for t in times], payload, [t[i] / t[0] for t in times])
        times = gloo.values(gloo.run_ranks(4, job_save, target, tensors, arguments.rounds, timeout=600))[0]
        print(f"\n{'from 4 ranks, 2 x 2':44}{'seconds':>9}{'GiB/s':>9}{'/ torch':>9}")
        for i, name in enumerate(("torch.distributed.checkpoint.save", "reshard.save", "write alone")):
            row(name, [t[i] for t in times], payload, [t[i] / t[0] for t in times])
    best = [statistics.median([c / t for t, c in zip(seconds[n], seconds["cp -r"])]) for n in seconds if n.startswith("reshard")]
    print("\nTarget: reshard checkpoint >= 0.8 x cp -r: " + ", ".join(f"{b:.2f}" for b in best))


if __name__ == "__main__":
    main()
