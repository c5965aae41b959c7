#!/usr/bin/env python3
"""Recorded loaders against the same loaders on real tensors: random ones made of everything that moves elements, and what
recordings say of everything else.

The recipe is read by reshard.load from a checkpoint of the source; the loader is run on the source's tensors.
"""

import json
import os
import random
import tempfile
import unittest

import torch
from safetensors.torch import save_file
from torch import nn

import reshard

F32, BF16 = torch.float32, torch.bfloat16
CASES = int(os.environ.get("RESHARD_TEST_LOADERS", "300"))
SEED = int(os.environ.get("RESHARD_TEST_SEED", "1"))


def random_shape(draw):
    return tuple(draw.choice([1, 2, 3, 4, 6, 8]) for _ in range(draw.randint(1, 3)))


def factors(size):
    return [f for f in range(1, size + 1) if size % f == 0]


def part(draw, size):
    begin = draw.randrange(size)
    return begin, draw.randint(1, size - begin)


def chopped(draw, tensor, dim):
    parts = list(tensor.split(draw.randint(1, tensor.shape[dim]), dim))
    draw.shuffle(parts)
    return torch.cat(parts, dim)


# Each makes another tensor of one that has a dimension `dim` of `size`.
MOVES = [
    lambda draw, t, dim, size: t.narrow(dim, *part(draw, size)),
    lambda draw, t, dim, size: t.select(dim, draw.randrange(size)),
    lambda draw, t, dim, size: t.transpose(dim, draw.randrange(t.dim())),
    lambda draw, t, dim, size: t.permute(draw.sample(range(t.dim()), t.dim())),
    lambda draw, t, dim, size: t.reshape(-1),
    lambda draw, t, dim, size: t.reshape(draw.choice(factors(t.numel())), -1),
    lambda draw, t, dim, size: t.contiguous(),
    lambda draw, t, dim, size: torch.cat([t, t.clone()], dim),
    lambda draw, t, dim, size: torch.stack([t, t], draw.randint(0, t.dim())),
    lambda draw, t, dim, size: draw.choice(t.chunk(draw.randint(1, size), dim)),
    lambda draw, t, dim, size: chopped(draw, t, dim),
    lambda draw, t, dim, size: draw.choice(t.unbind(dim)),
    lambda draw, t, dim, size: t.flip(dim),
    lambda draw, t, dim, size: t.roll(draw.randrange(4), dim),
    lambda draw, t, dim, size: t.to(draw.choice([F32, torch.float64, BF16])),
    lambda draw, t, dim, size: t[(slice(None),) * dim + (slice(draw.randrange(size), None, draw.choice([1, 2, 3])),)],
    lambda draw, t, dim, size: t.index_select(dim, torch.tensor([draw.randrange(size) for _ in range(draw.randint(1, 4))])),
    lambda draw, t, dim, size: t.unflatten(dim, (draw.choice(factors(size)), -1)),
    lambda draw, t, dim, size: nn.functional.pad(t, [0, draw.randint(0, 2)], value=draw.choice([0.0, 1.5])),
    lambda draw, t, dim, size: t.repeat_interleave(2, dim),
    lambda draw, t, dim, size: t.expand(2, *t.shape),
]


def moved(draw, tensor):
    for _ in range(draw.randint(0, 5)):
        if tensor.dim() == 0 or tensor.numel() == 0:
            break
        dim = draw.randrange(tensor.dim())
        tensor = draw.choice(MOVES)(draw, tensor, dim, tensor.shape[dim])
        tensor = tensor.reshape(-1)[:64] if tensor.numel() > 4096 else tensor
    return tensor


def region(draw, target):
    """A view of a part of a tensor."""
    for _ in range(draw.randint(0, 3)):
        if target.dim() == 0:
            break
        dim = draw.randrange(target.dim())
        size = target.shape[dim]
        target = draw.choice([
            lambda: target.narrow(dim, *part(draw, size)),
            lambda: target.select(dim, draw.randrange(size)),
            lambda: target.transpose(dim, 0),
            lambda: target.unflatten(dim, (draw.choice(factors(size)), -1)),
            lambda: target[(slice(None),) * dim + (slice(draw.randrange(size), None, draw.choice([1, 2])),)],
        ])()
    return target


def fitted(tensor, like):
    flat = tensor.reshape(-1)
    return torch.cat([flat] * -(-like.numel() // flat.numel()))[: like.numel()].reshape(like.shape)


def random_loader(parameters, seed):
    """The same calls whatever the tensors are."""

    def load(pairs):
        draw = random.Random(seed)
        for _, tensor in pairs:
            for _ in range(draw.randint(1, 2)):
                value = moved(draw, tensor)
                if value.numel() and draw.random() < 0.2:  # by way of a buffer
                    buffer = torch.zeros(draw.choice([(4, 6), (8, 3), (5,)]))
                    into = region(draw, buffer)
                    into.copy_(fitted(value, into))
                    value = moved(draw, buffer)
                into = region(draw, parameters[draw.choice(list(parameters))].data)
                if value.numel() == 0 or into.numel() == 0:
                    continue
                how = draw.randrange(6)
                if how == 0:
                    into.zero_()
                elif how == 1 and into.dim():
                    into[...] = fitted(value, into)
                else:
                    into.copy_(fitted(value, into))

    return load


def random_tensors(draw, prefix, most, make):
    return {f"{prefix}{i}": make(random_shape(draw), draw.choice([F32, BF16])) for i in range(draw.randint(1, most))}


class RandomLoaders(unittest.TestCase):
    def test_equal_to_running_them(self):
        compared = unrecorded = 0
        for seed in range(SEED * 100_000, SEED * 100_000 + CASES):
            with self.subTest(seed=seed):
                draw = random.Random(seed)
                source = random_tensors(draw, "s", 4, lambda shape, dtype: torch.randn(shape).to(dtype))
                real = random_tensors(draw, "p", 3, lambda shape, dtype: torch.full(shape, 7.0, dtype=dtype))
                recorded = {name: tensor.clone() for name, tensor in real.items()}
                random_loader(real, seed)(iter(source.items()))
                recording = reshard.record(random_loader(recorded, seed), source, target=recorded)
                for name, tensor in recorded.items():
                    self.assertTrue(bool((tensor == 7).all()), f"{name} was written")
                    if name not in recording.expressions:
                        self.assertTrue(torch.equal(real[name], tensor), f"{name} was said not to be written")
                unrecorded += len(recording.unrecorded)
                wanted = {rule["to"] for rule in recording.recipe["tensors"]}
                if not wanted:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    save_file({n: t.contiguous() for n, t in source.items()}, f"{folder}/model.safetensors")
                    made = {name: torch.zeros_like(real[name]) for name in wanted}
                    reshard.load(folder, made, recipe=recording.recipe)
                for name, tensor in made.items():
                    self.assertTrue(torch.equal(tensor, real[name]), f"{name}: {json.dumps(recording.recipe)}")
                    compared += 1
        print(f"seed {SEED}: {CASES} loaders, {compared} parameters equal, {unrecorded} not recorded")
        self.assertGreater(compared, CASES)
        self.assertLess(unrecorded, CASES / 50)


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleDict({"qkv": nn.Linear(8, 16, bias=False)}) for _ in range(3))
        self.experts = nn.Parameter(torch.zeros(4, 6, 8))
        self.embed = nn.Embedding(12, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.zeros(()))
        self.register_buffer("steps", torch.zeros(2))

    def load_weights(self, weights):
        for name, tensor in weights:
            words = name.split(".")
            if words[0] == "layers":
                begin, size = {"q": (0, 8), "k": (8, 4), "v": (12, 4)}[words[2]]
                self.layers[int(words[1])]["qkv"].weight.data.narrow(0, begin, size).copy_(tensor)
            elif words[0] == "experts":
                half = self.experts.data[int(words[1])].chunk(2)
                half[words[2] == "up"].copy_(tensor if words[2] == "gate" else tensor.t())
            elif name == "embed":
                self.embed.weight.data[: tensor.shape[0]].copy_(tensor)
                self.embed.weight.data[tensor.shape[0] :].fill_(0)
            elif name == "scale":
                self.scale.data.fill_(tensor.item())
        return self


SOURCE = {f"layers.{layer}.{x}": ((8 if x == "q" else 4, 8), F32) for layer in range(3) for x in "qkv"}
SOURCE |= {f"experts.{e}.gate": ((3, 8), F32) for e in range(4)} | {f"experts.{e}.up": ((8, 3), BF16) for e in range(4)}
SOURCE |= {"embed": ((10, 8), F32), "scale": ((1,), F32), "unused": ((3,), F32)}


class WhatIsSaid(unittest.TestCase):
    def test_rules_of_an_engine(self):
        model = Fused()
        recording = reshard.record(model.load_weights, SOURCE)
        rules = {rule["to"]: rule["from"] for rule in recording.recipe["tensors"]}
        self.assertEqual(set(rules), {"layers.{l}.qkv.weight", "experts", "embed.weight", "scale"})
        qkv = {"concatenate": [f"layers.{{l}}.{x}" for x in "qkv"], "dim": 0, "sizes": [8, 4, 4]}
        self.assertEqual(rules["layers.{l}.qkv.weight"], qkv)
        self.assertEqual(rules["experts"]["over"], "o")
        self.assertEqual(rules["embed.weight"], {"pad": "embed", "dim": 0, "to": 12, "value": 0, "from": 10})
        self.assertEqual(recording.ignored, ["unused"])
        self.assertEqual(recording.recipe["drop"], ["unused"])
        self.assertEqual(recording.tied, {"head.weight": "embed.weight"})
        self.assertEqual(recording.unwritten, {"steps": 2})
        self.assertIs(recording.result, model)
        self.assertFalse(recording.complete)
        self.assertIn("steps: 2 elements", str(recording))

    def test_the_recipe_converts(self):
        model, source = Fused(), {name: torch.randn(shape).to(dtype) for name, (shape, dtype) in SOURCE.items()}
        recording = reshard.record(model.load_weights, source)
        model.load_weights(source.items())
        with tempfile.TemporaryDirectory() as folder:
            save_file(source, f"{folder}/model.safetensors")
            recording.save(f"{folder}/recipe.json")
            reshard.convert(folder, f"{folder}/made", to="hf", recipe=f"{folder}/recipe.json", verify=True)
            made = {n: torch.zeros_like(t) for n, t in model.state_dict().items() if n not in ("steps", "head.weight")}
            reshard.load(f"{folder}/made", made)
        for name, tensor in made.items():
            self.assertTrue(torch.equal(tensor, model.state_dict()[name]), name)

    def test_what_is_computed_is_named_with_its_line(self):
        target = {"a": torch.ones(4), "b": torch.ones(4), "c": torch.ones(2, 3)}

        def load(pairs):
            given = dict(pairs)
            target["a"].copy_(given["x"] + 1)
            target["b"].copy_(given["x"])
            target["c"][0].copy_(given["y"].relu())

        recording = reshard.record(load, {"x": ((4,), F32), "y": ((3,), F32)}, target=target)
        self.assertEqual(list(recording.unrecorded), ["a", "c"])
        self.assertRegex(recording.unrecorded["a"][0], r"^add at .*record_test\.py:\d+$")
        self.assertEqual(recording.unwritten, {"c": 3})
        self.assertEqual([rule["to"] for rule in recording.recipe["tensors"]], ["b"])
        self.assertTrue(torch.equal(target["a"], torch.ones(4)))

    def test_a_loader_that_looks_at_values_is_recorded_without_them(self):
        target = {"a": torch.zeros(4), "b": torch.zeros(4)}

        def load(pairs):
            for name, tensor in pairs:
                if name == "a" and tensor.sum() > 0:
                    target["a"].copy_(tensor)
                elif name == "b":
                    target["b"].copy_(tensor)

        recording = reshard.record(load, {"a": ((4,), F32), "b": ((4,), F32)}, target=target)
        self.assertEqual(recording.by_value, ["a"])
        self.assertEqual([rule["to"] for rule in recording.recipe["tensors"]], ["b"])

        def impossible(pairs):
            dict(pairs)["a"].tolist()

        with self.assertRaisesRegex(KeyError, "a"):
            reshard.record(impossible, {"a": ((4,), F32)}, target=target)
        with self.assertRaisesRegex(ValueError, r"record_test\.py:\d+: tolist needs values of a tensor that it has not written"):
            reshard.record(lambda pairs: (list(pairs), target["a"].add_(1).tolist()), {"a": ((4,), F32)}, target=target)

    def test_written_twice(self):
        target = {"a": torch.zeros(4)}

        def load(pairs):
            for _, tensor in pairs:
                target["a"].copy_(tensor)

        recording = reshard.record(load, {"x": ((4,), F32), "y": ((4,), F32)}, target=target)
        self.assertEqual(len(recording.overwritten), 1)
        self.assertRegex(recording.overwritten[0], r"record_test\.py:\d+: what came from x is written over$")
        self.assertEqual(recording.recipe["tensors"], [{"to": "a", "from": "y"}])
        self.assertEqual(recording.ignored, ["x"])

    def test_parameters_that_are_replaced(self):
        model = nn.Linear(4, 4, bias=False)
        before = model.weight

        def load(pairs):
            model.weight = nn.Parameter(dict(pairs)["w"].t().contiguous())

        recording = reshard.record(load, {"w": ((4, 4), F32)}, target=model)
        self.assertEqual(recording.recipe["tensors"], [{"to": "weight", "from": {"transpose": "w", "dims": [0, 1]}}])
        self.assertIs(model.weight, before)

    def test_data_that_is_set(self):
        model = nn.Linear(4, 4, bias=False)
        before, address = model.weight.detach().clone(), model.weight.data_ptr()

        def load(pairs):
            model.weight.data = dict(pairs)["w"].t()

        recording = reshard.record(load, {"w": ((4, 4), F32)}, target=model)
        self.assertEqual(recording.recipe["tensors"], [{"to": "weight", "from": {"transpose": "w", "dims": [0, 1]}}])
        self.assertTrue(torch.equal(model.weight, before) and model.weight.data_ptr() == address)
        with self.assertRaisesRegex(ValueError, r"record_test\.py:\d+: the loader sets .data of torch.float32 of \[4, 4\] to "):
            reshard.record(load, {"w": ((4, 2), F32)}, target=model)

    def test_load_state_dict_and_models_that_are_returned(self):
        model = nn.Linear(4, 2)
        recording = reshard.record(model.load_state_dict, {"weight": ((2, 4), F32), "bias": ((2,), BF16)})
        self.assertTrue(recording.complete)

        def made(pairs):
            fresh = nn.Linear(4, 2, bias=False)
            fresh.weight = nn.Parameter(dict(pairs)["w"], requires_grad=False)
            return fresh

        self.assertEqual(reshard.record(made, {"w": ((2, 4), F32)}).recipe["tensors"], [{"to": "weight", "from": "w"}])
        with self.assertRaisesRegex(ValueError, "target: the loader is not a method of a model and returns none"):
            reshard.record(lambda pairs: None, {"w": ((2, 4), F32)})

    def test_bytes(self):
        """As loaders of packed weights copy them."""
        target = {"a": torch.zeros(4, dtype=torch.float8_e4m3fn), "b": torch.zeros(4, dtype=torch.uint8)}

        def load(pairs):
            given = dict(pairs)
            target["a"].view(torch.uint8).copy_(given["x"].view(torch.uint8))
            target["b"].copy_(given["x"].view(torch.uint8))

        recording = reshard.record(load, {"x": ((4,), torch.float8_e4m3fn)}, target=target)
        self.assertEqual(recording.recipe["tensors"], [{"to": "a", "from": "x"}])
        self.assertEqual(recording.unrecorded, {"b": ["torch.float8_e4m3fn read as torch.uint8"]})


if __name__ == "__main__":
    unittest.main()
