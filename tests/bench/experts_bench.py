#!/usr/bin/env python3
"""What it takes to plan a rebalancing of experts: 61 layers of three tensors, each layer with maps of its own, 256 experts in
288 slots of 64 devices. Milliseconds for all of it as one batch, medians, on a flat network and on nodes of 8.

usage: experts_bench.py PACKAGE_FOLDER [--repeat 15]
"""

import argparse
import itertools
import random
import statistics
import sys
import time

LAYERS, DEVICES, SLOTS, EXPERTS = 61, 64, 288, 256
SHAPES = {"w1": (EXPERTS, 2048, 7168), "w3": (EXPERTS, 2048, 7168), "w2": (EXPERTS, 7168, 2048)}


def table_of(chance):
    """Where one layer's experts are: every expert once, the rest are second copies; half of the devices have a slot more."""
    slots = list(range(EXPERTS)) + chance.sample(range(EXPERTS), SLOTS - EXPERTS)
    chance.shuffle(slots)
    ends = [SLOTS * device // DEVICES for device in range(DEVICES + 1)]
    return "|".join(",".join(map(str, slots[begin:end])) for begin, end in itertools.pairwise(ends))


def main(repeat):
    from reshard import _core
    from reshard.planning import problem_of_line

    chance = random.Random(1)
    tables = [(table_of(chance), table_of(chance)) for _ in range(LAYERS)]
    problems, names = [], []
    for name, (experts, rows, columns) in SHAPES.items():
        for layer, sides in enumerate(tables):
            source, target = (f"[<ep={{{table}}}>{experts}, {rows}, {columns}]" for table in sides)
            problems.append(problem_of_line({"mesh": f"{{ep:{DEVICES}}}", "from": source, "to": target}))
            names.append(f"layers.{layer}.{name}")
    for topology in ("flat", "dgx-h100"):
        options = _core.options("time", "all", None, topology, None, True)
        taken = []
        for _ in range(repeat):
            begun = time.perf_counter()
            _core.plan_batch(problems, names, options, None)
            taken.append(1e3 * (time.perf_counter() - begun))
        print(f"{topology}: {len(problems)} tensors in {statistics.median(taken):.1f} ms ({min(taken):.1f} - {max(taken):.1f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("package")
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.package)
    main(arguments.repeat)
