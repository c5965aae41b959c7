#!/usr/bin/env python3
"""Measures reshard and its rivals on the same pairs of layouts, and compares the figures with those that docs/ prints.

usage: compare.py RESHARD [--sample N]    tools/rivals.sh runs it

Prints rows as the tables of docs/figures.md and docs/planning.md have them, measured now. A printed figure is confirmed
if the measured one is within 1 % of it or rounds to it. Exits with 1 if one is not. A sample confirms nothing.
"""

import argparse
import concurrent.futures
import importlib
import importlib.metadata
import math
import multiprocessing
import os
import pathlib
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from layouts import DEFAULT_ORDER_PAIRS, PAIRS, Moved, Pair, all_pairs

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHUNK = 250  # pairs that a process measures at a time


class Planner(NamedTuple):
    name: str
    module: str  # whose measure() is called
    arguments: dict[str, Any] = {}
    in_mesh_order: bool = False  # only these pairs
    package: str = ""  # that brings it

    @property
    def title(self) -> str:
        if not self.package:
            return self.name
        return f"{self.name}, {self.package} {importlib.metadata.version(self.package)}"


class Table(NamedTuple):
    page: str
    columns: tuple[str, ...]  # fields of Summary
    rows: dict[str, str]  # the name of a planner, and how its row begins


class Summary(NamedTuple):
    pairs: int
    geomean: float  # of received / bound, as the next three
    p90: float
    max: float
    at_bound: float  # percent of the pairs
    above_ends: float  # percent of the pairs in which a device holds more than in the larger of source and target
    most_held: float  # and how many times as much, at most

    def cells(self, columns: Sequence[str]) -> list[str]:
        above = f"{self.above_ends:.1f} %, up to {self.most_held:.2g}x" if self.above_ends else "0"
        texts = {"pairs": f"{self.pairs:,}", "geomean": f"{self.geomean:.4f}", "p90": f"{self.p90:.2f}",
                 "max": f"{self.max:.2f}", "at_bound": f"{self.at_bound:.1f} %", "above_ends": above}
        return [texts[column] for column in columns]


# The slowest first, so that all processes end together.
PLANNERS = (
    Planner("XLA", "xla", package="jax"),
    Planner("DTensor min-cost", "dtensor", {"device": "cuda", "min_cost": True}, True, "torch"),
    Planner("DTensor greedy over Gloo", "dtensor", {"device": "cpu", "min_cost": False}, True, "torch"),
    Planner("DTensor greedy", "dtensor", {"device": "cuda", "min_cost": False}, True, "torch"),
    Planner("Shardy", "shardy", package="jaxlib"),
    Planner("reshard", "ours", {"ops": "all"}),
    Planner("reshard, named", "ours", {"ops": "Slice,AllGather,AllToAll,AllPermute"}),
    Planner("reshard, boxes", "ours", {"ops": "boxes"}),
)
TABLES = (
    Table("docs/figures.md", ("geomean", "max", "at_bound", "above_ends"), {
        "reshard": "**reshard**, `--objective bytes`",
        "reshard, named": "**reshard**, `--ops Slice,AllGather,AllToAll,AllPermute`",
        "reshard, boxes": "**reshard**, `--ops boxes`",
        "Shardy": "Shardy's reshard pass",
        "XLA": "XLA as JAX",
        "DTensor greedy": "DTensor greedy (torch",
    }),
    Table("docs/planning.md", ("pairs", "geomean", "p90", "max", "at_bound", "above_ends"), {
        "Shardy": "Shardy's reshard pass",
        "DTensor min-cost": "DTensor min-cost",
        "XLA": "XLA as JAX",
        "DTensor greedy": "DTensor greedy, torch",
        "DTensor greedy over Gloo": "DTensor greedy over Gloo",
    }),
)


def summarize(pairs: Sequence[Pair], moved: Sequence[Moved]) -> Summary:
    ratios = sorted(m.received / pair.bound for pair, m in zip(pairs, moved, strict=True))
    if ratios[0] < 1:
        raise ValueError("fewer bytes than the lower bound: something is not counted")
    held = [m.held / pair.larger_end for pair, m in zip(pairs, moved, strict=True)]
    n = len(ratios)
    return Summary(n, math.exp(math.fsum(map(math.log, ratios)) / n), ratios[int(n * 0.9)], ratios[-1],
                   100 * sum(ratio == 1 for ratio in ratios) / n, 100 * sum(h > 1 for h in held) / n, max(held))


def measure_chunk(planner: Planner, pairs: Sequence[Pair]) -> list[Moved]:
    """In a process of the pool, which alone loads what the planner needs."""
    return importlib.import_module(planner.module).measure(pairs, **planner.arguments)


def measure_all(pairs: Sequence[Pair], command: str) -> dict[str, Summary]:
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        running = {}
        for planner in PLANNERS:
            if planner.module == "ours":
                planner = planner._replace(arguments={**planner.arguments, "command": command})
            asked = [pair for pair in pairs if pair.in_mesh_order or not planner.in_mesh_order]
            chunks = [asked[at:at + CHUNK] for at in range(0, len(asked), CHUNK)]
            running[planner.name] = asked, [pool.submit(measure_chunk, planner, chunk) for chunk in chunks]
        summaries = {}
        for name, (asked, chunks) in running.items():
            summaries[name] = summarize(asked, [moved for chunk in chunks for moved in chunk.result()])
            print(f"{name}: {len(asked)} pairs", file=sys.stderr)
    return summaries


def printed_row(table: Table, start: str) -> list[str]:
    """The cells of the row that begins so."""
    lines = (ROOT / table.page).read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith(f"| {start}") and line.count("|") == len(table.columns) + 2]
    if len(rows) != 1:
        raise ValueError(f"{table.page} has {len(rows)} rows that begin with {start}")
    return [cell.strip() for cell in rows[0].strip("|").split("|")]


def differences(summary: Summary, columns: Sequence[str], cells: Sequence[str]) -> Iterator[str]:
    """What the page prints otherwise."""
    for column, cell in zip(columns, cells, strict=True):
        number = re.search(r"\d[\d,]*(?:\.(\d+))?", cell)
        if number is None:
            raise ValueError(f"not a figure: {cell}")
        printed, last_digit = float(number[0].replace(",", "")), 10.0 ** -len(number[1] or "")
        measured = getattr(summary, column)
        if abs(measured - printed) > max(0.01 * printed, 0.5 * last_digit):
            yield f"{column} is {measured:.5g}, not {cell}"


def report(table: Table, summaries: dict[str, Summary]) -> list[str]:
    """Prints a table as measured. What its page has otherwise."""
    print(f"\n{table.page}\n\n| planner | {' | '.join(table.columns)} |\n{'|---' * (len(table.columns) + 1)}|")
    titles = {planner.name: planner.title for planner in PLANNERS}
    wrong = []
    for name, start in table.rows.items():
        title, *cells = printed_row(table, start)
        print(f"| {titles[name]} | {' | '.join(summaries[name].cells(table.columns))} |")
        wrong += [f"{table.page}, {title}: {text}" for text in differences(summaries[name], table.columns, cells)]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures planners on the same pairs of layouts.")
    parser.add_argument("command", help="the command reshard")
    parser.add_argument("--sample", type=int, metavar="N", help="only N random pairs, always the same")
    asked = parser.parse_args()
    pairs = all_pairs()
    counts = len(pairs), sum(pair.in_mesh_order for pair in pairs)
    if counts != (PAIRS, DEFAULT_ORDER_PAIRS):
        raise ValueError(f"{counts} pairs, not {(PAIRS, DEFAULT_ORDER_PAIRS)}")
    if asked.sample is not None:
        pairs = random.Random(1).sample(pairs, asked.sample)
    print(f"Bytes received by the worst device / lower bound, {len(pairs)} of {PAIRS} pairs")
    start = time.monotonic()
    summaries = measure_all(pairs, asked.command)
    wrong = [text for table in TABLES for text in report(table, summaries)]
    used = os.times()
    print(f"\n{time.monotonic() - start:.0f} s, processor time {used.children_user + used.children_system:.0f} s")
    if asked.sample is not None:
        return 0
    print("\n".join(wrong) or "All printed figures are confirmed.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
