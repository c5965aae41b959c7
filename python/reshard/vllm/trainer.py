"""The training side: vLLM's TrainerWeightTransferEngine, on every rank of a trainer."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import torch

try:
    from vllm.distributed.weight_transfer.base import (
        ParamMeta,
        TrainerInitInfo,
        TrainerWeightTransferEngine,
        VLLMWeightSyncClient,
        WeightSource,
    )
except ImportError:  # vLLM 0.25
    from .without_trainers import ParamMeta, TrainerInitInfo, TrainerWeightTransferEngine, VLLMWeightSyncClient, WeightSource

from ..errors import InputError
from ..torch import Fragment, Joined, Refit, join, redistribute
from ..torch.calling_engines import Asking, export_of_transformers, store_of_trainers
from ..torch.problems import Tensors, named
from ..torch.record import Export, exported


@dataclasses.dataclass
class TrainerInfo(TrainerInitInfo):
    """Who takes part, and where they meet. The same on all ranks, except `rank`.

    Args:
        rank: of this process among the trainers; 0 calls the engine.
        trainers, workers: processes on each side: vLLM's tensor x pipeline x data parallel ranks are the workers.
        host, port: of a store that rank 0 serves, as all processes reach it; by default this machine's name, and a port
            that rank 0 chooses, which the other trainers learn over their default group.
        store: (host, port) of a server that already runs, in place of host and port. It outlives rank 0.
        memory_limit: bytes beyond the weights, on each rank.
    """

    backend: ClassVar[str] = "reshard"

    trainers: int
    workers: int
    host: str = ""
    port: int = 0
    store: tuple[str, int] | None = None
    name: str = "vllm"
    memory_limit: int | None = None


class Source(WeightSource):
    """The weights of a trainer as they are: DTensors of any placements, Fragments (reshard.fsdp1_fragments,
    zero3_fragments), and plain tensors. Nothing is gathered.

    Args:
        tensors: a model, or a flat dict.
        export: where vLLM expects other names or forms than the trainer's: what makes a checkpoint's tensors, as vLLM
            reads them, from a dict of whole tensors. It is recorded, and nothing is made whole (see reshard.Refit). By
            default what save_pretrained does, for a transformers model.
    """

    def __init__(self, tensors: Tensors, export: Export | None = None):
        self.tensors: dict[str, Any] = dict(named(tensors))
        self.export = export if export is not None else export_of_transformers(tensors)

    def metadata(self) -> list[ParamMeta]:
        shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in self.tensors.items()}
        if self.export is not None:
            shapes = {name: (value.shape, value.dtype) for name, value in exported(self.export, shapes).items()}
        return [ParamMeta(name, dtype, shape) for name, (shape, dtype) in shapes.items()]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole tensors, for other backends: a collective each."""
        whole = {name: _whole(tensor) for name, tensor in self.tensors.items()}
        yield from (whole if self.export is None else dict(self.export(whole))).items()


def _whole(tensor: Any) -> torch.Tensor:
    if isinstance(tensor, Fragment):
        tensor = redistribute(tensor, "[...]")
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


class Transfer(TrainerWeightTransferEngine[TrainerInfo]):
    """Sends every byte that a worker lacks once, from the ranks that have it."""

    init_info_cls = TrainerInfo

    def __init__(self, info: TrainerInfo, client: VLLMWeightSyncClient, source: Source):
        super().__init__(client=client, source=source, is_sender=info.is_sender)
        self._info = info
        self._store: Any = None
        self._joined: Joined | None = None
        self._meet(source)

    @classmethod
    def trainer_init(
        cls, init_info: TrainerInfo, *, client: VLLMWeightSyncClient, source: WeightSource | Tensors | None = None
    ) -> "Transfer":
        """Meets the workers, and plans. Collective over the trainers. After a failure, call it again.

        Args:
            source: a Source, or a model or dict from which one is made.

        Raises:
            ValueError: another WeightSource, which gathers whole tensors.
            As reshard.join and reshard.Refit, or the client.
        """
        if isinstance(source, (torch.nn.Module, Mapping)):
            source = Source(source)
        if not isinstance(source, Source):
            raise InputError(f"source: a {type(source).__name__} gathers whole tensors; give a reshard.vllm.Source(model)")
        return cls(init_info, client, source)

    def send_weights(self, *, changed_only: bool = False, weight_version: str | None = None) -> int:
        """Sends one version to all workers. Collective over the trainers.

        Args:
            changed_only: leaves out what has not changed since the last call; the same on all ranks.
            weight_version: what vLLM calls the version from now on.

        Returns:
            The version's number, counted over all updates in the store.

        Raises:
            As reshard.Refit, or the client: the old weights are in place everywhere, or the error says what has happened.
        """
        if self.is_sender:
            self._start()
        with self._asking(lambda: self.client.update_weights({"changed_only": changed_only})):
            version = self.refit(changed_only=changed_only)
        if self.is_sender:
            self.client.finish_weight_update(*([] if weight_version is None else [weight_version]))
        return version

    def _start(self) -> None:
        try:
            self.client.start_weight_update()
        except Exception as error:
            # A lost trainer has left its update open: either all workers have finished their part of it, or none has.
            try:
                self.client.finish_weight_update()
            except Exception:
                raise error from None
            self.client.start_weight_update()

    def shutdown(self) -> None:
        if self._joined is not None:
            self._joined.leave()
            self._joined = None

    def _meet(self, source: Source) -> None:
        info = self._info
        self._store, host, port = store_of_trainers(info.rank, info.trainers, info.host, info.port, info.store)
        asked = {
            "host": host,
            "port": port,
            "rank_offset": info.trainers,
            "world_size": info.trainers + info.workers,
            "name": info.name,
            "memory_limit": info.memory_limit,
        }
        with self._asking(lambda: self.client.init_weight_transfer_engine(asked)):
            self._joined = join(self._store, info.rank, info.trainers + info.workers, name=info.name)
            self.refit = Refit(
                source=source.tensors, export=source.export, group=self._joined, memory_limit=info.memory_limit
            )

    def _asking(self, call: Callable[[], None]) -> Asking:
        return Asking(call if self.is_sender else None)
