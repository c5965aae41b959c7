"""Writes checkpoints for torch.distributed.checkpoint."""

import concurrent.futures
import contextlib
import dataclasses
import io
import math
import os
import pickle
import uuid
from typing import Any, NamedTuple

import torch
from torch.distributed import checkpoint
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ..errors import ExistingFileError, FileError
from ..stores.interface import StoreError
from ..stores.schemes import scheme_of, store_of
from ..torch.private_pytorch import storage_info, storage_prefix
from ..torch.progress import Meter, Progress, told_of
from ..torch.stored import bytes_tensor, raise_reported
from .pieces import PIECE_BYTES, pieces_of


class _Written(NamedTuple):
    """Where a stream is, and the hash of its contents; no hash where reshard does not know them."""

    info: Any  # PyTorch's own, of storage_info
    hash: str


class StorageWriter(checkpoint.StorageWriter):
    """Replaces FileSystemWriter: writes the same format, which FileSystemReader reads, in place at one instant.

        dcp.save(state, storage_writer=reshard.dcp.StorageWriter("step-1000"))

    A checkpoint that the directory already has stays whole until the new one is: contents go into files with other
    names, then one rename replaces `.metadata`, then the old checkpoint's files are removed. Other files there, such
    as those that frameworks add, stay. The sidecar reshard.json has a hash of every chunk. Tensors on devices are
    written in pieces of 32 MiB.

    In a store, `.metadata` is put last and replaces the old one. There a rank holds one tensor at a time in host memory,
    beside what is being sent.

    Args:
        path: the directory, on a filesystem that every rank sees, or a URL such as s3://bucket/step-1000.
        overwrite: whether a checkpoint that is there may be replaced, as with FileSystemWriter.
        sync_files: contents are on the disk before the checkpoint appears; in a store they always are.
        thread_count: how many threads of each rank write, each to a file of its own.
        progress: called with (bytes done, bytes in total) of what this rank writes, on the thread that saves: at the
            beginning, a few times a second, and at the end. An exception from it ends the save. True prints a line
            every 5 seconds on stderr, on rank 0.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        overwrite: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        progress: Progress = None,
    ) -> None:
        super().__init__()
        self.path = path
        self.overwrite = overwrite
        self.sync_files = sync_files
        self.thread_count = max(1, thread_count)
        self.progress = progress
        self.save_id = uuid.uuid4().hex
        self._rank = 0
        self._is_together = True  # one `.metadata` for all ranks

    @property
    def checkpoint_id(self) -> str | os.PathLike:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return scheme_of(os.fspath(checkpoint_id)) not in ("http", "https", "hf")  # these are read-only

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        if checkpoint_id:
            self.path = checkpoint_id
        self.save_id = uuid.uuid4().hex

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._rank = kwargs.get("rank") or 0
        self._is_together = kwargs.get("use_collectives", True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        folder = self._folder()
        folder.make()
        there = set(folder.names())
        of_all = ".metadata"
        own = of_all if self._is_together else f"__{self._rank}.metadata"
        if not self._is_together and of_all in there:
            raise ExistingFileError(
                f"{folder.at(of_all)} exists: a checkpoint without collectives beside it would not be read"
            )
        if not self.overwrite and own in there:
            raise ExistingFileError(f"{folder.at(own)} already exists, and overwrite is False")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        # This writer does not need it, but planners that cache plans may pass them to PyTorch's writer the next time.
        return [
            dataclasses.replace(plan, storage_data=storage_prefix(f"__{rank}_")) if plan.storage_data is None else plan
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        parts = [part for part in _shared_out(plan.items, self.thread_count) if part]
        folder = self._folder()
        names = self._fresh_names(folder, len(parts))
        paths = [folder.at(name) for name in names]
        counted = [_Count() for _ in parts]
        try:
            meter = Meter(sum(map(_bytes_of, plan.items)), told_of(self.progress, self._rank))
            with concurrent.futures.ThreadPoolExecutor(max(1, len(parts))) as threads:
                work = [threads.submit(self._write_file, *each, planner) for each in zip(paths, parts, counted)]
                try:
                    while concurrent.futures.wait(work, timeout=0.1).not_done:
                        meter.reach(sum(count.bytes for count in counted))
                except BaseException:  # the executor waits for its threads
                    for count in counted:
                        count.is_to_stop = True
                    raise
            results = [result for part in work for result in part.result()]
            meter.end()
        except BaseException:
            for name in names:
                with contextlib.suppress(OSError, StoreError):
                    folder.remove(name)
            raise
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        written: dict[Any, _Written] = {result.index: result.storage_data for part in results for result in part}
        metadata = dataclasses.replace(metadata, version=CURRENT_DCP_VERSION)
        metadata.storage_data = {index: one.info for index, one in written.items()}
        metadata.storage_meta = self.storage_meta()
        infos = [one.info for one in written.values()]
        hashes = [one.hash for one in written.values()]
        is_hashed = self._is_together and all(hashes)
        raise_reported(
            torch.ops.reshard._replace_metadata(
                os.fspath(self.path),
                bytes_tensor(pickle.dumps(metadata)),
                -1 if self._is_together else self._rank,
                sorted({info.relative_path for info in infos}),
                [info.relative_path for info in infos] if is_hashed else [],
                [info.offset for info in infos] if is_hashed else [],
                [info.length for info in infos] if is_hashed else [],
                hashes if is_hashed else [],
            )
        )

    def _folder(self) -> "_Directory | _StoreFolder":
        path = os.fspath(self.path)
        return _StoreFolder(path) if scheme_of(path) else _Directory(path)

    def _fresh_names(self, folder: "_Directory | _StoreFolder", count: int) -> list[str]:
        """PyTorch's names of files where this rank has none yet; otherwise names that are not taken."""
        prefix = f"__{self._rank}_"
        taken = any(name.startswith(prefix) and name.endswith(".distcp") for name in folder.names())
        suffix = f".{self.save_id[:8]}.distcp" if taken else ".distcp"
        return [f"{prefix}{index}{suffix}" for index in range(count)]

    def _write_file(
        self, path: str, items: list[WriteItem], count: "_Count", planner: SavePlanner
    ) -> list[WriteResult]:
        streams = [_stream_of(item, planner.resolve_data(item)) for item in items]
        file = torch.classes.reshard.StreamFile(path, [stream.length for stream in streams])
        results = []
        for item, stream in zip(items, streams):
            if stream.tensor is None:
                raise_reported(file.add_bytes(bytes_tensor(stream.content)))
                count.add(0 if stream.is_known else stream.nbytes)
            else:
                _add_tensor(file, stream.tensor, count)
            at, length, hash_ = file.last()
            info = storage_info(path.rpartition("/")[2], at, length)
            results.append(WriteResult(item.index, stream.nbytes, _Written(info, hash_ if stream.is_known else "")))
        raise_reported(file.finish(self.sync_files))
        return results


class _Directory:
    def __init__(self, path: str) -> None:
        self._path = path

    def at(self, name: str) -> str:
        return os.path.join(self._path, name)

    def make(self) -> None:
        os.makedirs(self._path, exist_ok=True)

    def names(self) -> list[str]:
        return os.listdir(self._path)

    def remove(self, name: str) -> None:
        os.remove(self.at(name))


class _StoreFolder:
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def at(self, name: str) -> str:
        return f"{self._url}/{name}"

    def make(self) -> None:
        """A store has no folders without objects."""

    def names(self) -> list[str]:
        try:
            return [entry.name for entry in store_of(self._url).list(self._url)]
        except StoreError as error:
            if error.code == "not_found":
                return []
            raise FileError(str(error)) from error

    def remove(self, name: str) -> None:
        store_of(self._url).remove(self.at(name))


class _Count:
    """What a thread has written, and whether it is to go on."""

    def __init__(self) -> None:
        self.bytes = 0
        self.is_to_stop = False

    def add(self, bytes_: int) -> None:
        self.bytes += bytes_
        if self.is_to_stop:
            raise InterruptedError("it was asked to stop")


def _check_size(item: WriteItem, tensor: torch.Tensor) -> None:
    """Raises:
    ValueError: the planner has planned a chunk of another size, which would be written as a wrong tensor.
    """
    planned = item.tensor_data.chunk.sizes if item.tensor_data is not None else tensor.size()
    if planned != tensor.size() and max(math.prod(planned), tensor.numel()) > 0:
        raise ValueError(
            f"{item.index.fqn}: the planner has planned a chunk of {list(planned)} on this rank, whose tensor is "
            f"{list(tensor.size())}. The planner of PyTorch 2.11 does so for some strided shards that are uneven, as of "
            "FSDP2 over tensor parallelism: save them with reshard.save, which torch.distributed.checkpoint can load"
        )


class _Stream(NamedTuple):
    """What is written of an item: a tensor, or bytes that are there already."""

    tensor: torch.Tensor | None
    content: Any  # a buffer
    length: int  # bytes of the stream
    nbytes: int  # of what was to be saved
    is_known: bool  # whether reshard's hash is that of the contents


def _stream_of(item: WriteItem, data: torch.Tensor | io.BytesIO) -> _Stream:
    if not isinstance(data, torch.Tensor):
        content = data.getbuffer()
        return _Stream(None, content, len(content), len(content), True)
    _check_size(item, data)
    tensor = data.detach()
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    length = torch.ops.reshard._stream_bytes(torch.empty(0, dtype=tensor.dtype), list(tensor.size())) if is_plain else -1
    if length >= 0:
        return _Stream(tensor, b"", length, tensor.nbytes, True)
    host = tensor.cpu()
    buffer = io.BytesIO()
    torch.save(host.clone() if is_plain else host, buffer)  # a clone, lest the whole storage behind a view be saved
    content = buffer.getbuffer()
    return _Stream(None, content, len(content), tensor.nbytes, False)


def _add_tensor(file: Any, tensor: torch.Tensor, count: _Count) -> None:
    tensor = tensor.resolve_conj().resolve_neg()
    raise_reported(file.begin(torch.empty(0, dtype=tensor.dtype), list(tensor.size())))
    for _, piece in pieces_of(tensor, PIECE_BYTES // tensor.element_size()):
        raise_reported(file.append(piece.contiguous().cpu()))
        count.add(piece.nbytes)
    raise_reported(file.end())


def _shared_out(items: list[WriteItem], count: int) -> list[list[WriteItem]]:
    """`count` parts of about the same number of bytes."""
    parts: list[list[WriteItem]] = [[] for _ in range(count)]
    bytes_ = [0] * count
    for item in sorted(items, key=_bytes_of, reverse=True):
        least = min(range(count), key=bytes_.__getitem__)
        parts[least].append(item)
        bytes_[least] += max(1, _bytes_of(item))
    return parts


def _bytes_of(item: WriteItem) -> int:
    if item.type == WriteItemType.BYTE_IO or item.tensor_data is None:
        return 0
    return math.prod(item.tensor_data.chunk.sizes) * item.tensor_data.properties.dtype.itemsize
