#!/usr/bin/env python3
"""Random recipes against PyTorch: every operation, up to four within each other, uneven shapes, thirteen dtypes, casts; to
safetensors, some of it with little memory, and to sharded DCP; and back again where nothing is lost.

usage: recipes_test.py COMMAND [ROUNDS]
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

DTYPES = {
    "bool": torch.bool, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "f16": torch.float16,
    "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "f8e4m3fn": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2, "c64": torch.complex64, "f8e8m0": torch.float8_e8m0fnu,
}
FLOATS = ["f16", "bf16", "f32", "f64", "f8e4m3fn", "f8e5m2"]
INTEGERS = ["bool", "i8", "i32", "i64", "u8"]


def raw(tensor):
    """The bytes of a tensor, which operations on indices carry whatever they are."""
    size = tensor.element_size()
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return flat.reshape(*tensor.shape, size)


def from_raw(data, dtype):
    return data.contiguous().view(-1).view(dtype).reshape(data.shape[:-1]) if data.numel() else torch.empty(data.shape[:-1], dtype=dtype)


class Value:
    """A tensor as bytes, with one more dimension for those of an element, and its dtype's name."""

    def __init__(self, data, dtype):
        self.data, self.dtype = data, dtype

    @property
    def shape(self):
        return list(self.data.shape[:-1])


def random_value(choice, dtype, shape):
    count = math.prod(shape)
    if dtype == "bool":
        return Value(raw(torch.tensor([choice.random() < 0.5 for _ in range(count)], dtype=torch.bool).reshape(shape)), dtype)
    size = torch.empty(0, dtype=DTYPES[dtype]).element_size()
    return Value(torch.tensor(list(choice.randbytes(count * size)), dtype=torch.uint8).reshape(*shape, size), dtype)


def divisor(choice, number):
    return choice.choice([d for d in range(1, number + 1) if number % d == 0])


def cut(choice, length):
    sizes = []
    while sum(sizes) < length:
        sizes.append(choice.randint(1, length - sum(sizes)))
    return sizes


def with_length(choice, sizes, e):
    """Sizes of parts, as they are or in proportion."""
    if choice.random() < 0.5:
        e["sizes"] = sizes
    else:
        unit = math.gcd(*sizes)
        e["ratio"] = [size // unit for size in sizes]


def cast(value, to):
    """PyTorch has no way from some types to others; by way of f32 it is the same as what it does."""
    tensor = from_raw(value.data, DTYPES[value.dtype])
    return Value(raw(tensor.to(DTYPES[to])), to)


def unary(choice, e, value, invertible):
    """An operation on one tensor: the expression and its value."""
    shape, data = value.shape, value.data
    rank = len(shape)
    kind = choice.choice(["transpose", "permute", "reshape", "flatten", "unflatten", "permute_for_rope", "pad", "cast"] +
                         ([] if invertible else ["split", "chunk", "unstack", "deinterleave", "slice", "cast"]))
    if kind == "cast":
        exact = {"bf16": "f32", "f16": "f32", "f32": "f64", "i8": "i32", "u8": "i64", "f8e5m2": "f16", "bool": "f32", "f8e4m3fn": "bf16"}
        if invertible:
            to = exact.get(value.dtype)
        elif value.dtype in FLOATS:
            to = choice.choice(FLOATS + ["bool"])
        elif value.dtype in INTEGERS:
            to = choice.choice(INTEGERS + FLOATS[:4])
        else:
            to = None
        if to is None or to == value.dtype:
            return e, value
        # A NaN stays one, but which one is nobody's promise.
        made = cast(value, to)
        if to in FLOATS and from_raw(made.data, DTYPES[to]).to(torch.float64).isnan().any():
            return e, value
        return {"cast": e, "dtype": to, "from": value.dtype}, made
    if rank == 0:
        # "from" cannot say a shape of no dimensions, which the way back would need.
        return (e, value) if invertible else ({"reshape": e, "shape": [1, 1]}, Value(data.reshape(1, 1, -1), value.dtype))
    dim = choice.randrange(rank)
    length = shape[dim]
    at = dim if choice.random() < 0.5 else dim - rank
    if kind == "transpose":
        other = choice.randrange(rank)
        return {"transpose": e, "dims": [at, other]}, Value(data.transpose(dim, other), value.dtype)
    if kind == "permute":
        dims = choice.sample(range(rank), rank)
        return {"permute": e, "dims": dims}, Value(data.permute(*dims, rank), value.dtype)
    if kind == "reshape":
        left, sizes = math.prod(shape), []
        while left > 1 and len(sizes) < 3:
            sizes.append(divisor(choice, left))
            left //= sizes[-1]
        sizes.append(left)
        return {"reshape": e, "shape": sizes[:-1] + [-1], "from": shape}, Value(data.reshape(*sizes, -1), value.dtype)
    if kind == "flatten":
        last = choice.randrange(dim, rank)
        return ({"flatten": e, "dims": [at, choice.choice([last, last - rank])], "from": shape[dim : last + 1]},
                Value(data.flatten(dim, last), value.dtype))
    if kind == "unflatten":
        sizes = [divisor(choice, length), -1]
        return {"unflatten": e, "dim": at, "sizes": sizes}, Value(data.unflatten(dim, sizes), value.dtype)
    if kind == "permute_for_rope":
        if shape[0] % 2:
            return e, value
        heads = divisor(choice, shape[0] // 2)
        made = data.unflatten(0, (heads, shape[0] // heads // 2, 2)).transpose(1, 2).flatten(0, 2)
        return {"permute_for_rope": e, "heads": heads}, Value(made, value.dtype)
    if kind == "pad":
        more = choice.randint(1, 3)
        number = choice.choice([0, 1, -0.0]) if value.dtype in INTEGERS + FLOATS else 0
        filling = raw(torch.full([*shape[:dim], more, *shape[dim + 1 :]], number, dtype=torch.float32).to(DTYPES[value.dtype])) \
            if value.dtype != "f8e8m0" else torch.zeros([*shape[:dim], more, *shape[dim + 1 :], 1], dtype=torch.uint8)
        return ({"pad": e, "dim": at, "to": length + more, "value": number, "from": length},
                Value(torch.cat([data, filling], dim), value.dtype))
    if kind == "split":
        sizes = cut(choice, length)
        part = choice.randrange(len(sizes))
        out = {"split": e, "dim": at, "part": part}
        with_length(choice, sizes, out)
        return out, Value(data.split(sizes, dim)[part], value.dtype)
    if kind == "chunk":
        count = divisor(choice, length)
        part = choice.randrange(count)
        return {"chunk": e, "dim": at, "chunks": count, "part": part}, Value(data.chunk(count, dim)[part], value.dtype)
    if kind == "unstack":
        part = choice.randrange(length)
        return {"unstack": e, "dim": at, "part": part}, Value(data.select(dim, part), value.dtype)
    if kind == "deinterleave":
        blocks = divisor(choice, length)
        sizes = cut(choice, length // blocks)
        part = choice.randrange(len(sizes))
        out = {"deinterleave": e, "dim": at, "blocks": blocks, "part": part}
        with_length(choice, sizes, out)
        made = torch.cat([block.split(sizes, dim)[part] for block in data.chunk(blocks, dim)], dim)
        return out, Value(made, value.dtype)
    begin = choice.randrange(length)
    end = choice.randint(begin + 1, length)
    return {"slice": e, "dim": at, "begin": begin, "end": end}, Value(data.narrow(dim, begin, end - begin), value.dtype)


class Round:
    def __init__(self, choice, invertible):
        self.choice, self.invertible = choice, invertible
        self.tensors = {}  # name -> Value
        self.targets = {}  # name -> (expression, Value)

    def leaf(self, dtype, shape):
        name = f"a.{len(self.tensors)}"
        self.tensors[name] = random_value(self.choice, dtype, shape)
        return name, self.tensors[name]

    def join(self, dtype, shape):
        """Several tensors as one."""
        choice, rank = self.choice, len(shape)
        count = choice.randint(2, 4)
        kind = choice.choice(["concatenate", "stack", "interleave"]) if rank else "stack"
        if kind == "stack":
            dim = choice.randint(0, rank)
            parts = [self.leaf(dtype, shape) for _ in range(count)]
            return {"stack": [name for name, _ in parts], "dim": dim}, Value(torch.stack([v.data for _, v in parts], dim), dtype)
        dim = choice.randrange(rank)
        blocks = divisor(choice, shape[dim]) if kind == "interleave" else 1
        lengths = [blocks * choice.randint(1, max(1, shape[dim] // blocks)) for _ in range(count)]
        parts = [self.leaf(dtype, [*shape[:dim], length, *shape[dim + 1 :]]) for length in lengths]
        e = {kind: [name for name, _ in parts], "dim": dim}
        if kind == "interleave":
            e["blocks"] = blocks
            made = torch.cat([piece for b in zip(*(v.data.chunk(blocks, dim) for _, v in parts)) for piece in b], dim)
        else:
            made = torch.cat([v.data for _, v in parts], dim)
        if self.invertible or choice.random() < 0.5:
            with_length(choice, [length // blocks for length in lengths], e)
        return e, Value(made, dtype)

    def target(self):
        choice = self.choice
        dtype = choice.choice(list(DTYPES))
        shape = [choice.randint(1, 9) for _ in range(choice.randint(0, 4))]
        while math.prod(shape) > 2000:
            shape.pop()
        e, value = self.join(dtype, shape) if choice.random() < 0.6 else self.leaf(dtype, shape)
        for _ in range(choice.randint(1, 3)):
            e, value = unary(choice, e, value, self.invertible)
        self.targets[f"t.{len(self.targets)}"] = (e, value)


def run(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert not check or done.returncode == 0, (words, done.returncode, done.stderr[-3000:])
    return done


def as_tensors(values):
    return {name: from_raw(value.data, DTYPES[value.dtype]) for name, value in values.items()}


def compare(path, wanted, seed):
    found = {}
    for name in os.listdir(path):
        if name.endswith(".safetensors"):
            found.update(load_file(os.path.join(path, name)))
    assert sorted(found) == sorted(wanted), seed
    wrong = 0
    for name, tensor in wanted.items():
        same = found[name].dtype == tensor.dtype and found[name].shape == tensor.shape and torch.equal(raw(found[name]), raw(tensor))
        if not same:
            print(f"seed {seed}: {name} is wrong", file=sys.stderr)
            wrong += 1
    return wrong


def check_placeholders(command):
    """What goes over placeholders and the parts that they count, each rule there and back."""
    a = {f"a.{l}": torch.arange(24.0).reshape(4, 6) + 100 * l for l in range(3)}
    whole = {"w": torch.arange(48.0).reshape(8, 6)}
    uneven = {"u.0": torch.arange(12.0).reshape(6, 2), "u.1": torch.arange(4.0).reshape(2, 2) + 50}
    q = [value for _, value in sorted(a.items())]
    halves = lambda e: torch.stack([value.chunk(2)[e] for value in q])  # noqa: E731
    cases = [
        (a, "x", {"concatenate": "a.{l}", "over": "l", "ratio": [1, 1, 1]}, {"x": torch.cat(q)}),
        (a, "x", {"concatenate": "a.{l}", "over": "l", "dim": -1, "sizes": [6, 6, 6]}, {"x": torch.cat(q, -1)}),
        (uneven, "x", {"interleave": "u.{l}", "over": "l", "blocks": 2, "sizes": [3, 1]},
         {"x": torch.cat([uneven["u.0"][:3], uneven["u.1"][:1], uneven["u.0"][3:], uneven["u.1"][1:]])}),
        (whole, "x.{e}", {"split": "w", "sizes": [1, 5, 2], "part": "{e}"},
         {f"x.{e}": part for e, part in enumerate(whole["w"].split([1, 5, 2]))}),
        (whole, "x.{e}", {"chunk": "w", "dim": 1, "chunks": 3, "part": "{e}"},
         {f"x.{e}": part for e, part in enumerate(whole["w"].chunk(3, 1))}),
        (whole, "x.{e}", {"unstack": "w", "dim": -1, "part": "{e}"}, {f"x.{e}": whole["w"][:, e] for e in range(6)}),
        (whole, "x.{e}", {"deinterleave": "w", "blocks": 2, "ratio": [3, 1], "part": "{e}"},
         {"x.0": torch.cat([whole["w"][:3], whole["w"][4:7]]), "x.1": whole["w"][[3, 7]]}),
        (a, "x.{e}", {"stack": {"chunk": "a.{l}", "chunks": 2, "part": "{e}"}, "over": "l"}, {f"x.{e}": halves(e) for e in (0, 1)}),
        (a, "x.{e}.{f}", {"stack": {"unstack": {"split": "a.{l}", "sizes": [1, 3], "part": "{e}"}, "dim": 1, "part": "{f}"}, "over": "l"},
         {f"x.{e}.{f}": torch.stack([value.split([1, 3])[e][:, f] for value in q]) for e in (0, 1) for f in range(6)}),
    ]
    for tensors, to, e, wanted in cases:
        with tempfile.TemporaryDirectory() as folder:
            source, recipe, made, back = (os.path.join(folder, name) for name in ("a.safetensors", "r.json", "made", "back"))
            save_file(tensors, source)
            with open(recipe, "w") as file:
                json.dump({"schema": "reshard.recipe/1", "tensors": [{"to": to, "from": e}]}, file)
            run(command, "convert", source, made, "--to", "hf", "--recipe", recipe)
            assert not compare(made, {name: value.contiguous() for name, value in wanted.items()}, e)
            run(command, "convert", made, back, "--to", "hf", "--recipe", recipe, "--invert")
            assert not compare(back, tensors, e)


def main():
    command, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    seed = int(os.environ.get("RESHARD_TEST_SEED", "20261123"))
    check_placeholders(command)
    targets = wrong = inverted = 0
    for number in range(rounds):
        choice = random.Random(seed * 1000 + number)
        one = Round(choice, invertible=number % 2 == 1)
        for _ in range(50):
            one.target()
        with tempfile.TemporaryDirectory() as folder:
            source, recipe = os.path.join(folder, "a.safetensors"), os.path.join(folder, "r.json")
            save_file({name: tensor.contiguous() for name, tensor in as_tensors(one.tensors).items()}, source)
            with open(recipe, "w") as file:
                json.dump({"schema": "reshard.recipe/1", "tensors": [{"to": name, "from": e} for name, (e, _) in one.targets.items()],
                           "keep": []}, file)
            wanted = as_tensors({name: value for name, (_, value) in one.targets.items()})
            made = os.path.join(folder, "made")
            flags = [] if number % 3 else ["--memory-limit", "16MiB", "--threads", "3"]
            run(command, "convert", source, made, "--to", "hf", "--recipe", recipe, *flags)
            wrong += compare(made, wanted, seed)
            # The same sharded, and what it was compared with what it is.
            sharded = os.path.join(folder, "sharded")
            run(command, "convert", source, sharded, "--recipe", recipe, "--mesh", "{x:3,y:2}", "--layout", "[<x>, <y>, ...]", "--verify")
            verified = run(command, "verify", source, sharded, "--recipe", recipe)
            assert "equal" in verified.stdout, verified.stdout
            targets += len(wanted)
            if one.invertible:
                back = os.path.join(folder, "back")
                run(command, "convert", made, back, "--to", "hf", "--recipe", recipe, "--invert")
                before = {name: tensor for name, tensor in as_tensors(one.tensors).items()}
                wrong += compare(back, before, seed)
                inverted += len(wanted)
    print(f"{targets} targets, {inverted} turned around, {wrong} wrong (seed {seed})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
