#!/usr/bin/env python3
"""Writes COUNT random pickles OUT/0, OUT/1, ... of protocols 2 to 5 that look like the metadata of checkpoints.

  make_pickles.py OUT COUNT SEED

The classes have PyTorch's names and nothing else of it. Objects share sizes, texts and now and then a whole state, as
programs do that do not mean to; chunks have up to 9 dimensions and numbers of every width that a pickle knows.
"""
import pickle
import random
import sys
import types


class Size(tuple):
    def __reduce__(self):
        return (Size, (tuple(self),))


def plain_class(module, name):
    made = type(name, (), {"__module__": module})
    if module not in sys.modules:
        sys.modules[module] = types.ModuleType(module)
    setattr(sys.modules[module], name, made)
    return made


METADATA = "torch.distributed.checkpoint.metadata"
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].Size = Size
Size.__module__ = "torch"
Metadata = plain_class(METADATA, "Metadata")
Tensor = plain_class(METADATA, "TensorStorageMetadata")
Chunk = plain_class(METADATA, "ChunkStorageMetadata")
Index = plain_class(METADATA, "MetadataIndex")
Info = plain_class("torch.distributed.checkpoint.filesystem", "_StorageInfo")
Stranger = plain_class("elsewhere", "Stranger")


def make(rng):
    def number():
        if rng.random() < 0.01:
            return 1 << 70
        return rng.choice([rng.randrange(256), rng.randrange(1 << 16), rng.randrange(1 << 31), rng.randrange(1 << 45), -rng.randrange(1 << 40),
                           (1 << 30) - 1, 1 << 30, -(1 << 30), -(1 << 30) - 1, 0])

    def fill(of, **state):
        of.__dict__.update(state)
        return of

    rank = rng.randrange(10)
    shared = Size(number() for _ in range(rank))

    def size():
        return shared if rng.random() < 0.2 else Size(number() for _ in range(rng.choice([rank, rank, rank, rng.randrange(5)])))

    files = [f"__{i}_0.distcp" for i in range(3)]
    tensors, places, unknown = {}, {}, []
    for t in range(rng.randrange(1, 4)):
        name = f"layers.{t}.weight"
        chunks = [fill(Chunk(), offsets=size(), sizes=size()) for _ in range(rng.randrange(1, 40))]
        tensors[name] = fill(Tensor(), properties=None, size=shared, chunks=chunks)
        for i, chunk in enumerate(chunks):
            offset = chunk.offsets if rng.random() < 0.3 else Size(chunk.offsets)
            index = fill(Index(), fqn=name, index=rng.choice([i, None]), offset=rng.choice([offset, offset, None]))
            info = fill(Info(), relative_path=rng.choice(files), offset=number(), length=number())
            if rng.random() < 0.1:
                info.transform_descriptors = rng.choice([None, True, ["zstd"], 1.5, b"x", {"a": 1}])
            if rng.random() < 0.03:
                unknown.append(rng.choice([chunk, info, info.__dict__, chunk.offsets, tuple(chunk.offsets), Stranger(),
                                             fill(Stranger(), index=1, other=info)]))
            places[index] = info
    # The long text is behind everything else, so that nothing else is near the end.
    return fill(Metadata(), state_dict_metadata=tensors, storage_data=places, planner_data=unknown, storage_meta="x" * 1500)


def main():
    out, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for i in range(count):
        rng = random.Random(f"{seed}/{i}")
        with open(f"{out}/{i}", "wb") as file:
            pickle.dump(make(rng), file, protocol=2 + i % 4)


if __name__ == "__main__":
    main()
