"""Reads checkpoints for torch.distributed.checkpoint."""

import io
import math
import os
import pickle
import uuid
from typing import Any

import torch
from torch.distributed import checkpoint
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem
from torch.futures import Future

from ..torch.entries import rank_in, span_or_alone
from ..torch.progress import Meter, Progress, told_of
from ..torch.state.values import unpickled
from ..torch.stored import Recipe, Stored, StoredTensor
from .pieces import PIECE_BYTES, pieces_of
from .planner import LoadPlanner

_BATCH_BYTES = 256 << 20  # read at a time, straight into the tensors


class StorageReader(checkpoint.StorageReader):
    """Replaces FileSystemReader, for any checkpoint that reshard reads, in any format.

        dcp.load(state, storage_reader=reshard.dcp.StorageReader("step-1000"))

    Nothing in the checkpoint is run: its metadata is parsed, and values that are not tensors are let through only if
    torch.load(weights_only=True) takes them, whatever the planner does with them. Tensors on devices, and those of
    another dtype (which are converted, as with FileSystemReader), are read in pieces of 32 MiB.

    Args:
        path: a directory, a file, or a URL of any kind that `reshard.load` takes.
        check: compare each chunk with its checksum, on the rank that reads its first element.
        weights_only: False lets values of any kind through. Then PyTorch's planner runs what the checkpoint tells it to.
        recipe: what to take from the checkpoint, under which names, and what to make of it (reshard.recipe/1).
        ignore_sidecar: do not read reshard.json, for a checkpoint that something else has overwritten.
        threads: how many threads read; 0 means one per core, but at most four.
        progress: called with (bytes done, bytes in total) of what this rank reads, on the thread that loads: at the
            beginning, at most a few times a second, and at the end. An exception from it ends the load. True prints a
            line every 5 seconds on stderr, on rank 0.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        check: bool = True,
        weights_only: bool = True,
        recipe: Recipe = None,
        ignore_sidecar: bool = False,
        threads: int = 0,
        progress: Progress = None,
    ) -> None:
        super().__init__()
        self.path = path
        self.load_id = uuid.uuid4().hex
        self._check = check
        self._weights_only = weights_only
        self.recipe = recipe
        self._ignore_sidecar = ignore_sidecar
        self._threads = threads
        self.progress = progress
        self._stored: Stored | None = None

    @property
    def checkpoint_id(self) -> str | os.PathLike:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        text = os.fspath(checkpoint_id)
        return "://" in text or os.path.exists(text)

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        if checkpoint_id:
            self.path = checkpoint_id
        self.load_id = uuid.uuid4().hex
        self._stored = None

    def opened(self, recipe: Recipe) -> Stored:
        """The checkpoint under a recipe; the one that is already open, if the recipe is its own.

        Raises:
            FileNotFoundError, OSError, ValueError, RuntimeError: as reshard.load.
        """
        if recipe is self.recipe and self._stored is not None:
            return self._stored
        return Stored(self.path, check=self._check, ignore_sidecar=self._ignore_sidecar, recipe=recipe)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The metadata of the checkpoint. An error is raised when the result is first used:
        torch.distributed.checkpoint.load replaces errors of this call by one without a reason.
        """
        try:
            self._stored = None
            self._stored = self.opened(self.recipe)
            return _metadata_of(self._stored, self.load_id)
        except Exception as error:
            return _Unreadable(error)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._stored is None:
            self._stored = self.opened(self.recipe)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: checkpoint.LoadPlanner) -> Future[None]:
        if isinstance(planner, LoadPlanner):
            planner.load_with(self)
        else:
            self._read_items(plan, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _read_items(self, plan: LoadPlan, planner: checkpoint.LoadPlanner) -> None:
        assert self._stored is not None
        total = sum(_bytes_of(item, self._stored) for item in plan.items)
        meter = Meter(total, told_of(self.progress, rank_in(span_or_alone(None))))
        batch: list[tuple[ReadItem, torch.Tensor, list[int]]] = []
        waiting = 0

        def flush() -> None:
            nonlocal waiting
            self._stored.read([(item.storage_index.fqn, offset, target) for item, target, offset in batch], self._threads)
            for item, target, _ in batch:
                planner.commit_tensor(item, target)
            batch.clear()
            meter.add(waiting)
            waiting = 0

        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(self._value(name)))
                continue
            stored = self._stored.tensors[name]
            begin = item.storage_index.offset or [0] * len(stored.shape)
            offset = [at + more for at, more in zip(begin, item.storage_offsets)]
            target = planner.resolve_tensor(item).detach()
            if target.size() != item.lengths:
                raise ValueError(f"{name}: the planner gave {list(target.size())} for a box of {list(item.lengths)}")
            if _reads_straight(target, stored):
                batch.append((item, target, offset))
                waiting += target.nbytes
                if waiting >= _BATCH_BYTES:
                    flush()
            else:
                self._read_pieces(name, stored, offset, target, meter)
                planner.commit_tensor(item, target)
        flush()
        meter.end()

    def _value(self, name: str) -> bytes:
        assert self._stored is not None
        if name not in self._stored.items:
            raise KeyError(f"{name} is not a value in {os.fspath(self.path)}")
        bytes_ = self._stored.read_item(name)
        if self._weights_only:
            unpickled(name, bytes_, "or anything by StorageReader(weights_only=False)")
        return bytes_

    def _read_pieces(self, name: str, stored: StoredTensor, offset: list[int], target: torch.Tensor, meter: Meter) -> None:
        if stored.dtype is None:
            raise ValueError(f"{name}: its elements are of a type that this PyTorch does not have")
        for at, piece in pieces_of(target, PIECE_BYTES // max(1, stored.dtype.itemsize)):
            memory = torch.empty(piece.size(), dtype=stored.dtype)
            self._stored.read([(name, [begin + more for begin, more in zip(offset, at)], memory)], self._threads)
            piece.copy_(memory)
            meter.add(memory.nbytes)


class _Unreadable(Metadata):
    """Stands in for the metadata of a checkpoint that cannot be read: raises the reason when it is used."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattribute__(self, name: str) -> Any:
        if name in ("state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version"):
            raise object.__getattribute__(self, "_error")
        return object.__getattribute__(self, name)


def _bytes_of(item: ReadItem, stored: Stored) -> int:
    if item.type == LoadItemType.BYTE_IO:
        return 0
    dtype = stored.tensors[item.storage_index.fqn].dtype
    return 0 if dtype is None else math.prod(item.lengths) * dtype.itemsize


def _reads_straight(target: torch.Tensor, stored: StoredTensor) -> bool:
    return (
        type(target) in (torch.Tensor, torch.nn.Parameter)
        and target.device.type == "cpu"
        and target.layout == torch.strided
        and target.dtype == stored.dtype
        and not target.is_conj()
        and not target.is_neg()
    )


def _metadata_of(stored: Stored, load_id: str) -> Metadata:
    state: dict[str, Any] = {name: BytesStorageMetadata() for name in stored.items}
    for name, tensor in stored.tensors.items():
        chunks = [ChunkStorageMetadata(torch.Size(offset), torch.Size(size)) for offset, size in tensor.chunks]
        properties = TensorProperties(requires_grad=tensor.requires_grad)
        properties.dtype = tensor.dtype
        state[name] = TensorStorageMetadata(properties, torch.Size(tensor.shape), chunks)
    paths = {name: stored.paths.get(name, (name,)) for name in state}
    metadata = Metadata(state, planner_data=paths, storage_data={}, storage_meta=StorageMeta(load_id=load_id))
    for name, pickled in stored.pickled_attributes().items():
        if not hasattr(metadata, name):
            setattr(metadata, name, _PlainData(io.BytesIO(pickled)).load())
    return metadata


class _PlainData(pickle.Unpickler):
    """Numbers, texts and containers of them, as reshard writes them; nothing that is looked up by name."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")
