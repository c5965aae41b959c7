#!/usr/bin/env python3
"""torch.ops.reshard.all_to_all_v against its definition, and the validation it promises, on Gloo ranks."""

import random

import torch

import gloo
from checks import ChecksTest, main

WORLDS = (1, 2, 3, 4)
FILL = 77  # what dst holds before
COUNTS, DISPLS, RECEIVED, PLACES = range(4)  # rows of the metadata
MAX = {torch.int64: (1 << 63) - 1, torch.uint32: (1 << 32) - 1}


def exchange(c, src, dst, metadata, known, has_rdispls):
    torch.ops.reshard.all_to_all_v(src, dst, metadata, known, has_rdispls, c.group)


class Case:
    """What all ranks pass, made alike on every rank, and what each ends up with."""

    def __init__(self, rng, world, has_rdispls, known, rows, index_dtype, dtype):
        self.world, self.has_rdispls, self.known, self.index_dtype, self.dtype = (
            world,
            has_rdispls,
            known,
            index_dtype,
            dtype,
        )
        self.slot = rng.choice([0, 1, 4, 7])
        self.counts = [[rng.randint(0, self.slot) for _ in range(world)] for _ in range(world)]  # [sender][receiver]
        self.src_sizes = [max(counts) + rng.randint(0, 5) for counts in self.counts]
        self.displs = [[rng.randint(0, size - n) for n in counts] for counts, size in zip(self.counts, self.src_sizes)]
        self.places, self.dst_sizes = [], []
        for receiver in range(world):
            self._place(rng, receiver)
        self.rows = rows

    def _place(self, rng, receiver):
        """Where the chunks go: fixed slots, or anywhere without overlap, in any order, with gaps."""
        places = [i * self.slot for i in range(self.world)]
        end = self.world * self.slot
        if self.has_rdispls:
            order = list(range(self.world))
            rng.shuffle(order)
            end = 0
            for sender in order:
                end += rng.randint(0, 2)
                places[sender] = end
                end += self.counts[sender][receiver]
            end += rng.randint(0, 2)
        self.places.append(places)
        self.dst_sizes.append(end)

    def src(self, rank):
        return (torch.arange(self.src_sizes[rank]) % 25 + 25 * rank).to(self.dtype)

    def dst(self, rank):
        return torch.full([self.dst_sizes[rank]], FILL).to(self.dtype)

    def metadata(self, rank):
        rows = [self.counts[rank], self.displs[rank], [9] * self.world, self.places[rank]][: self.rows]
        return torch.tensor(rows).reshape(self.rows, self.world).to(self.index_dtype)

    def wanted(self, rank):
        dst = self.dst(rank)
        for sender in range(self.world):
            n, displ, at = self.counts[sender][rank], self.displs[sender][rank], self.places[rank][sender]
            dst[at : at + n] = self.src(sender)[displ : displ + n]
        metadata = self.metadata(rank)
        if not self.known:
            received = [self.counts[sender][rank] for sender in range(self.world)]
            metadata[RECEIVED] = torch.tensor(received).to(self.index_dtype)
        return dst, metadata


def check_random_exchanges(c, seed):
    rng = random.Random(seed * 10 + c.world)
    for number in range(80):
        has_rdispls = rng.random() < 0.5
        case = Case(
            rng,
            c.world,
            has_rdispls,
            known=rng.random() < 0.5,
            rows=4 if has_rdispls else rng.choice([3, 4]),
            index_dtype=rng.choice([torch.int64, torch.uint32]),
            dtype=rng.choice([torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float64]),
        )
        src, dst, metadata = case.src(c.rank), case.dst(c.rank), case.metadata(c.rank)
        what = f"{number}: rdispls {has_rdispls}, known {case.known}, {case.rows} rows, {case.index_dtype} {case.dtype}"
        c.run(what, lambda: exchange(c, src, dst, metadata, case.known, has_rdispls))
        wanted_dst, wanted_metadata = case.wanted(c.rank)
        c.equal(f"{what}: dst", dst, wanted_dst)
        c.equal(f"{what}: metadata", metadata.long(), wanted_metadata.long())
        c.equal(f"{what}: src", src, case.src(c.rank))


def uniform(c, index_dtype=torch.int64, rows=4, n=2):
    """Every rank sends n elements to everyone: src, dst, metadata."""
    p = c.world
    metadata = torch.tensor([[n] * p, [n * i for i in range(p)], [0] * p, [n * i for i in range(p)]][:rows]).to(
        index_dtype
    )
    return torch.arange(n * p) + 100.0 * c.rank, torch.full([n * p], float(FILL)), metadata


def uniform_wanted(c, n=2):
    return torch.cat([torch.arange(n) + n * c.rank + 100.0 * p for p in range(c.world)])


def check_shapes(c):
    """Tensors of several dimensions are flat buffers in row-major order."""
    src, dst, metadata = uniform(c)
    dst = dst.reshape(2, c.world)
    c.run("2-D", lambda: exchange(c, src.reshape(c.world, 2), dst, metadata, False, True))
    c.equal("2-D", dst, uniform_wanted(c).reshape(2, c.world))


def check_same_data_to_several(c):
    _, dst, metadata = uniform(c)
    metadata[DISPLS] = 1
    src = torch.arange(3) + 100.0 * c.rank
    c.run("overlap in src", lambda: exchange(c, src, dst, metadata, False, True))
    c.equal("overlap in src", dst, torch.cat([torch.arange(2) + 1 + 100.0 * p for p in range(c.world)]))


def changed(change, rows=4, index_dtype=torch.int64):
    """The tensors of a uniform exchange after change(src, dst, metadata), which may return new ones."""

    def make(c):
        tensors = uniform(c, index_dtype, rows)
        return change(*tensors) or tensors

    return make


def put(row, column, value):
    def change(_src, _dst, metadata):
        metadata[row, column] = value

    return change


# name: (the tensors, has_rdispls, fragments of the message). Each is wrong on the rank that passes it.
ERRORS = {
    "send beyond src": (changed(put(DISPLS, 0, 10**6)), True, ["src"]),
    "send count beyond src": (changed(put(COUNTS, 0, 10**6)), True, []),
    "send displacement at the largest int64": (changed(put(DISPLS, 0, MAX[torch.int64])), True, []),
    "send displacement at the largest uint32": (changed(put(DISPLS, 0, MAX[torch.uint32]), 4, torch.uint32), True, []),
    "negative count": (changed(put(COUNTS, 0, -1)), True, []),
    "negative displacement": (changed(put(DISPLS, 0, -1)), True, []),
    "receive beyond dst": (changed(put(PLACES, 0, 10**6)), True, ["dst"]),
    "receive place at the largest int64": (changed(put(PLACES, 0, MAX[torch.int64])), True, []),
    "negative receive place": (changed(put(PLACES, 0, -1)), True, []),
    "dst does not divide": (changed(lambda s, d, m: (s, torch.zeros(2 * m.shape[1] + 1), m), 3), False, ["divide"]),
    "float metadata": (changed(lambda s, d, m: (s, d, m.float())), True, ["metadata"]),
    "int32 metadata": (changed(lambda s, d, m: (s, d, m.int())), True, ["metadata"]),
    "two rows": (changed(lambda s, d, m: (s, d, m[:2].clone())), True, ["metadata"]),
    "three rows with rdispls": (changed(lambda s, d, m: (s, d, m[:3].clone())), True, ["metadata"]),
    "five rows": (changed(lambda s, d, m: (s, d, torch.cat([m, m[:1]]))), True, ["metadata"]),
    "flat metadata": (changed(lambda s, d, m: (s, d, m.reshape(-1))), True, ["metadata"]),
    "another G": (changed(lambda s, d, m: (s, d, torch.cat([m, m[:, :1]], 1))), True, ["metadata"]),
    "another dtype of dst": (changed(lambda s, d, m: (s, d.double(), m)), True, ["Double"]),
}


def check_errors(c):
    for name, (make, has_rdispls, fragments) in ERRORS.items():
        if c.world == 1 and name == "dst does not divide":
            continue
        rows = 4 if has_rdispls else 3
        for culprit in list(range(c.world)) if c.world > 1 else [0]:
            src, dst, metadata = make(c) if c.rank == culprit else uniform(c, torch.int64, rows)
            before, row = dst.clone(), metadata.clone()
            what = f"{name} on rank {culprit}"
            c.raises(
                what,
                lambda: exchange(c, src, dst, metadata, False, has_rdispls),
                *(fragments if c.rank == culprit else [f"rank {culprit}"]),
                kind=(ValueError, RuntimeError),
            )
            c.equal(f"{what}: dst", dst, before)
            c.equal(f"{what}: metadata", metadata, row)
            src, dst, metadata = uniform(c)
            c.run(f"{what}, afterwards", lambda: exchange(c, src, dst, metadata, False, True))
            c.equal(f"{what}, afterwards", dst, uniform_wanted(c))


def check_errors_of_two_ranks(c):
    """The receiver alone can see these: its slot is too small for what others send, or two chunks overlap."""
    for receiver in range(c.world):
        src, dst, metadata = uniform(c, rows=3)
        metadata[COUNTS, receiver] = 3  # everyone sends 3 into slots of 2
        metadata[DISPLS, receiver] = 0
        src = torch.arange(4.0 * c.world)
        before = dst.clone()
        what = f"chunk above the slot of rank {receiver}"
        c.raises(what, lambda: exchange(c, src, dst, metadata, False, False), kind=(ValueError, RuntimeError))
        c.equal(f"{what}: dst", dst, before)
        if c.world > 1:
            src, dst, metadata = uniform(c)
            if c.rank == receiver:
                metadata[PLACES, 1] = 1  # into the second element of rank 0's chunk
            what = f"overlap in dst of rank {receiver}"
            c.raises(
                what,
                lambda: exchange(c, src, dst, metadata, False, True),
                *(["overlap"] if c.rank == receiver else [f"rank {receiver}"]),
                kind=(ValueError, RuntimeError),
            )
            c.equal(f"{what}: dst", dst, before)
        src, dst, metadata = uniform(c)
        c.run(f"{what}, afterwards", lambda: exchange(c, src, dst, metadata, False, True))
        c.equal(f"{what}, afterwards", dst, uniform_wanted(c))


def check_requires_grad(c):
    src, dst, metadata = uniform(c)
    c.raises("src requires grad", lambda: exchange(c, src.requires_grad_(), dst, metadata, False, True), "grad")
    src, dst, metadata = uniform(c)
    c.run("afterwards", lambda: exchange(c, src, dst, metadata, False, True))
    c.equal("afterwards", dst, uniform_wanted(c))
    src, dst, metadata = uniform(c)
    with torch.no_grad():
        c.run("under no_grad", lambda: exchange(c, src.requires_grad_(), dst, metadata, False, True))
    c.equal("under no_grad", dst, uniform_wanted(c))


def check_known_on_one_rank_only(c):
    """recv_counts_known concerns the rank's own row 2 alone... or is refused; dst must not be wrong either way."""
    src, dst, metadata = uniform(c)
    try:
        exchange(c, src, dst, metadata, c.rank == 0, True)
    except RuntimeError as error:
        c.true("recv_counts_known differs", "rank" in str(error), str(error))
    else:
        c.equal("recv_counts_known differs", dst, uniform_wanted(c))


class AllToAllVTest(ChecksTest):
    def test_random_exchanges(self):
        seed = gloo.seed()
        for world in WORLDS:
            with self.subTest(world=world):
                self.on_ranks(world, [check_random_exchanges], seed)

    def test_the_rest(self):
        for world in WORLDS:
            for function in (
                check_shapes,
                check_same_data_to_several,
                check_errors,
                check_errors_of_two_ranks,
                check_requires_grad,
                check_known_on_one_rank_only,
            ):
                with self.subTest(world=world, function=function.__name__):
                    self.on_ranks(world, [function])


if __name__ == "__main__":
    main("all_to_all_v")
