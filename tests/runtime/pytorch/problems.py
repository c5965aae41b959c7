"""Random meshes, layouts and tensor contents for the redistribution tests. Everything follows from the given rng."""

import dataclasses

import numpy as np
import torch

from reference import Layout, Mesh

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
EIGHT_BIT_FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
DTYPES = FLOATS + INTEGERS + COMPLEX + EIGHT_BIT_FLOATS + [torch.bool]
SIZES = [0, 1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 8, 9, 12, 12, 13, 16, 16]
BIT_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclasses.dataclass
class Problem:
    mesh: str
    source: str
    target: str
    target_mesh: str | None
    dtype: torch.dtype
    contents: int  # the seed of the values

    def __str__(self):
        across = f" --to-mesh '{self.target_mesh}'" if self.target_mesh is not None else ""
        return f"'{self.mesh}' '{self.source}' '{self.target}'{across} {self.dtype} contents {self.contents}"

    def layouts(self):
        mesh = Mesh(self.mesh)
        other = Mesh(self.target_mesh) if self.target_mesh is not None else mesh
        return Layout(self.source, mesh), Layout(self.target, other)


def random_axes(rng, world):
    """[(name, size)], at most `world` devices."""
    axes = []
    devices = 1
    for name in "XYZ"[: rng.choice([1, 1, 1, 2, 2, 2, 2, 3, 3, 3, rng.randrange(2)])]:
        limit = world // devices
        size = rng.choice([s for s in (1, 2, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, limit) if s <= limit] or [1])
        axes.append((name, size))
        devices *= size
    return axes


def random_mesh(rng, world):
    axes = random_axes(rng, world)
    text = "{" + ",".join(f"{name}:{size}" for name, size in axes) + "}"
    size = int(np.prod([s for _, s in axes], dtype=int))
    manner = rng.randrange(4)
    if manner == 0:
        return axes, text
    if manner == 1:
        return axes, f"{text}@{rng.randrange(world - size + 1)}"
    return axes, f"{text}@[{','.join(map(str, rng.sample(range(world), size)))}]"


def _parts(rng, axes):
    """Each axis whole or as two sub-axes, in random order: (text, size, whole)."""
    parts = []
    for name, size in axes:
        divisors = [d for d in range(2, size) if size % d == 0]
        if divisors and rng.random() < 0.25:
            first = rng.choice(divisors)
            parts += [(f"{name}:(1){first}", first, False), (f"{name}:({first}){size // first}", size // first, False)]
        else:
            parts.append((name, size, True))
    rng.shuffle(parts)
    return parts


def _explicit(rng, name, axis_size, size):
    cuts = sorted(rng.randrange(size + 1) for _ in range(axis_size - 1))
    sizes = [b - a for a, b in zip([0] + cuts, cuts + [size])]
    return f"{name}=[{','.join(map(str, sizes))}]"


def _flattened(rng, dims, shape):
    """The dimensions as text, some neighbors flattened; axes that cut one of them may cut what is flattened instead."""
    first = rng.randrange(len(dims))
    last = rng.randrange(first, len(dims))
    outer = []
    for d in range(first, last + 1):
        if rng.random() < 0.6 and not any(f[0] in "~0123456789" or "=" in f for f in dims[d]):
            outer += dims[d]
            dims[d] = []
    written = _written(dims, shape)
    before = f"<{','.join(outer)}>" if outer else ""
    return written[:first] + [f"{before}({', '.join(written[first : last + 1])})"] + written[last + 1 :]


def _written(dims, shape):
    return [f"<{','.join(factors)}>{size}" if factors else str(size) for factors, size in zip(dims, shape)]


def random_layout(rng, axes, shape, partial=None, flattens=False):
    """partial: (operation, parts) that may not be used in dimensions, since they are partial."""
    operation, partial_parts = partial or (None, [])
    taken = {text.split(":")[0] for text in partial_parts}
    dims = [[] for _ in shape]
    for text, size, whole in _parts(rng, [a for a in axes if a[0] not in taken]):
        if not dims or rng.random() < 0.2:
            continue
        d = rng.randrange(len(dims))
        if rng.random() < 0.15:
            dims[d].append(str(rng.choice([2, 2, 3])))
        if whole and not dims[d] and rng.random() < 0.12:
            text = _explicit(rng, text, size, shape[d])
        elif whole and rng.random() < 0.15:
            text = "~" + text
        dims[d].append(text)
    written = _flattened(rng, dims, shape) if flattens and dims else _written(dims, shape)
    after = f" {operation}<{','.join(partial_parts)}>" if partial_parts else ""
    return f"[{', '.join(written)}]{after}"


def _random_partial(rng, axes, dtype):
    if not axes or dtype in EIGHT_BIT_FLOATS or rng.random() < 0.6:
        return None
    operations = ["sum", "sum", "prod"]
    if dtype not in COMPLEX:
        operations += ["min", "max"]
    if dtype in FLOATS + COMPLEX:
        operations += ["avg"]
    parts = [text for text, _, _ in _parts(rng, axes)]
    return rng.choice(operations), parts[: rng.randint(1, len(parts))]


def random_shape(rng):
    return [rng.choice(SIZES) for _ in range(rng.choice([1, 1, 1, 2, 2, 2, 2, 3, 3, 3, rng.randrange(3)]))]


def large_shape(rng):
    """Enough elements that a rank receives many MiB of most dtypes."""
    return [rng.randint(1500, 2500)] + [rng.randint(1, 2)] * rng.randrange(2) + [rng.randint(1500, 2500)]


def random_problem(rng, world, axes_and_mesh=None, shape_of=random_shape):
    axes, mesh = axes_and_mesh or random_mesh(rng, world)
    dtype = rng.choice(DTYPES)
    shape = shape_of(rng)
    partial = _random_partial(rng, axes, dtype)
    flattens = [not partial and rng.random() < 0.3 for _ in range(2)]
    source = random_layout(rng, axes, shape, partial, flattens[0])
    target_axes, target_mesh, kept = axes, None, None
    if axes_and_mesh is None and rng.random() < 0.3:
        target_axes, target_mesh = random_mesh(rng, world)
    elif partial and rng.random() < 0.3:
        kept = (partial[0], rng.sample(partial[1], rng.randint(1, len(partial[1]))))
    target = random_layout(rng, target_axes, shape, kept, flattens[1])
    return Problem(mesh, source, target, target_mesh, dtype, rng.randrange(1 << 31))


# Contents: moves are tested with arbitrary bytes, reductions with small numbers whose results are exact.


def tensor_of_bytes(array, dtype):
    """From an array [..., itemsize] of bytes."""
    return torch.from_numpy(np.ascontiguousarray(array).reshape(-1)).view(dtype).reshape(array.shape[:-1])


def bytes_of(tensor):
    return torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().reshape(-1)).view(torch.uint8)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(bytes_of(a), bytes_of(b))


def whole_bytes(layout, dtype, seed):
    """The global tensor as bytes [..., itemsize]."""
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 256, [*layout.shape, dtype.itemsize], dtype=np.uint8)
    return array & 1 if dtype == torch.bool else array


def contributions(layout, dtype, seed):
    """{coordinates along the partial axes: global array of int64}."""
    rng = np.random.default_rng(seed)
    places = layout.contributions()
    low = 0 if dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool) else -2
    if dtype == torch.bool:
        return {p: rng.integers(0, 2, layout.shape) for p in places}
    if layout.partial_op == "prod":
        return {p: rng.integers(1, 3, layout.shape) * rng.choice([1, low // 2 or 1], layout.shape) for p in places}
    return {p: rng.integers(low, 4, layout.shape) for p in places}


def reduced(operation, arrays):
    stack = np.stack(arrays)
    if operation == "avg":
        return stack.mean(axis=0)
    return {"sum": np.sum, "min": np.min, "max": np.max, "prod": np.prod}[operation](stack, axis=0)


def tensor_of_numbers(array, dtype):
    return torch.from_numpy(np.array(array)).to(dtype)


def rearranged(rng, tensor):
    """The same values, often not contiguous or not at the beginning of their storage."""
    carrier = BIT_CARRIERS.get(tensor.dtype.itemsize, tensor.dtype)
    bits = tensor.view(carrier)
    manner = rng.randrange(5)
    if manner == 1 and bits.dim() >= 2:
        bits = bits.transpose(0, -1).contiguous().transpose(0, -1)
    elif manner == 2 and bits.dim() >= 1:
        d = rng.randrange(bits.dim())
        shape = list(bits.shape)
        shape[d] *= 2
        wide = torch.zeros(shape, dtype=carrier)
        wide.narrow(d, 0, shape[d]).unflatten(d, (bits.shape[d], 2)).select(d + 1, 1).copy_(bits)
        bits = wide.unflatten(d, (bits.shape[d], 2)).select(d + 1, 1)
    elif manner == 3:
        flat = torch.zeros(bits.numel() + 3, dtype=carrier)
        flat[3:] = bits.reshape(-1)
        bits = flat[3:].view(bits.shape)
    return bits.view(tensor.dtype)
