#!/usr/bin/env python3
"""A refit of a small model's weights against what is written by hand: the trainers gather every tensor whole, the first
one broadcasts it to all servers, and each takes its part; each tensor by itself, or all of them packed into one message.
Two jobs of Gloo ranks, all ways in the same run, medians.
With --loader the servers' parameters are plain tensors that a loader fills, which the refit records.

usage: refit_bench.py [--mib 64] [--layers 8] [--repeat 7] [--loader]
"""

import argparse
import logging
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/runtime/pytorch"), str(ROOT / "build/full/python")]

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

import gloo
import jobs

TRAINERS, SERVERS = 4, 2


def shapes(mib, layers):
    """Square weights of `layers` layers that have so many MiB in all, in f32."""
    width = int((mib * (1 << 20) / 4 / layers / 2) ** 0.5) // 8 * 8
    return {f"layers.{i}.{name}": (width, width) for i in range(layers) for name in ("wide", "narrow")}


def medians(functions, repeat, group):
    """Seconds of each, in turn, so that what else the machine does meets all of them."""
    seconds = [[] for _ in functions]
    for _ in range(repeat + 1):  # the first warms up
        for function, list_ in zip(functions, seconds):
            torch.ops.reshard.all_gather(torch.ones(1), 0, group)  # all begin together
            begun = time.perf_counter()
            function()
            torch.ops.reshard.all_gather(torch.ones(1), 0, group)  # and the slowest counts
            list_.append(time.perf_counter() - begun)
    return [statistics.median(list_[1:]) for list_ in seconds]


def run(member, mib, layers, repeat, with_loader):
    import reshard

    logging.getLogger("torch").setLevel(logging.ERROR)  # what it says of full_tensor
    trains = member.job == 0
    if trains:
        mesh = DeviceMesh("cpu", torch.arange(TRAINERS).view(2, 2), mesh_dim_names=("dp", "tp"))
        parts = [[Shard(0), Shard(0)], [Shard(0), Shard(1)]]
    else:
        mesh = DeviceMesh("cpu", torch.arange(SERVERS), mesh_dim_names=("tp",))
        parts = [[Shard(0)], [Shard(1)]]
    state = {}
    for place, (name, shape) in enumerate(shapes(mib, layers).items()):
        rows, columns = shape
        placements = parts[place % 2]
        for size, placement in zip(mesh.shape, placements):
            rows //= size if placement == Shard(0) else 1
            columns //= size if placement == Shard(1) else 1
        local = torch.full((rows, columns), float(member.rank))
        state[name] = DTensor.from_local(local, mesh, placements, run_check=False)
    dims = {name: tensor.placements[0].dim for name, tensor in state.items()}
    local = {name: tensor._local_tensor for name, tensor in state.items()}

    def load(pairs):
        """A server's part of each tensor, as engines take theirs."""
        for name, tensor in pairs:
            local[name].copy_(tensor.chunk(SERVERS, dims[name])[member.job_rank])

    side = {"source": state} if trains else {"target": local, "loader": load} if with_loader else {"target": state}
    with member.join() as joined:
        refit = reshard.Refit(**side, group=joined)
        whole = {n: torch.empty(shape) for n, shape in shapes(mib, layers).items()} if not trains else None
        wire = joined.group  # Gloo's own broadcast, over both jobs

        def by_hand():
            for n, tensor in state.items():
                full = tensor.full_tensor() if trains else whole[n]
                options = dist.BroadcastOptions()
                options.rootRank, options.rootTensor = 0, 0
                wire.broadcast([full], options).wait()
                if not trains:
                    load([(n, full)])

        sizes = [torch.Size(shape).numel() for shape in shapes(mib, layers).values()]
        flat = torch.empty(sum(sizes))

        def packed():
            if trains:
                torch.cat([tensor.full_tensor().view(-1) for tensor in state.values()], out=flat)
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = 0, 0
            wire.broadcast([flat], options).wait()
            if not trains:
                load((n, part.view(shape)) for (n, shape), part in zip(shapes(mib, layers).items(), flat.split(sizes)))

        everything = medians([refit, by_hand, packed], repeat, joined.span.name)
        moved = refit.timings()
        lately = reshard.Refit(**side, group=joined)
        shown = []

        def nothing():
            lately(changed_only=True)
            shown.append(lately.timings())

        def one_tensor():
            if trains:
                next(iter(state.values()))._local_tensor.add_(1)
            nothing()

        return [*everything, *medians([one_tensor, nothing], repeat, joined.span.name)], moved, shown[-2:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--loader", action="store_true")
    arguments = parser.parse_args()
    gloo.load_library()
    sizes = (arguments.mib, arguments.layers, arguments.repeat, arguments.loader)
    results = gloo.values(jobs.run_jobs([TRAINERS, SERVERS], run, *sizes, timeout=300))
    ours, theirs, together, one, none = (max(result[0][place] for result in results) for place in range(5))
    _, server, lately = results[-1]
    print(
        f"{arguments.mib} MiB, {2 * arguments.layers} tensors, {TRAINERS} ranks to {SERVERS}: "
        f"refit {ours * 1e3:.1f} ms, gathered and broadcast by hand {theirs * 1e3:.1f} ms: {theirs / ours:.1f} times as long; "
        f"packed {together * 1e3:.1f} ms: {together / ours:.1f} times as long"
    )
    parts = ", ".join(f"{part} {server[part] * 1e3:.1f} ms" for part in ("wire", "commit", "install", "finish"))
    print(f"a server: {parts}; received {server['received_bytes']} bytes, bound {server['received_bytes_bound']}")
    for what, seconds, timings in (("one tensor", one, lately[0]), ("nothing", none, lately[1])):
        print(
            f"{what} has changed: {seconds * 1e3:.1f} ms, {seconds / ours:.2f} times as long as everything, compare "
            f"{timings['compare'] * 1e3:.1f} ms; received {timings['received_bytes']} bytes, skipped {timings['skipped_moves']} moves"
        )
