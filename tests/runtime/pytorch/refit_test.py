#!/usr/bin/env python3
"""What one job has, in the tensors of another: layouts, recipes, casts, memory, bytes and the errors of planning."""

import unittest

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import gloo
import jobs

RECIPE = "reshard.recipe/1"


def numbered(shape, dtype=torch.float32, seed=0):
    """Element number i is i + seed."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) + seed).remainder(251).to(dtype).reshape(shape)


def sharded(whole, mesh, placements):
    """This rank's part of a tensor that all ranks can compute; nobody communicates."""
    if not isinstance(mesh, DeviceMesh):
        return whole.clone()
    if any(isinstance(placement, _StridedShard) for placement in placements):
        # As FSDP2 does it: first over the inner dimension, then over the outer one.
        inner = distribute_tensor(whole, mesh[mesh.mesh_dim_names[1]], [placements[1]], src_data_rank=None)._local_tensor
        outer = distribute_tensor(inner, mesh[mesh.mesh_dim_names[0]], [Shard(placements[0].dim)], src_data_rank=None)
        local = outer._local_tensor.clone()
        return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())
    made = distribute_tensor(whole, mesh, placements, src_data_rank=None)
    return DTensor.from_local(
        made._local_tensor.clone(), mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def local(tensor):
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def mesh_of(ranks, names):
    return DeviceMesh("cpu", ranks, mesh_dim_names=names)


# The meshes of source and target in each setting, of the ranks of each job; None: the job has nothing of that side.
def square(member):
    return mesh_of(torch.arange(4).view(2, 2), ("dp", "tp")) if member.job == 0 else None


def line(size, name="tp"):
    return lambda member: mesh_of(torch.arange(size), (name,)) if member.job == 1 else None


def left(size):
    return lambda member: mesh_of(torch.arange(size), ("fsdp",)) if member.job == 0 else None


D0, D1, R = Shard(0), Shard(1), Replicate()


class Case:
    """Source tensors (name: shape, dtype, placements) become target tensors (name: how, dtype, placements)."""

    def __init__(self, source, target, recipe=None):
        self.source, self.target, self.recipe = source, target, recipe


def wholes(case, seed):
    source = {name: numbered(shape, dtype, seed + 17 * i) for i, (name, (shape, dtype, _)) in enumerate(case.source.items())}
    return source, {name: make(source).to(dtype) for name, (make, dtype, _) in case.target.items()}


def move(member, case, source_mesh, target_mesh, options):
    """Three refits; returns what this rank received, its bound, and explain()."""
    import reshard

    source_mesh, target_mesh = source_mesh(member), target_mesh(member)
    first, wanted = wholes(case, 0)
    source = target = None
    if source_mesh is not None:
        source = {n: sharded(first[n], source_mesh, placements) for n, (_, _, placements) in case.source.items()}
    if target_mesh is not None:
        target = {n: sharded(torch.full_like(w, 99), target_mesh, case.target[n][2]) for n, w in wanted.items()}
    before = {name: local(tensor).data_ptr() for name, tensor in (target or {}).items()}
    with member.join() as joined:
        refit = reshard.Refit(source, target, recipe=case.recipe if member.rank == 0 else None, group=joined, **options)
        facts = refit.explain().to_dict()
        assert str(refit.explain())
        assert refit.version is None
        for step in (0, 5, 11):
            whole, wanted = wholes(case, step)
            for name, tensor in (source or {}).items():
                local(tensor).copy_(local(sharded(whole[name], source_mesh, case.source[name][2])))
            version = refit()
            assert version == refit.version
            for name, tensor in (target or {}).items():
                expected = local(sharded(wanted[name], target_mesh, case.target[name][2]))
                assert local(tensor).data_ptr() == before[name]
                assert torch.equal(local(tensor), expected), f"{name} at step {step}: {local(tensor)} not {expected}"
        timings = refit.timings()
        return version, timings, facts, reshard.recent_operations(joined.group)


F32, BF16 = torch.float32, torch.bfloat16
SAME = Case(
    {"a": ((8, 6), F32, [D0, D1]), "b": ((7, 5), BF16, [R, D0]), "c": ((4,), torch.int64, [D0, R]), "s": ((), F32, [R, R])},
    {
        "a": (lambda s: s["a"], F32, [D1]),
        "b": (lambda s: s["b"], BF16, [D0]),
        "c": (lambda s: s["c"], torch.int64, [R]),
        "s": (lambda s: s["s"], F32, [R]),
    },
)
FUSED = Case(
    {
        "l.q": ((16, 12), F32, [_StridedShard(0, split_factor=2), D0]),
        "l.k": ((8, 12), F32, [_StridedShard(0, split_factor=2), D0]),
        "l.v": ((8, 12), F32, [D0, R]),
        "l.gate": ((12, 12), F32, [R, D0]),
        "l.up": ((12, 12), F32, [D0, D1]),
        "l.down": ((12, 12), F32, [D0, D1]),
        "l.norm": ((12,), F32, [R, R]),
    },
    {
        # Each rank of two has its part of q, then of k, then of v, as engines hold them.
        "l.qkv": (
            lambda s: torch.cat([s[f"l.{n}"].chunk(2)[r] for r in range(2) for n in "qkv"]),
            BF16,
            [D0],
        ),
        "l.gate_up": (lambda s: torch.cat([s["l.gate"], s["l.up"]]), F32, [D1]),
        "l.down_t": (lambda s: s["l.down"].t().contiguous(), BF16, [D0]),
        "l.scale": (lambda s: s["l.norm"], F32, [R]),
    },
    {
        "schema": RECIPE,
        "tensors": [
            {"to": "{p*}.qkv", "from": {"interleave": ["{p*}.q", "{p*}.k", "{p*}.v"], "blocks": 2}},
            {"to": "{p*}.gate_up", "from": {"concatenate": ["{p*}.gate", "{p*}.up"]}},
            {"to": "{p*}.down_t", "from": {"transpose": "{p*}.down", "dims": [0, 1]}},
            {"to": "{p*}.scale", "from": "{p*}.norm"},
        ],
        "dtype": [["*.qkv", "bf16"]],
    },
)
STACKED = Case(
    {f"e.{i}.w": ((6, 4), F32, [D0, D1] if i % 2 else [D0, R]) for i in range(4)},
    {"experts": (lambda s: torch.stack([s[f"e.{i}.w"] for i in range(4)]), BF16, [D0])},
    {"schema": RECIPE, "tensors": [{"to": "experts", "from": {"stack": "e.{i}.w", "over": "i"}}]},
)
# The other way round: fused in the source, apart in the target, whose edges fit no layout of the source.
APART = Case(
    {"qkv": ((12, 4), F32, [D0]), "experts": ((4, 6, 4), F32, [D0]), "wide": ((3, 10), F32, [D1])},
    {
        "q": (lambda s: s["qkv"][:7], F32, [D0, R]),
        "k": (lambda s: s["qkv"][7:], F32, [R, D1]),
        **{f"e.{i}": (lambda s, i=i: s["experts"][i], F32, [D1, D0]) for i in range(4)},
        "wide": (lambda s: s["wide"].reshape(3, 2, 5), F32, [R, R]),
    },
    {
        "schema": RECIPE,
        "tensors": [
            {"to": "q", "from": {"split": "qkv", "sizes": [7, 5], "part": 0}},
            {"to": "k", "from": {"split": "qkv", "sizes": [7, 5], "part": 1}},
            {"to": "e.{i}", "from": {"unstack": "experts", "part": "{i}"}},
            {"to": "wide", "from": {"unflatten": "wide", "dim": 1, "sizes": [2, 5]}},
        ],
    },
)


class Moves(unittest.TestCase):
    def moved(self, sizes, case, source_mesh, target_mesh, **options):
        results = gloo.values(jobs.run_jobs(sizes, move, case, source_mesh, target_mesh, options))
        for rank, (version, timings, facts, operations) in enumerate(results):
            self.assertEqual(version, 3)
            ours = facts["ranks"][rank]
            # What goes over the wire is the least that any algorithm could do with, and what was foretold.
            self.assertEqual(timings["received_bytes"], ours["received_bytes"])
            self.assertEqual(timings["received_bytes"], timings["received_bytes_bound"])
            self.assertEqual(ours["received_bytes"], ours["received_bytes_bound"])
            self.assertEqual(facts, results[0][2])
            self.assertFalse([operation for operation in operations if operation.get("error")])
            if options.get("memory_limit"):
                self.assertLessEqual(ours["memory_bytes"], options["memory_limit"])
        return results[0][2]

    def test_the_same_names(self):
        facts = self.moved([4, 2], SAME, square, line(2))
        self.assertEqual(facts["jobs"], [[0, 1, 2, 3], [4, 5]])

    def test_stacked(self):
        self.moved([4, 2], STACKED, square, line(2))

    def test_from_two_to_four(self):
        self.moved([2, 4], APART, left(2), lambda m: mesh_of(torch.arange(4).view(2, 2), ("a", "b")) if m.job else None)

    def test_from_four_to_two(self):
        case = Case(
            {"w": ((10, 4), F32, [D0]), "v": ((9,), BF16, [R])},
            {"w": (lambda s: s["w"], BF16, [D1]), "v": (lambda s: s["v"], F32, [D0])},
        )
        self.moved([4, 2], case, left(4), line(2))

    def test_ranks_of_both_sides(self):
        def target(member):
            return mesh_of([2, 3], ("tp",)) if member.rank >= 2 else None

        case = Case(SAME.source, SAME.target, None)
        self.moved([4], case, square, target)

    def test_plain_tensors(self):
        case = Case({"w": ((6, 4), F32, None)}, {"w": (lambda s: s["w"], BF16, None)})
        self.moved([2, 1], case, lambda m: None if m.job else "plain", lambda m: "plain" if m.job else None)

    def test_memory_limit(self):
        whole = self.moved([4, 2], FUSED, square, line(2))
        limit = max(rank["memory_bytes"] for rank in whole["ranks"]) - 1
        facts = self.moved([4, 2], FUSED, square, line(2), memory_limit=limit)
        self.assertEqual((len(whole["rounds"]), len(facts["rounds"])), (1, 2))
        self.assertEqual(facts["memory_limit"], limit)


def refuse(member, source, target, recipe, options):
    import reshard

    with member.join() as joined:
        try:
            reshard.Refit(
                source(member) if member.job == 0 else None,
                target(member) if member.job == 1 else None,
                recipe=recipe,
                group=joined,
                **options,
            )
        except Exception as error:
            return type(error).__name__, str(error)
        return "nothing", "was raised"


def plain(**tensors):
    return lambda member: {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in tensors.items()}


def partial(member):
    mesh = mesh_of(torch.arange(2), ("x",))
    return {"w": DTensor.from_local(torch.zeros(4), mesh, [Partial("sum")], run_check=False)}


class Refusals(unittest.TestCase):
    def refused(self, wanted, source, target, recipe=None, kinds=("ValueError",), **options):
        outcomes = gloo.values(jobs.run_jobs([2, 1], refuse, source, target, recipe, options))
        for kind, message in outcomes:
            self.assertIn(kind, kinds)
            self.assertRegex(message, wanted)

    def test_names(self):
        self.refused("w2.*not in the source.*w", plain(w=((2,), F32)), plain(w2=((2,), F32)))
        self.refused("v.*not in the target", plain(w=((2,), F32), v=((2,), F32)), plain(w=((2,), F32)))

    def test_shapes_and_dtypes(self):
        self.refused(r"w: the target's shape is \[3\], the source's \[2\]", plain(w=((2,), F32)), plain(w=((3,), F32)))
        self.refused("w: the target is torch.int64.*not cast", plain(w=((2,), F32)), plain(w=((2,), torch.int64)))

    def test_padding(self):
        recipe = {"schema": RECIPE, "tensors": [{"to": "w", "from": {"pad": "w", "to": 4}}]}
        self.refused("w: padding", plain(w=((2,), F32)), plain(w=((4,), F32)), recipe, ("NotImplementedError",))

    def test_a_recipe_that_is_none(self):
        self.refused("recipe|schema", plain(w=((2,), F32)), plain(w=((2,), F32)), {"schema": "reshard.recipe/2"})

    def test_ranks_that_differ(self):
        def source(member):
            return {"w": torch.zeros(2 + member.rank)}

        self.refused("w: the source's ranks have different tensors: rank 0 .*rank 1", source, plain(w=((2,), F32)))

    def test_one_rank_fails(self):
        def source(member):
            return {"w": torch.zeros(2).to_sparse() if member.rank == 1 else torch.zeros(2)}

        self.refused("rank 1 failed: ValueError: w|w: only plain", source, plain(w=((2,), F32)), None, ("ValueError", "PeerError"))

    def test_partial_values_are_no_box(self):
        recipe = {"schema": RECIPE, "tensors": [{"to": "w", "from": {"slice": "w", "end": 2}}]}
        self.refused("is partial", partial, plain(w=((2,), F32)), recipe)

    def test_memory_limit(self):
        self.refused("rank 2 needs .* the limit is 100", plain(w=((64,), F32)), plain(w=((64,), F32)), None, ("LimitError",), memory_limit=100)


if __name__ == "__main__":
    gloo.load_library()
    unittest.main()
