"""Weights of a trainer in SGLang, sharded to sharded: every worker receives its own part and no byte more, and all of them
install a version or none does.

    # The engine: the function that its workers call, and nothing else
    engine = sglang.Engine(model_path=..., custom_weight_loader=["reshard.sglang.load"])

    # The trainer, on every rank
    transfer = reshard.sglang.Transfer(model, engines, rank=dist.get_rank(), trainers=dist.get_world_size(), workers=8)
    transfer.send_weights()                                # after every update

SGLang has no interface for such backends, but it calls a user's function with its model and what it was sent: here the
address at which its workers meet the trainers. The model's own load_weights says what each parameter is made of.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist

from .errors import InputError, UndeterminedError
from .torch import Joined, Refit, join
from .torch.calling_engines import Asking, export_of_transformers, store_of_trainers
from .torch.problems import Tensors, named
from .torch.record import Export

__all__ = ["Engine", "Transfer", "load"]

_MESSAGE = "reshard"  # the name of the only tensor that is sent
_LOAD = "reshard.sglang.load"
_log = logging.getLogger(__name__)


class Engine(Protocol):
    """An SGLang engine as trainers call it: sglang.Engine, or a client of its server."""

    def update_weights_from_tensor(
        self, named_tensors: list[tuple[str, torch.Tensor]], load_format: str | None = None, flush_cache: bool = True
    ) -> Any: ...


class Transfer:
    """The training side: sends every byte that a worker lacks once, from the ranks that have it."""

    def __init__(
        self,
        source: Tensors,
        engines: Sequence[Engine] = (),
        *,
        rank: int,
        trainers: int,
        workers: int,
        host: str = "",
        port: int = 0,
        store: tuple[str, int] | None = None,
        export: Export | None = None,
        name: str = "sglang",
        memory_limit: int | None = None,
    ):
        """Meets the workers, and plans. Collective over the trainers. After a failure, make a new one.

        Args:
            source: a model or a flat dict: DTensors of any placements, and plain tensors.
            engines: on rank 0: all engines that are updated together, of the same size.
            rank, trainers: the rank of this process among the trainers, and the number of trainers.
            workers: processes of all engines together: tensor x pipeline x data parallel.
            host, port: of a store that rank 0 serves, as all processes reach it; by default this machine's name, and a
                port that rank 0 chooses.
            store: (host, port) of a server that already runs, in place of host and port. It outlives rank 0.
            export: where SGLang expects other names or forms than the trainer's (see reshard.Refit). By default what
                save_pretrained does, for a transformers model.
            memory_limit: bytes beyond the weights, on each rank.

        Raises:
            As reshard.join and reshard.Refit, or the engine.
        """
        self._engines = list(engines) if rank == 0 else []
        if rank == 0 and (not engines or workers % len(engines)):
            raise InputError(f"engines: {workers} workers are those of {len(engines)} engines of the same size")
        self._workers = workers // max(1, len(engines))  # of each
        world = trainers + workers
        met, host, port = store_of_trainers(rank, trainers, host, port, store)
        asked = {"host": host, "port": port, "world": world, "name": name, "memory_limit": memory_limit}
        with self._asking({"meet": asked, "first": trainers}):
            self._joined: Joined = join(met, rank, world, name=name)
            export = export if export is not None else export_of_transformers(source)
            try:
                self.refit = Refit(source=dict(named(source)), export=export, group=self._joined, memory_limit=memory_limit)
            except BaseException:
                self._joined.leave()
                raise

    def send_weights(self, *, changed_only: bool = False) -> int:
        """Sends one version to all workers. Collective over the trainers.

        Args:
            changed_only: leaves out what has not changed since the last call; the same on all ranks.

        Returns:
            The version's number, counted over all updates in the store.

        Raises:
            As reshard.Refit, or the engine: the old weights are in place everywhere, or the error says what has happened.
        """
        with self._asking({"changed_only": changed_only}):
            return self.refit(changed_only=changed_only)

    def close(self) -> None:
        """Leaves the workers. They go on serving."""
        self._joined.leave()

    def _asking(self, what: dict[str, Any]) -> Asking:
        return Asking((lambda: self._ask(what)) if self._engines else None)

    def _ask(self, what: dict[str, Any]) -> None:
        """All engines at the same time: each answers when its workers have done their part."""
        with ThreadPoolExecutor(len(self._engines)) as threads:
            asked = [threads.submit(self._ask_one, number, what) for number in range(len(self._engines))]
        for one in asked:
            one.result()

    def _ask_one(self, number: int, what: dict[str, Any]) -> None:
        told = {**what, "first": what.get("first", 0) + number * self._workers}
        message = torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)
        self._engines[number].update_weights_from_tensor([(_MESSAGE, message)], load_format=_LOAD, flush_cache=True)


class _Met(NamedTuple):
    joined: Joined
    refit: Refit


_met: dict[str, _Met] = {}  # of this worker, by the name under which they meet: one, except in tests


def load(model: torch.nn.Module, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """The serving side: what SGLang calls in each worker, with its model.

    A failed update leaves the old weights in place, here and everywhere. The trainers raise it, with the number of the
    rank that failed: trainers come first, workers follow. SGLang ends where this raises; this therefore raises where it
    is unknown which weights the others have.

    Raises:
        ValueError: something else was sent: another load_format is meant.
        reshard.UndeterminedError: do not serve from this model.
    """
    sent = list(named_tensors)
    if [name for name, _ in sent] != [_MESSAGE]:
        raise InputError(f"{_LOAD}: only reshard.sglang.Transfer sends what this takes; for tensors leave load_format out")
    told = json.loads(bytes(sent[0][1].cpu().numpy()))
    name = told.get("meet", {}).get("name") or next(iter(_met), "")
    try:
        if "meet" in told:
            _leave(name)
            _met[name] = _meet(model, told["first"], **told["meet"])
        elif name not in _met:
            raise RuntimeError("this worker has not met the trainers: make another Transfer")
        else:
            _met[name].refit(changed_only=told["changed_only"])
    except UndeterminedError:
        raise
    except Exception:
        _leave(name)
        _log.exception("the weights are those of before: the trainers are told, and meet this worker again")


def _meet(
    model: torch.nn.Module, first: int, host: str, port: int, world: int, name: str, memory_limit: int | None
) -> _Met:
    store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False)
    rank = first + (dist.get_rank() if dist.is_initialized() else 0)
    joined = join(store, rank, world, name=name)
    try:
        loader: Any = model.load_weights
        return _Met(joined, Refit(target=model, loader=loader, group=joined, memory_limit=memory_limit))
    except BaseException:
        joined.leave()
        raise


def _leave(name: str) -> None:
    if name in _met:
        _met.pop(name).joined.leave()
