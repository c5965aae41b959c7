#!/usr/bin/env python3
"""Writes OUT/.metadata of TENSORS tensors in CHUNKS chunks each, with PyTorch's own classes, and times pickle.load of it.

  make_metadata.py OUT TENSORS CHUNKS

The chunks of a tensor lie in 256 files, each written by one rank, in the order of the ranks, as a save leaves them.
Prints one JSON object: bytes, seconds of pickle.load (the best of two), seconds of reading the bytes.
"""
import gc
import json
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
    out, tensors, chunks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    make(out, tensors, chunks)
    gc.collect()
    path = os.path.join(out, ".metadata")
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        with open(path, "rb") as file:
            loaded = pickle.load(file)
        times.append(time.perf_counter() - begin)
        assert len(loaded.storage_data) == tensors * chunks
        del loaded
    begin = time.perf_counter()
    with open(path, "rb") as file:
        file.read()
    print(json.dumps({"bytes": os.path.getsize(path), "load_s": min(times), "read_s": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
