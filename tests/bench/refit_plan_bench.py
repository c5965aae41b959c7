#!/usr/bin/env python3
"""What it takes to plan a refit of a large mixture of experts, whose loader is recorded: 8 ranks of a trainer (FSDP over
rows) to 8 of an engine (tensor parallelism). Seconds of processor time of each part, and the boxes that are planned.

usage: refit_plan_bench.py [--layers 60] [--experts 286] [--profile]
"""

import argparse
import contextlib
import cProfile
import gc
import pathlib
import pstats
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/runtime/pytorch"), str(ROOT / "build/full/python")]

import torch
from torch import nn

import gloo

TRAINERS, ENGINES = 8, 8
HIDDEN, INNER, HEADS, HEAD = 64, 32, 8, 8


def source_shapes(layers, experts):
    shapes = {"embed.weight": (256, HIDDEN)}
    for layer in range(layers):
        name = f"layers.{layer}"
        shapes |= {f"{name}.{x}_proj.weight": (HEADS * HEAD, HIDDEN) for x in "qkv"}
        shapes[f"{name}.o_proj.weight"] = (HIDDEN, HEADS * HEAD)
        for expert in range(experts):
            shapes |= {f"{name}.experts.{expert}.{x}.weight": (INNER, HIDDEN) for x in ("gate", "up")}
            shapes[f"{name}.experts.{expert}.down.weight"] = (HIDDEN, INNER)
    return shapes


class Engine(nn.Module):
    """Loads as serving engines do: each rank copies its part of each tensor, from the whole, into its own parameters."""

    def __init__(self, layers, experts, rank):
        super().__init__()
        self.rank, self.heads, self.inner = rank, HEADS // ENGINES * HEAD, INNER // ENGINES
        new = lambda *shape: nn.Parameter(torch.empty(shape), requires_grad=False)  # noqa: E731
        self.embed = new(256 // ENGINES, HIDDEN)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            layer = nn.Module()
            layer.qkv, layer.o = new(3 * self.heads, HIDDEN), new(HIDDEN, self.heads)
            layer.w13, layer.w2 = new(experts, 2 * self.inner, HIDDEN), new(experts, HIDDEN, self.inner)
            self.layers.append(layer)

    def load_weights(self, weights):
        for name, tensor in weights:
            words = name.split(".")
            if words[0] == "embed":
                rows = self.embed.shape[0]
                self.embed.data.copy_(tensor.narrow(0, self.rank * rows, rows))
                continue
            layer = self.layers[int(words[1])]
            if words[2] == "experts":
                self._expert(layer, int(words[3]), words[4], tensor)
            elif words[2] == "o_proj":
                layer.o.data.copy_(tensor.narrow(1, self.rank * self.heads, self.heads))
            else:
                part = layer.qkv.data.narrow(0, "qkv".index(words[2][0]) * self.heads, self.heads)
                part.copy_(tensor.narrow(0, self.rank * self.heads, self.heads))

    def _expert(self, layer, expert, which, tensor):
        begin = self.rank * self.inner
        if which == "down":
            layer.w2.data[expert].copy_(tensor.narrow(1, begin, self.inner))
        else:
            half = layer.w13.data[expert].narrow(0, self.inner * (which == "up"), self.inner)
            half.copy_(tensor.narrow(0, begin, self.inner))


def main(layers, experts, profile):
    from reshard.torch.record.engine import recorded
    from reshard.torch.record.expressions import Source
    from reshard.torch.refit.garbage import without_collections
    from reshard.torch.refit.loaded import joined, parts_of
    from reshard.torch.refit.schedule import Schedule
    from reshard.torch.refit.specs import Agreed, Side, Spec
    from reshard.torch.refit.stage import Stage

    shapes = source_shapes(layers, experts)
    given = {name: Source(shape, torch.float32, name) for name, shape in shapes.items()}
    source = {}
    for name, (rows, columns) in shapes.items():
        source[name] = Spec(name, f"{{fsdp:{TRAINERS}}}", f"[<fsdp>{rows}, {columns}]", "torch.float32", (rows, columns))
    seconds = {}

    def timed(what, function, *arguments):
        begun = time.process_time()
        result = function(*arguments)
        seconds[what] = time.process_time() - begun
        return result

    described = [[]] * TRAINERS
    engine = None
    for rank in range(ENGINES):
        module = Engine(layers, experts, rank)
        recording = timed("a rank's loader is recorded", recorded, module, module.load_weights, given)
        engine = engine or recording
        with profile:
            described.append(timed("its boxes are found", parts_of, source, recording))
    del recording
    gc.collect()
    with profile, without_collections():
        loaded = timed("all ranks are joined", joined, source, given, described, [[]] * (TRAINERS + ENGINES), engine, TRAINERS)
        agreed = Agreed(Side({}, source), loaded.side, "", None, False, loaded.rows, loaded.kept)
        schedule = timed("scheduled", Schedule, agreed, TRAINERS + ENGINES)
        timed("staged", Stage, schedule, agreed.source, agreed.target, TRAINERS)
    boxes = sum(len(move.target_elements) for move in schedule.moves)
    print(f"{len(shapes)} tensors, {len(schedule.moves)} moves, {boxes} boxes: " + ", ".join(f"{k} {v:.2f} s" for k, v in seconds.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--experts", type=int, default=286)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    gloo.load_library()
    profile = cProfile.Profile() if arguments.profile else contextlib.nullcontext()
    main(arguments.layers, arguments.experts, profile)
    if arguments.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
