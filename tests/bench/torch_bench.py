#!/usr/bin/env python3
"""reshard over Gloo, side by side with DTensor, collectives written by hand, and threads of one process.

    torch_bench.py [--quick] [--ranks 2,4] [--sizes 64K,1M,16M,64M] [--rounds 7] [--rows S0->S1,...]

Every figure is in milliseconds a call: the median over rounds of the slowest rank's median call. In each round all
run, in turn, so that what else the machine does meets all of them. `off` and `default` are the two ways of agreement
(RESHARD_AGREEMENT): two groups of processes, one of which sleeps while the other runs. Sizes are bytes of one sharded
tile.

The last part holds the figures against the targets. Nothing is asserted: the exit code is 0 whatever the figures.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(ROOT / "build/full/python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch_bench_cases as cases  # noqa: E402
from torch_bench_world import World  # noqa: E402

SIZES = {"64K": 2**16, "1M": 2**20, "16M": 2**24, "64M": 2**26}


def name_of(size):
    return next((name for name, value in SIZES.items() if value == size), f"{size >> 10}K")


def size_of(text):
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1].upper() in units else int(text)


def medians(worlds, case, rounds):
    """{(mode, contender): seconds}, interleaved: each round asks every world for every contender once."""
    times = {}
    for mode, world in worlds.items():
        world.prepare(case, mode)
    for round_number in range(rounds + 1):
        for mode, world in worlds.items():
            for contender, seconds in world.round().items():
                if round_number:  # the first warms up
                    times.setdefault((mode, contender), []).append(seconds)
    for world in worlds.values():
        world.forget()
    return {key: statistics.median(values) for key, values in times.items()}


def local_seconds(command, case):
    """One process, ranks as threads."""
    arguments = [command, "run", case.mesh, case.source, case.target, "--dtype", "f32", "--repeat", "11", "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["seconds_median"] if done.returncode == 0 else None


def ms(seconds):
    return f"{seconds * 1e3:9.3f}" if seconds is not None else "        -"


def ratio(value):
    return f"{value:6.2f}" if value is not None else "     -"


class Targets:
    """Figures against what they should be."""

    def __init__(self):
        self.lines = {}

    def add(self, target, figure, met, where):
        self.lines.setdefault(target, []).append((figure, met, where))

    def print(self):
        print("\nTargets")
        for target, figures in self.lines.items():
            missed = [(figure, where) for figure, met, where in figures if not met]
            print(f"  {'MISSED' if missed else 'met   '}  {target}: {len(figures) - len(missed)} of {len(figures)}")
            for figure, where in missed:
                print(f"            {where}: {figure}")


def redistributions(worlds, ranks, sizes, rows, rounds, command, targets):
    print(f"\n{ranks} ranks, redistribution, ms a call")
    print(f"{'row':26} {'size':>5} {'off':>9} {'default':>9} {'DTensor':>9} {'by hand':>9} {'threads':>9}"
          "  hand/off  DTensor/off  DTensor/threads")
    against_threads = []
    for row in rows:
        for size in sizes:
            case = cases.redistribution(row, ranks, size)
            if case is None:
                continue
            # Small ones cost nothing and vary the most.
            t = medians(worlds, case, 3 * rounds if size <= 2**20 else rounds if size < 2**26 else max(3, rounds // 2))
            off, default = t["off", "reshard"], t["default", "reshard"]
            dtensor, hand = t.get(("off", "DTensor")), t.get(("off", "by hand"))
            gather = t["default", "64-byte all-gather"]
            threads = local_seconds(command, case)
            where = f"{row} {name_of(size)} {ranks} ranks"
            print(f"{row:26} {name_of(size):>5} {ms(off)} {ms(default)} {ms(dtensor)} {ms(hand)} {ms(threads)}    "
                  f"{ratio(hand and hand / off)}       {ratio(dtensor / off)}           "
                  f"{ratio(threads and dtensor / threads)}", flush=True)
            if hand:
                targets.add("off <= 1.1 x by hand", f"{off / hand:.2f} x", off <= 1.1 * hand, where)
                if dtensor >= 3 * hand:
                    targets.add("off >= 3 x faster than DTensor, wherever by hand is", f"{dtensor / off:.2f} x",
                                dtensor >= 3 * off, where)
            targets.add("off never slower than DTensor", f"{off * 1e3:.3f} ms, DTensor {dtensor * 1e3:.3f} ms",
                        off <= dtensor, where)
            if size <= 2**20:  # beyond, the difference of two runs is lost in what they vary by
                targets.add("default adds at most one 64-byte all-gather, up to 1 MiB",
                            f"{(default - off) * 1e3:+.3f} ms, all-gather {gather * 1e3:.3f} ms",
                            default - off <= gather, where)
            if threads and case.moves:
                against_threads.append(dtensor / threads)
                targets.add("threads of one process >= 10 x faster than DTensor, every row",
                            f"{dtensor / threads:.1f} x", dtensor >= 10 * threads, where)
    return against_threads


def zigzag(worlds, ranks, sizes, rounds, targets):
    print(f"\n{ranks} ranks, split_to_full with zigzag, ms a call")
    print(f"{'size':>5} {'off':>9} {'default':>9} {'reference':>9}  reference/off")
    for size in sizes:
        t = medians(worlds, cases.zigzag(ranks, size), 3 * rounds if size <= 2**20 else rounds)
        off, reference = t["off", "reshard"], t["off", "three copies"]
        default = t["default", "reshard"]
        print(f"{name_of(size):>5} {ms(off)} {ms(default)} {ms(reference)}  {ratio(reference / off)}", flush=True)
        targets.add("split_to_full with zigzag faster than the reference way", f"{off / reference:.2f} x its time",
                    off <= reference, f"{name_of(size)} {ranks} ranks")


def overhead(worlds, ranks, rounds, targets):
    t = medians(worlds, cases.overhead(ranks), 3 * rounds)
    off, default = t["off", "reshard"], t["default", "reshard"]
    bare = {mode: t[mode, "bare collective"] for mode in worlds}
    gather = t["default", "64-byte all-gather"]
    times = f"{off / bare['off']:.2f} x"
    print(f"\n{ranks} ranks, 4 KiB with a cached plan, ms a call: off {ms(off)}, bare {ms(bare['off'])} ({times});"
          f" default {ms(default)}, bare {ms(bare['default'])}, 64-byte all-gather {ms(gather)}", flush=True)
    targets.add("4 KiB, off: <= 2 x the bare collective", times, off <= 2 * bare["off"], f"{ranks} ranks")
    limit = 2 * bare["default"] + gather
    targets.add("4 KiB, default: that and one 64-byte all-gather", f"{default * 1e3:.3f} ms, {limit * 1e3:.3f} allowed",
                default <= limit, f"{ranks} ranks")


def batch(worlds, ranks, rounds, targets):
    t = medians(worlds, cases.batch(ranks), 3 * rounds)
    flat, where = t["off", "one flat tensor"], f"{ranks} ranks"
    print(f"\n{where}, 1,000 tensors of 4 KiB, ms: redistribute_batch {ms(t['off', 'reshard'])}"
          f" (default {ms(t['default', 'reshard'])}), bound {ms(t['off', 'bound'])}"
          f" (default {ms(t['default', 'bound'])}), one flat tensor redistributed {ms(flat)},"
          f" one flat buffer in a bare all_to_all {ms(t['off', 'bare collective'])};"
          f" torch._foreach_neg of the 1,000 {ms(t['off', 'PyTorch negates a list'])}", flush=True)
    for name in ("reshard", "bound"):
        what = "redistribute_batch" if name == "reshard" else "reshard.bind"
        times = t["off", name] / flat
        targets.add(f"1,000 tensors by {what}: <= 1.2 x one flat tensor", f"{times:.2f} x", times <= 1.2, where)


def find_command():
    for preset in ("full", "core"):
        path = ROOT / "build" / preset / "bin/reshard"
        if path.is_file():
            return str(path)
    return "reshard"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="64K,1M,16M,64M")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", default=",".join(cases.ROWS), help=f"among {' '.join(cases.ROWS)}")
    parser.add_argument("--only", default="", help="redistribution, zigzag, overhead, batch; all by default")
    parser.add_argument("--quick", action="store_true", help="64K and 1M, 3 rounds")
    parser.add_argument("--command", default=find_command(), help="the command `reshard`, for threads of one process")
    options = parser.parse_args()
    sizes = [size_of(size) for size in ("64K,1M" if options.quick else options.sizes).split(",")]
    rounds = 3 if options.quick else options.rounds
    rows = [row for row in cases.ROWS if row in options.rows]
    parts = options.only.split(",") if options.only else ["redistribution", "zigzag", "overhead", "batch"]
    begin = time.monotonic()
    targets, against_threads = Targets(), []
    for ranks in map(int, options.ranks.split(",")):
        worlds = {"off": World(ranks, {"RESHARD_AGREEMENT": "off"}),
                  "default": World(ranks, {"RESHARD_AGREEMENT": "every"})}
        if "redistribution" in parts:
            against_threads += redistributions(worlds, ranks, sizes, rows, rounds, options.command, targets)
        if "zigzag" in parts:
            zigzag(worlds, ranks, sizes, rounds, targets)
        if "overhead" in parts:
            overhead(worlds, ranks, rounds, targets)
        if "batch" in parts:
            batch(worlds, ranks, rounds, targets)
        for world in worlds.values():
            world.close()
    if against_threads:
        geomean = math.exp(statistics.fmean(map(math.log, against_threads)))
        least = min(against_threads)
        print(f"\nthreads of one process against DTensor over Gloo: geomean {geomean:.1f} x, least {least:.1f} x")
        targets.add("threads of one process >= 20 x faster than DTensor, geomean", f"{geomean:.1f} x", geomean >= 20,
                    "all rows")
    targets.print()
    print(f"\n{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
