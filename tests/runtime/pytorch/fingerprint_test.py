#!/usr/bin/env python3
"""reshard.fingerprint on Gloo ranks: against its definition, on random meshes of several numbers of ranks; changes that
it must see; refusals."""

import random

import numpy as np
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import gloo
from checks import ChecksTest, main
from reference import Layout, Mesh

NAMES = ("a", "b")
MESHES = {1: [(1,)], 2: [(2,), (1, 2)], 3: [(3,), (2,)], 4: [(2, 2), (4,), (3,), (1, 4)]}  # by number of ranks
MASK = (1 << 64) - 1
LOW_STEP, HIGH_STEP = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03


def contents():
    """Names and whole tensors, of every element size."""
    generator = torch.Generator().manual_seed(7)

    def bits(*shape):
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

    return {
        "embedding": bits(61, 70 * 4).view(torch.float32),
        "layers.0.weight": bits(9, 1030 * 2).view(torch.bfloat16),
        "layers.0.scale": bits(13),
        "layers.0.mask": bits(5, 7) > 99,
        "layers.1.weight": bits(6, 5, 8 * 8).view(torch.float64),
        "layers.1.phase": bits(7, 3 * 16).view(torch.complex128),
        "step": torch.tensor(17),
        "empty": torch.empty(0, 4),
    }


# The definition in docs/design/fingerprint.md, element by element.


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def identity(name, dtype, shape):
    high, low = 0xCBF29CE484222325, 0x9E3779B97F4A7C15
    for text in ("name", name, "dtype", dtype, "shape", "[" + ", ".join(map(str, shape)) + "]"):
        for byte in text.encode():
            high = ((high ^ byte) * 0x100000001B3) & MASK
            low = ((((low << 7) | (low >> 57)) & MASK) + byte) * 0xD6E8FEB86659FD93 & MASK
        high = mix(high ^ len(text))
    return mix(high), mix((low + high) & MASK)


CHUNK_KEYS = [[mix((i + 1) * step & MASK) >> 32 | 1 for i in range(1024)] for step in (LOW_STEP, HIGH_STEP)]
DTYPES = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.float64: "f64",
    torch.complex128: "c128",
    torch.int64: "i64",
}


def defined(name, whole):
    data = whole.reshape(-1).view(torch.uint8).numpy().tobytes() if whole.numel() else b""
    chunks = np.frombuffer(data + b"\0" * (-len(data) % 4), dtype="<u4").tolist()
    high, low = identity(name, DTYPES[whole.dtype], whole.shape)
    halves = []
    for own, keys, step, other_step in (
        (low, CHUNK_KEYS[0], LOW_STEP, HIGH_STEP),
        (high, CHUNK_KEYS[1], HIGH_STEP, LOW_STEP),
    ):
        total = mix((own + other_step) & MASK)
        for b in range(0, len(chunks), 1024):
            inner = sum(x * k for x, k in zip(chunks[b : b + 1024], keys))
            total += inner * (mix((own + (b // 1024 + 1) * step) & MASK) | 1)
        halves.append(total & MASK)
    return halves


def text(low, high):
    return f"{high:016x}{low:016x}"


def spread(whole, mesh, placements, rank):
    """The DTensor of it; made by slicing, without the library."""
    axes = ",".join(f"{name}:{size}" for name, size in zip(NAMES, mesh.shape))
    factors = [[] for _ in whole.shape]
    for name, placement in zip(NAMES, placements):
        if placement.is_shard():
            factors[placement.dim].append(name)
    dims = [f"<{','.join(f)}>{n}" if f else str(n) for f, n in zip(factors, whole.shape)]
    layout = Layout(f"[{', '.join(dims)}]", Mesh(f"{{{axes}}}@[{','.join(map(str, mesh.mesh.flatten().tolist()))}]"))
    local = torch.empty(0, dtype=whole.dtype)
    if layout.holds(rank):
        local = whole
        for dim, index in enumerate(layout.indices(rank)):
            local = local.index_select(dim, torch.as_tensor(index))
        if local.dim() == 2 and rank % 2:
            local = local.t().contiguous().t()  # in other strides
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


def random_state(c, rng, wholes):
    """Each tensor on a random mesh of random ranks, in a random layout, or plain; in random order. All ranks alike."""
    names = list(wholes)
    rng.shuffle(names)
    state = {}
    for name in names:
        whole = wholes[name]
        shape = rng.choice(MESHES[c.world])
        ranks = rng.sample(range(c.world), torch.Size(shape).numel())
        placements = [rng.choice([Replicate(), *(Shard(d) for d in range(whole.dim()))]) for _ in shape]
        # Outside a mesh, DTensor.from_local makes a 0-d tensor one of no elements.
        plain = rng.random() < 0.2 or (whole.dim() == 0 and len(ranks) < c.world)
        mesh = None if plain else mesh_of(c, shape, ranks)
        state[name] = whole.clone() if plain else spread(whole, mesh, placements, c.rank)
    return state


def mesh_of(c, shape, ranks):
    """Kept: each makes process groups."""
    known = c.__dict__.setdefault("meshes", {})
    key = (shape, tuple(ranks))
    if key not in known:
        known[key] = DeviceMesh("cpu", torch.tensor(ranks).reshape(shape), mesh_dim_names=NAMES[: len(shape)])
    return known[key]


def check_definition(c, seed, wanted):
    import reshard

    rng = random.Random(seed * 10 + c.world)
    wholes = contents()
    for number in range(5):
        state = random_state(c, rng, wholes)
        what = f"{number}: {[(n, getattr(t, 'placements', None)) for n, t in state.items()]}"
        got = c.run(what, lambda: reshard.fingerprint(state, per_tensor=True))
        c.true(what, got == {name: text(*wanted[name]) for name in sorted(wanted)}, f"{got}")
        total = text(*(sum(halves) & MASK for halves in zip(*wanted.values())))
        c.true(what, c.run(what, lambda: reshard.fingerprint(state)) == total)


def check_orders(c):
    """Shard orders, models, lists, nested state and names of some ranks only."""
    import reshard

    mesh = DeviceMesh("cpu", torch.arange(4).reshape(2, 2), mesh_dim_names=NAMES)
    whole = contents()["embedding"]
    plain = reshard.fingerprint({"model": {"weight": whole}, "epoch": 3})
    x = spread(whole, mesh, [Shard(0), Shard(1)], c.rank)
    for layout in ("[<a,b>, ...]", "[<b,a>, ...]", "[<b>, <a>]", "[..., <b,a>]"):
        moved = reshard.redistribute(x, layout)
        c.true(layout, reshard.fingerprint({"model": {"weight": moved}}) == plain)
    model = torch.nn.Linear(70, 61, bias=False)
    model.weight = torch.nn.Parameter(reshard.redistribute(x, "[<b>, <a>]"))  # which drops shard orders
    c.true("a model", reshard.fingerprint(model) == reshard.fingerprint({"weight": whole}))
    c.true("a list", reshard.fingerprint([x, whole]) == reshard.fingerprint({"1": whole, "0": whole}))
    c.true("nothing", reshard.fingerprint({}) == "0" * 32 and reshard.fingerprint([], per_tensor=True) == {})
    second = whole.flip(0)
    stage = {"stage1": second} if c.rank % 2 else {"stage0": whole}  # of a pipeline: each of two ranks
    both = reshard.fingerprint({"stage0": whole, "stage1": second})
    c.true("stages", reshard.fingerprint(stage) == both)


def check_changes(c):
    """One bit or two elements on one rank, seen by all."""
    import reshard

    mesh = DeviceMesh("cpu", torch.arange(4).reshape(2, 2), mesh_dim_names=NAMES)
    whole = contents()["embedding"]
    x = spread(whole, mesh, [Shard(0), Shard(1)], c.rank)
    before = reshard.fingerprint([x])
    local = x.to_local()
    for culprit in range(4):
        if c.rank == culprit:
            local[3, 5] = -local[3, 5]
        c.true(f"a bit of rank {culprit}", reshard.fingerprint([x]) != before)
        if c.rank == culprit:
            local[3, 5] = -local[3, 5]
            local[[1, 2]] = local[[2, 1]]
        c.true(f"rows of rank {culprit}", reshard.fingerprint([x]) != before)
        if c.rank == culprit:
            local[[1, 2]] = local[[2, 1]]
    c.true("as it was", reshard.fingerprint([x]) == before)
    c.true("another name", reshard.fingerprint({"w": x}) != before)
    # Rank 1 has what rank 0 has: the first counts.
    y = spread(whole, mesh, [Shard(0), Replicate()], c.rank)
    if c.rank == 1:
        y.to_local().zero_()
    c.true("replicas", reshard.fingerprint([y]) == before)


def check_refusals(c):
    import reshard

    mesh = DeviceMesh("cpu", torch.arange(4), mesh_dim_names=("a",))
    partial = DTensor.from_local(torch.ones(3), mesh, [Partial()], run_check=False)
    c.raises("partial", lambda: reshard.fingerprint({"w": partial}), "partial", "w", kind=ValueError)
    other = torch.ones(3 if c.rank == 2 else 4)
    c.raises("another shape", lambda: reshard.fingerprint({"w": other}), "rank 2", "w", kind=ValueError)
    whole = torch.ones(4)
    sparse = whole.to_sparse() if c.rank == 1 else whole
    c.raises("sparse on rank 1", lambda: reshard.fingerprint({"w": sparse}), "rank 1", "w")
    c.run("afterwards", lambda: reshard.fingerprint({"w": whole}))


class FingerprintTest(ChecksTest):
    def test_definition(self):
        seed = gloo.seed()
        wanted = {name: defined(name, whole) for name, whole in contents().items()}
        for world in (1, 2, 3, 4):
            with self.subTest(world=world):
                self.on_ranks(world, [check_definition], seed, wanted)

    def test_alone(self):
        """A process of no group."""
        import reshard

        wholes = contents()
        wanted = {name: text(*defined(name, whole)) for name, whole in wholes.items()}
        self.assertEqual(reshard.fingerprint(wholes, per_tensor=True), wanted)
        with self.assertRaisesRegex(ValueError, "w: a tensor that is not strided"):
            reshard.fingerprint({"w": torch.ones(4).to_sparse()})
        ChecksTest.checks += 2

    def test_four_ranks(self):
        self.on_ranks(4, [check_orders, check_changes, check_refusals])


if __name__ == "__main__":
    main("fingerprint")
