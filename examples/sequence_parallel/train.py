#!/usr/bin/env python3
"""Trains a small transformer with its sequence spread over a Gloo group and on one rank, and compares the two.

    train.py [--ranks 2] [--steps 30] [--dtype float32|float64] [--check]     starts its own ranks
    torchrun --nproc-per-node 2 train.py                                      uses torchrun's

The exit code is 1 if the two loss curves differ by more than 1e-5 at any step.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn import functional

import reshard.torch

from model import Transformer, Whole
from spread import Zigzag, sum_gradients

TOLERANCE = 1e-5


def text(batch: int, sequence: int) -> torch.Tensor:
    """Bytes to learn: this directory's own source. One more than the sequence, for the targets."""
    here = pathlib.Path(__file__).resolve().parent
    data = b"".join(path.read_bytes() for path in sorted(here.glob("*.py")))
    stride = (len(data) - sequence - 1) // batch
    rows = [list(data[i * stride:i * stride + sequence + 1]) for i in range(batch)]
    return torch.tensor(rows)


def make_model(options: argparse.Namespace) -> tuple[Transformer, torch.optim.Optimizer]:
    torch.manual_seed(options.seed)  # the same parameters everywhere
    model = Transformer(options.sequence, heads=options.heads).to(getattr(torch, options.dtype))
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def local_loss(model, tokens, targets, positions, spread) -> torch.Tensor:
    """The sum over the tokens that are here."""
    logits = model(tokens, positions, spread)
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def train_alone(options: argparse.Namespace) -> list[float]:
    model, optimizer = make_model(options)
    data = text(options.batch, options.sequence)
    tokens, targets = data[:, :-1], data[:, 1:]
    positions = torch.arange(options.sequence).expand_as(tokens)
    curve = []
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = local_loss(model, tokens, targets, positions, Whole()) / tokens.numel()
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    return curve


def train_spread(options: argparse.Namespace) -> list[float]:
    group = dist.group.WORLD
    model, optimizer = make_model(options)
    data = text(options.batch, options.sequence)
    spread = Zigzag(group, group.size(), options.batch, options.sequence, model.heads, model.head_width)
    tokens, targets = spread.deal(data[:, :-1]), spread.deal(data[:, 1:])
    positions = spread.deal(torch.arange(options.sequence).expand(options.batch, -1))
    everywhere = options.batch * options.sequence
    reshard.warmup()
    curve = []
    for _ in range(options.steps):
        optimizer.zero_grad()
        # Each rank differentiates its own part of the mean; the parts of the gradient add up to all of it.
        loss = local_loss(model, tokens, targets, positions, spread) / everywhere
        loss.backward()
        sum_gradients(list(model.parameters()), group)
        optimizer.step()
        curve.append(reshard.all_reduce(loss.detach(), "sum", group).item())
    return curve


def compare(options: argparse.Namespace, spread: list[float], seconds: float) -> int:
    alone = train_alone(options)
    worst = max(abs(a - b) for a, b in zip(alone, spread))
    if not options.check:
        print("step   spread        alone")
        for step in range(0, options.steps, max(1, options.steps // 10)):
            print(f"{step:4}   {spread[step]:.8f}    {alone[step]:.8f}")
    same = worst <= TOLERANCE and spread[-1] < spread[0]
    verdict = "the same" if same else f"DIFFERENT (more than {TOLERANCE:g} is)"
    print(f"{dist.get_world_size()} ranks, {options.dtype}: loss {spread[0]:.4f} -> {spread[-1]:.4f} in {options.steps}"
          f" steps ({seconds:.1f} s); largest difference from one process {worst:.1e}: {verdict}", flush=True)
    return 0 if same else 1


def run_rank(options: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    begin = time.monotonic()
    curve = train_spread(options)
    code = compare(options, curve, time.monotonic() - begin) if dist.get_rank() == 0 else 0
    return int(reshard.all_reduce(torch.tensor(code), "max").item())


def start_ranks(options: argparse.Namespace) -> int:
    """The ranks as forked processes of this one, which imported everything once."""
    meeting = tempfile.mktemp(prefix="sequence_parallel.")
    children = []
    for rank in range(options.ranks):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                store = dist.FileStore(meeting, options.ranks)
                dist.init_process_group("gloo", store=store, rank=rank, world_size=options.ranks)
                code = run_rank(options)
            except BaseException:  # a child must not run on in its parent's code
                sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(code)  # Gloo now and then aborts at interpreter exit
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    if os.path.exists(meeting):
        os.unlink(meeting)
    return 1 if any(codes) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="how many to start; torchrun decides where it is used")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256, help="a multiple of twice the ranks")
    parser.add_argument("--heads", type=int, default=4, help="a multiple of the ranks")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="2 and 4 ranks, few steps, one line each: for tests")
    options = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", options.ranks))
    if options.sequence % (2 * ranks) or options.heads % ranks:
        parser.error(f"{ranks} ranks need a sequence of a multiple of {2 * ranks} and heads of {ranks}")
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        code = run_rank(options)
        sys.stdout.flush()
        os._exit(code)
    if options.check:
        options.steps, options.sequence = 12, 64
        codes = []
        for options.ranks, options.dtype in ((2, "float32"), (4, "float64")):
            codes.append(start_ranks(options))
        return max(codes)
    return start_ranks(options)


if __name__ == "__main__":
    sys.exit(main())
