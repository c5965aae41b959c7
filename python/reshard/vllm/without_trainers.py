"""vLLM 0.25, whose interface has no trainer side: what trainer.py takes from later versions."""

import dataclasses
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch

T = TypeVar("T")

VLLMWeightSyncClient = Any


class ParamMeta(NamedTuple):
    """One tensor of a checkpoint."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class WeightSource:
    """What gives the weights."""


@dataclasses.dataclass
class TrainerInitInfo:
    """Which of the trainers this process is."""

    backend: ClassVar[str]

    rank: int = dataclasses.field(kw_only=True)

    @property
    def is_sender(self) -> bool:
        """Whether it asks the engine."""
        return self.rank == 0


class TrainerWeightTransferEngine(Generic[T]):
    """The trainer side."""

    def __init__(self, *, client: VLLMWeightSyncClient, source: WeightSource, is_sender: bool):
        self.client, self.source, self.is_sender = client, source, is_sender
