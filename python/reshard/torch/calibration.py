"""Measures the network of a process group."""

import json
import socket
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from .. import _core
from ..arguments import byte_count
from ..errors import InputError
from .entries import gathered
from .groups import Group, Span, span_of_group


def calibrate(
    group: Group = None,
    *,
    device: torch.device | str | None = None,
    nodes: tuple[int, int] | None = None,
    size: int | str = "64MiB",
    repeat: int = 20,
) -> dict[str, Any]:
    """Measures latency and bandwidth between the ranks of a group, inside nodes and between them.

        reshard.set_topology(reshard.calibrate(size="256MiB"))

    Runs all-to-alls of few and of many bytes by this library, each over one level of the network and on all ranks at
    once, as on a busy machine. What a call costs before its first message, while the ranks agree, is left out.

    Collective: every rank of the group calls it, with the same arguments.

    Args:
        device: of the tensors; None is this rank's GPU if the group has a backend for GPUs, else the host.
        nodes: (nodes, ranks of each); None: found from the names of the ranks' hosts.
        size: what each rank holds when bandwidth is measured, in bytes.
        repeat: number of timed executions, of which the median counts; ten times as many for few bytes.

    Returns:
        What `topology=` and `--topology` read: {"levels": [{"devices": 8, "gb_per_s": ..., "latency_us": ...}, ...]}.

    Raises:
        InputError: a single rank, ranks of a host that are not consecutive or not as many as on the others, numbers
            out of range.
        RuntimeError: another rank failed, is gone or disagrees.
    """
    span = span_of_group(group)
    count, each = nodes or _nodes_of(span)
    if count * each != len(span.ranks):
        raise InputError(f"nodes={count, each} are {count * each} ranks, but the group has {len(span.ranks)}")
    if repeat < 1:
        raise InputError(f"repeat is at least 1, not {repeat}")
    on = torch.device(device) if device is not None else _device_of()
    job = (count, each, byte_count(size))
    times = _seconds(_core.calibration_probes(*job), span.name, on, repeat)
    slowest = torch.ops.reshard.all_reduce(torch.tensor(times, dtype=torch.float64, device=on), "max", span.name)
    return json.loads(_core.fit_topology(*job, slowest.tolist()))


def _nodes_of(span: Span) -> tuple[int, int]:
    hosts = gathered(socket.gethostname(), span)
    each = hosts.count(hosts[0])
    blocks = [hosts[at : at + each] for at in range(0, len(hosts), each)]
    names = [block[0] for block in blocks]
    if any(len(set(block)) > 1 or len(block) < each for block in blocks) or len(set(names)) < len(names):
        raise InputError(
            "the ranks of a host must be consecutive, and as many on each host; say nodes=(nodes, ranks of each)"
        )
    return len(blocks), each


def _device_of() -> torch.device:
    if torch.cuda.is_available() and "nccl" in str(dist.get_backend()):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _seconds(
    probes: list[tuple[str, str, str, int, bool]], group: str, device: torch.device, repeat: int
) -> list[float]:
    """For each probe the median time of one execution on this rank. A probe: mesh, source, target, the bytes that a
    rank holds, and whether it measures bandwidth."""
    mine = [torch.ones(1, probe[3], dtype=torch.uint8, device=device) for probe in probes]  # zeros may share one page
    times: list[list[float]] = [[] for _ in probes]

    def once(i: int) -> float:
        mesh, source, target, _, _ = probes[i]
        begin = time.perf_counter()
        torch.ops.reshard.redistribute(mine[i], mesh, source, target, group)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    # The differences of short ones count: they take turns, so that whatever slows the machine slows all of them.
    for is_large, rounds in ((False, 10 * repeat), (True, repeat)):
        those = [i for i, probe in enumerate(probes) if probe[4] == is_large]
        for i in those * 3:  # plans, memory and connections are there afterwards
            once(i)
        for _ in range(rounds):
            for i in those:
                times[i].append(once(i))
    return [statistics.median(of) for of in times]
