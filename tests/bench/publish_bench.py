#!/usr/bin/env python3
"""Weights that are published and pulled, against what else leaves them for others: torch.distributed.checkpoint in shared
memory, and plain copies of the same bytes. One trainer, one server, one host; medians, in one run.

usage: publish_bench.py [--mib N] [--repeat N]

Run by a Python that has PyTorch, with the package on PYTHONPATH; NIXL is measured where it is installed.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/pytorch"))

import torch
import torch.distributed.checkpoint as dcp

import gloo
import jobs
from publish_test import as_another_host

SECONDS = 600


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def weights(mib, fill):
    return {f"w{i}": torch.full((1 << 20,), float(fill + i)) for i in range(mib // 4)}


def plain_file(state, path):
    with open(path, "wb") as file:
        for tensor in state.values():
            file.write(tensor.numpy())
    os.remove(path)


def save(state, path):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, sync_files=False), no_dist=True)


def trainer(member, mib, repeat, transports, folder):
    import datetime

    import reshard

    store = member.store()
    state = weights(mib, 1)
    spent = {"publish": [], "dcp.save": [], "written to shared memory": []}
    for turn in range(repeat):
        spent["publish"].append(timed(lambda: reshard.publish(store, state)))
        spent["dcp.save"].append(timed(lambda: save(state, f"{folder}/dcp-{turn}")))
        if turn + 1 < repeat:
            shutil.rmtree(f"{folder}/dcp-{turn}")
        spent["written to shared memory"].append(timed(lambda: plain_file(state, f"{folder}/plain")))
    if "nixl" in transports:
        reshard.publish(store, state, name="nixl", transport="nixl")
    store.set("published", "")
    store.wait(["pulled"], datetime.timedelta(seconds=SECONDS))
    return spent


def server(member, repeat, mib, transports, folder):
    import datetime

    import reshard

    store = member.store()
    got = weights(mib, 0)
    store.wait(["published"], datetime.timedelta(seconds=SECONDS))
    spent = {}

    def measure(what, call):
        spent.setdefault(what, []).append(timed(call))

    path = f"{folder}/dcp-{repeat - 1}"
    for _ in range(repeat):
        measure("pull on the same host", lambda: reshard.pull(store, got))
        measure("the same, in place", lambda: reshard.pull(store, got, staged=False))
        measure("dcp.load", lambda: dcp.load(got, storage_reader=dcp.FileSystemReader(path), no_dist=True))
        measure("copied in memory", lambda: [tensor.copy_(got["w0"]) for tensor in got.values()])
    as_another_host()
    for _ in range(repeat):
        for transport in transports:
            name = "nixl" if transport == "nixl" else "weights"
            measure(f"pull by {transport}, in place", lambda name=name: reshard.pull(store, got, name=name, staged=False))
    assert all(torch.equal(got[name], tensor) for name, tensor in weights(mib, 1).items())
    store.set("pulled", "")
    return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    import reshard.torch.published.by_nixl as by_nixl

    transports = ["HTTP"] + (["nixl"] if by_nixl.is_there() else [])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:

        def either(member):
            if member.job == 0:
                return trainer(member, options.mib, options.repeat, transports, folder)
            return server(member, options.repeat, options.mib, transports, folder)

        for spent in gloo.values(jobs.run_jobs([1, 1], either, timeout=SECONDS)):
            for what, seconds in spent.items():
                median = statistics.median(seconds)
                print(f"{what:32} {median:7.3f} s {options.mib / 1024 / median:6.2f} GiB/s")


if __name__ == "__main__":
    main()
