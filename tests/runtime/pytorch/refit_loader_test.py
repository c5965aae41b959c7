#!/usr/bin/env python3
"""A trainer's weights in an engine that has nothing but its own loader: parameters equal to running the loader on the
trainer's tensors, on 1, 2 and 4 ranks with tensor and expert parallelism, at the bound of bytes.
"""

import unittest

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import gloo
import jobs

HIDDEN, HEADS, GROUPS, HEAD, EXPERTS, INNER, WORDS = 16, 8, 2, 4, 8, 12, 22
D0, D1, R = Shard(0), Shard(1), Replicate()


def source_shapes(layers):
    shapes = {"embed.weight": (WORDS, HIDDEN), "head.weight": (WORDS, HIDDEN), "norm.weight": (HIDDEN,)}
    for layer in range(layers):
        name = f"layers.{layer}"
        shapes |= {f"{name}.{x}_proj.weight": (n * HEAD, HIDDEN) for x, n in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))}
        shapes |= {f"{name}.o_proj.weight": (HIDDEN, HEADS * HEAD), f"{name}.norm.weight": (HIDDEN,)}
        for expert in range(EXPERTS):
            shapes |= {f"{name}.experts.{expert}.{x}.weight": (INNER, HIDDEN) for x in ("gate", "up")}
            shapes[f"{name}.experts.{expert}.down.weight"] = (HIDDEN, INNER)
    return shapes


class Engine(nn.Module):
    """Loads as serving engines do: each rank copies its part of each tensor, from the whole, into its own parameters."""

    def __init__(self, layers, rank, size, expert_parallel, dtype=torch.float32):
        super().__init__()
        self.rank, self.size, self.expert_parallel = rank, size, expert_parallel
        self.heads, self.groups = HEADS // size, max(1, GROUPS // size)
        self.rows = -(-WORDS // (4 * size)) * 4  # of the vocabulary, padded
        self.inner = INNER if expert_parallel else INNER // size
        self.mine = [e for e in range(EXPERTS) if not expert_parallel or e % size == rank]
        new = lambda *shape: nn.Parameter(torch.full(shape, 99.0, dtype=dtype), requires_grad=False)  # noqa: E731
        self.embed, self.norm = new(self.rows, HIDDEN), new(HIDDEN)
        self.head = new(self.rows, HIDDEN)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            layer = nn.Module()
            layer.qkv = new((self.heads + 2 * self.groups) * HEAD, HIDDEN)
            layer.o = new(HIDDEN, self.heads * HEAD)
            layer.norm = new(HIDDEN)
            layer.w13 = new(len(self.mine), 2 * self.inner, HIDDEN)
            layer.w2 = new(len(self.mine), self.inner, HIDDEN)  # transposed
            self.layers.append(layer)

    def load_weights(self, weights):
        for name, tensor in weights:
            words = name.split(".")
            if words[0] in ("embed", "head"):
                self._vocabulary(getattr(self, words[0]), tensor)
            elif words[0] == "norm":
                self.norm.data.copy_(tensor + 1)  # not a view: the engine keeps its norms like that
            elif words[2] == "norm":
                self.layers[int(words[1])].norm.data.copy_(tensor)
            elif words[2] == "experts":
                self._expert(self.layers[int(words[1])], int(words[3]), words[4], tensor)
            else:
                self._attention(self.layers[int(words[1])], words[2][0], tensor)

    def _vocabulary(self, parameter, tensor):
        begin = self.rank * self.rows
        part = tensor[begin : begin + self.rows]
        parameter.data[: part.shape[0]].copy_(part)
        parameter.data[part.shape[0] :].fill_(0)

    def _attention(self, layer, which, tensor):
        if which == "o":
            layer.o.data.copy_(tensor.narrow(1, self.rank * self.heads * HEAD, self.heads * HEAD))
            return
        count = self.heads if which == "q" else self.groups
        begin = {"q": 0, "k": self.heads, "v": self.heads + self.groups}[which] * HEAD
        shard = self.rank if which == "q" or self.size <= GROUPS else self.rank * GROUPS // self.size
        layer.qkv.data.narrow(0, begin, count * HEAD).copy_(tensor.narrow(0, shard * count * HEAD, count * HEAD))

    def _expert(self, layer, expert, which, tensor):
        if expert not in self.mine:
            return
        slot, begin = self.mine.index(expert), 0 if self.expert_parallel else self.rank * self.inner
        if which == "down":
            layer.w2.data[slot].copy_(tensor.narrow(1, begin, self.inner).t())
        else:
            half = layer.w13.data[slot].narrow(0, self.inner * (which == "up"), self.inner)
            half.copy_(tensor.narrow(0, begin, self.inner))


def value(shape, step):
    """Numbers that tell every element and step apart, and are exact in bf16's range of integers only by chance."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).add(step * 7919).remainder(8191).reshape(shape) / 64


def placements(name, mesh):
    tp = D1 if name.endswith(("o_proj.weight", "down.weight")) else R if "norm" in name else D0
    return [D0, tp] if mesh.ndim == 2 else [D0]


def train(member, layers, steps):
    import reshard

    mesh = DeviceMesh("cpu", torch.arange(4).view(2, 2), mesh_dim_names=("dp", "tp"))
    shapes = source_shapes(layers)
    source = {}
    for name, shape in shapes.items():
        source[name] = distribute_tensor(value(shape, 0), mesh, placements(name, mesh), src_data_rank=None)
    with member.join() as joined:
        refit = reshard.Refit(source=source, group=joined)
        assert refit.recording is None
        for step in range(steps):
            for number, (name, shape) in enumerate(shapes.items()):
                new = distribute_tensor(value(shape, step + number), mesh, placements(name, mesh), src_data_rank=None)
                source[name]._local_tensor.copy_(new._local_tensor)
            refit()
        refit(changed_only=True)
        source["norm.weight"]._local_tensor.mul_(2)
        refit(changed_only=True)
        return refit.timings(), str(refit.explain())


def serve(member, layers, steps, size, expert_parallel, dtype):
    import reshard

    shapes = source_shapes(layers)
    tensor_rank = member.job_rank % size  # more ranks are another engine
    engine, alone = (Engine(layers, tensor_rank, size, expert_parallel, dtype) for _ in range(2))
    addresses = {name: tensor.data_ptr() for name, tensor in engine.state_dict().items()}

    def check(weights, when):
        alone.load_weights(weights.items())
        for (name, tensor), wanted in zip(engine.state_dict().items(), alone.state_dict().values()):
            assert tensor.data_ptr() == addresses[name]
            assert torch.equal(tensor, wanted), f"{name}, {when}: {tensor} not {wanted}"
        assert torch.equal(doubled["head"], engine.head * 2), when

    with member.join() as joined:
        doubled = {}  # what the engine makes of its weights
        refit = reshard.Refit(
            target=engine,
            loader=engine.load_weights,
            installed=lambda: doubled.update(head=engine.head * 2),
            group=joined,
        )
        assert not doubled
        assert list(refit.recording.unrecorded) == ["norm"], refit.recording
        assert bool((engine.norm == 99).all())  # recording changes nothing
        for step in range(steps):
            refit()
            weights = {name: value(shape, step + number) for number, (name, shape) in enumerate(shapes.items())}
            check(weights, f"step {step}")
        timings = refit.timings()
        assert timings["received_bytes"] == timings["received_bytes_bound"], timings
        refit(changed_only=True)
        refit(changed_only=True)
        weights["norm.weight"] = weights["norm.weight"] * 2
        check(weights, "changed only")
        assert refit.timings()["skipped_moves"] > 0
        return timings["received_bytes"], len(refit.explain()["tensors"])


class Loaders(unittest.TestCase):
    def run_engine(self, engines, size, expert_parallel, dtype=torch.float32, layers=2, steps=3):
        def either(member):
            return train(member, layers, steps) if member.job == 0 else serve(member, layers, steps, size, expert_parallel, dtype)

        return gloo.values(jobs.run_jobs([4, engines * size], either))[4:]

    def test_one_rank(self):
        self.run_engine(1, 1, False)

    def test_tensor_parallel(self):
        for size in (2, 4):
            with self.subTest(size=size):
                received = self.run_engine(1, size, False)
                per_element = 4
                shapes = source_shapes(2)
                whole = sum(torch.Size(shape).numel() for shape in shapes.values()) * per_element
                # Norms are whole on each rank, and k and v on two of four.
                self.assertLess(sum(bytes_ for bytes_, _ in received), whole * 1.3)

    def test_expert_parallel_in_bf16(self):
        self.run_engine(1, 2, True, torch.bfloat16)

    def test_two_engines(self):
        self.run_engine(2, 2, False)


def failing(member, how):
    import reshard

    with member.join() as joined:
        if member.job == 0:
            reshard.Refit(source={"w": torch.ones(4, 4)}, group=joined)
            return
        target = {"w": torch.zeros(4, 4)}

        def load(pairs):
            if how == "raises":
                raise KeyError("no such layer")
            target["w"] = torch.stack([tensor for _, tensor in pairs])

        recipe = {"schema": "reshard.recipe/1"} if how == "recipe" else None
        reshard.Refit(target=target, loader=load, recipe=recipe, group=joined)


class Errors(unittest.TestCase):
    def test_both_sides_hear_of_them(self):
        for how, own in (
            ("raises", "KeyError: 'no such layer'"),
            ("replaces", "w: it is torch.float32 of .4, 4., and the loader replaces it by torch.float32 of .1, 4, 4."),
            ("recipe", "loader: it writes a target, and no recipe is given beside it"),
        ):
            with self.subTest(how=how):
                trainer, server = jobs.run_jobs([1, 1], failing, how)
                self.assertRegex(str(trainer), f"rank 1 failed: .*{own}")
                self.assertRegex(str(server), own.removeprefix("KeyError: "))


if __name__ == "__main__":
    unittest.main()
