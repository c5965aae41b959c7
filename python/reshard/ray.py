"""Conversions on the nodes of a Ray cluster; needs the extra `ray`.

    import reshard.ray

    reshard.ray.convert("s3://bucket/step-1000", "s3://serving/llama", to="hf")
"""

import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .checkpoints import Conversion, Path, Progress, SourcePath
from .checkpoints import convert as convert_here
from .errors import InputError, ReshardError

__all__ = ["convert"]

_LOOKS_EVERY = 0.5  # seconds


def convert(
    source: SourcePath,
    destination: Path,
    *,
    workers: int | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **terms: Any,
) -> Conversion:
    """`reshard.convert` on workers that Ray starts, one per node, from a program that `ray.init` has connected.

    Ray restarts a worker whose process or node dies, and the worker continues (`max_retries`).

    Args:
        source, destination: as in reshard.convert, and the same for every node: URLs of a store, or paths on a
            filesystem with locks that all nodes share.
        workers: how many; by default one per live node.
        options: of Ray's remote functions, beside or in place of num_cpus=1, max_retries=3 and
            scheduling_strategy="SPREAD", such as {"num_cpus": 16, "resources": {"fast_network": 1}}. A worker has as many
            threads as `threads` says, whatever num_cpus is.
        progress: called in this program, with (bytes done, bytes to do, seconds) of all workers; an exception from it
            ends the run.
        terms: the other arguments of reshard.convert.

    Returns:
        The Conversion of the worker that completed the result.

    Raises:
        InputError: workers or worker among the terms; the cluster has too few CPUs to run all workers at the same time.
        As reshard.convert, when a worker does; the other workers are then ended, and the same call continues.
        ray.exceptions.RayError: Ray could not run a worker.
    """
    if "worker" in terms:
        raise InputError("worker: Ray's workers have their numbers from here")
    if terms.get("dry_run"):
        return convert_here(source, destination, workers=1, progress=progress, **terms)
    count = workers if workers is not None else sum(node["Alive"] for node in ray.nodes())
    if count < 1:
        raise InputError(f"workers: {count}; at least one is needed")
    how = {"num_cpus": 1, "max_retries": 3, "scheduling_strategy": "SPREAD", **(options or {})}
    _check_room(count, how["num_cpus"])
    tally = None
    if progress is not None:  # on this node, which ends no sooner than this program
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        tally = _Tally.options(scheduling_strategy=here).remote()
    job = ray.remote(**how)(_work)
    running = [job.remote(source, destination, worker, count, terms, tally) for worker in range(count)]
    began = time.monotonic()
    done: list[Conversion] = []
    try:
        while running:
            ended, running = ray.wait(running, timeout=_LOOKS_EVERY if tally is not None else None)
            done += [Conversion(text) for text in ray.get(ended)]
            if progress is not None and running:
                so_far, total = ray.get(tally.sums.remote())
                if total > 0:
                    progress(so_far, total, time.monotonic() - began)
    except BaseException as error:
        for one in running:
            ray.cancel(one, force=True)
        if isinstance(error, RayTaskError) and isinstance(error.cause, ReshardError):
            raise error.cause from None
        raise
    result = next((one for one in done if one["committed"]), done[-1])
    if progress is not None:
        progress(result.bytes, result.bytes, time.monotonic() - began)
    return result


def _check_room(workers: int, cpus: float) -> None:
    """Raises:
    InputError: not all workers can run at the same time, and those that run would wait for the others.
    """
    there = ray.cluster_resources().get("CPU", 0)
    if workers * cpus > there:
        raise InputError(f"{workers} workers need {workers * cpus:g} CPUs at the same time, and the cluster has {there:g}")


def _work(source: SourcePath, destination: Path, worker: int, workers: int, terms: Mapping[str, Any], tally: Any) -> str:
    def tell(done: int, total: int, _: float) -> None:
        tally.tell.remote(worker, done, total)

    progress = tell if tally is not None else None
    return convert_here(source, destination, workers=workers, worker=worker, progress=progress, **terms).to_json()


@ray.remote(num_cpus=0)
class _Tally:
    """The progress of all workers."""

    def __init__(self) -> None:
        self._of_worker: dict[int, tuple[int, int]] = {}

    def tell(self, worker: int, done: int, total: int) -> None:
        self._of_worker[worker] = (done, total)

    def sums(self) -> tuple[int, int]:
        """Bytes done, and bytes to do."""
        return sum(done for done, _ in self._of_worker.values()), sum(total for _, total in self._of_worker.values())
