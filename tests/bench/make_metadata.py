#!/usr/bin/env python3
"""Writes OUT/.metadata of TENSORS tensors in CHUNKS chunks each, with PyTorch's own classes, or times pickle.load of it.

  make_metadata.py OUT TENSORS CHUNKS
  make_metadata.py OUT

The chunks of a tensor lie in 256 files, each written by one rank, in the order of the ranks, as a save leaves them.
Prints the size of the file in bytes, or the seconds that pickle.load took.
"""
import gc
import os
import pickle
import sys
import time

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties,
                                                   TensorStorageMetadata)

ROWS, COLUMNS, FILES = 8, 4096, 256


def make(out, tensors, chunks):
    state, storage = {}, {}
    names = [f"model.layers.{i}.attention.wq.weight" for i in range(tensors)]
    lengths = [0] * FILES
    for name in names:
        listed = [ChunkStorageMetadata(offsets=torch.Size([ROWS * c, 0]), sizes=torch.Size([ROWS, COLUMNS])) for c in range(chunks)]
        state[name] = TensorStorageMetadata(properties=TensorProperties(dtype=torch.float32), size=torch.Size([ROWS * chunks, COLUMNS]),
                                            chunks=listed)
    length = ROWS * COLUMNS * 4 + 1513
    for rank in range(FILES):
        file = f"__{rank}_0.distcp"
        for name in names:
            for c in range(rank, chunks, FILES):
                index = MetadataIndex(name, state[name].chunks[c].offsets, c)
                storage[index] = _StorageInfo(relative_path=file, offset=lengths[rank], length=length)
                lengths[rank] += length
    metadata = Metadata(state_dict_metadata=state, planner_data={n: tuple(n.split(".")) for n in names}, storage_data=storage,
                        storage_meta=StorageMeta(checkpoint_id=out, save_id="0"))
    with open(os.path.join(out, ".metadata"), "wb") as file:
        pickle.dump(metadata, file)
    for rank in range(FILES):  # sparse: the catalog asks how long they are
        with open(os.path.join(out, f"__{rank}_0.distcp"), "wb") as file:
            file.truncate(lengths[rank])


def main():
    out = sys.argv[1]
    path = os.path.join(out, ".metadata")
    if len(sys.argv) > 2:
        make(out, int(sys.argv[2]), int(sys.argv[3]))
        print(os.path.getsize(path))
        return
    gc.collect()
    begin = time.perf_counter()
    with open(path, "rb") as file:
        loaded = pickle.load(file)
    print(time.perf_counter() - begin)
    assert len(loaded.storage_data) > 0


if __name__ == "__main__":
    main()
