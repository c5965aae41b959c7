"""The serving side: a vLLM engine, in each of its workers."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from ..torch import Joined, Refit, join
from .form import LoadedForm


@dataclasses.dataclass
class InitInfo(WeightTransferInitInfo):
    """Where the jobs meet, as the trainer says."""

    host: str
    port: int
    rank_offset: int  # trainers, whose ranks come first
    world_size: int  # trainers and workers
    name: str = "vllm"
    memory_limit: int | None = None  # bytes beyond the weights, on each rank


@dataclasses.dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """What is asked of one update."""

    changed_only: bool = False


class Engine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Receives this worker's part of each parameter, whatever the model's parallelism, and no byte more.

    vLLM's own loader says what each parameter is made of: it is recorded once (reshard.record). All workers and trainers
    install a version, or none does: an update that fails leaves the old weights, and raises on all of them, with the
    number of the rank that failed.
    """

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    # What the loader makes is planned for the model that the engine was made for.
    supports_draft_weight_update = False

    _joined: Joined | None = None
    _refit: Refit | None = None
    _form: LoadedForm | None = None

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Meets the trainers, and plans. Called again after a failure: all then meet in a new group."""
        self.shutdown()
        parallel = self.parallel_config
        rank = init_info.rank_offset + parallel.data_parallel_index * parallel.world_size + parallel.rank
        store = dist.TCPStore(
            init_info.host, init_info.port, is_master=False, wait_for_workers=False, timeout=datetime.timedelta(seconds=60)
        )
        self._joined = join(store, rank, init_info.world_size, name=init_info.name)
        with set_current_vllm_config(self.vllm_config):
            self._form = self._form or LoadedForm(self.model, self.model_config)
            self._refit = Refit(
                target=self._form.tensors,
                loader=self._form.load,
                installed=self._form.finish,
                group=self._joined,
                memory_limit=init_info.memory_limit,
            )

    @property
    def refit(self) -> Refit:
        """The Refit, which says what is moved, what the loader ignores, and how long it took.

        Raises:
            RuntimeError: init_transfer_engine was not called, or failed.
        """
        if self._refit is None:
            raise RuntimeError("the trainer has not met this worker: call init_weight_transfer_engine")
        return self._refit

    def start_weight_update(self) -> None:
        """Does nothing: an update is staged first, and touches no parameter before all ranks have it."""

    def update_weights(self, update_info: dict) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Receives one version of all weights.

        Raises:
            As reshard.Refit: the old weights are in place everywhere, or the error names who has not finished.
        """
        self.refit(changed_only=update_info.changed_only)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def finish_weight_update(self) -> None:
        """Does nothing: the version is already installed."""

    @staticmethod
    def trainer_send_weights(iterator: Any, trainer_args: Mapping[str, Any]) -> None:
        """What trainers of vLLM 0.25 call: send_weights of a `Transfer`. Collective over the trainers.

        Args:
            iterator: ignored; the weights are those of the Transfer's source.
            trainer_args: "trainer", the Transfer, and what its send_weights takes.
        """
        options = dict(trainer_args)
        options.pop("trainer").send_weights(**options)

    def shutdown(self) -> None:
        self._refit = None
        if self._joined is not None:
            self._joined.leave()
            self._joined = None
