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
    source = {}
    for i, (name, (shape, dtype, _)) in enumerate(case.source.items()):
        source[name] = numbered(shape, dtype, seed + 17 * i)
    return source, {name: make(source).to(dtype) for name, (make, dtype, _) in case.target.items()}


def move(member, settings):
    return [move_one(member, *setting) for setting in settings]


def move_one(member, case, source_mesh, target_mesh, tight):
    """Three refits; returns what this rank received, its bound, and explain(). tight: with a memory limit of one byte
    less than one round takes."""
    import reshard

    source_mesh, target_mesh = source_mesh(member), target_mesh(member)
    first, wanted = wholes(case, 0)
    source = target = None
    if source_mesh is not None:
        source = {n: sharded(first[n], source_mesh, placements) for n, (_, _, placements) in case.source.items()}
    if target_mesh is not None:
        target = {n: sharded(torch.full_like(w, 99), target_mesh, case.target[n][2]) for n, w in wanted.items()}
    before = {name: local(tensor).data_ptr() for name, tensor in (target or {}).items()}
    recipe = case.recipe if member.rank == 0 else None
    with member.join() as joined:
        limit = None
        if tight:
            whole = reshard.Refit(source, target, recipe=recipe, group=joined).explain()
            limit = max(rank["memory_bytes"] for rank in whole["ranks"]) - 1
        refit = reshard.Refit(source, target, recipe=recipe, group=joined, memory_limit=limit)
        facts = refit.explain().to_dict()
        assert str(refit.explain())
        assert refit.version is None
        last = 0
        for step in (0, 5, 11):
            whole, wanted = wholes(case, step)
            for name, tensor in (source or {}).items():
                local(tensor).copy_(local(sharded(whole[name], source_mesh, case.source[name][2])))
            version = refit()
            assert version == refit.version and (not last or version == last + 1), (version, last)
            last = version
            for name, tensor in (target or {}).items():
                expected = local(sharded(wanted[name], target_mesh, case.target[name][2]))
                assert local(tensor).data_ptr() == before[name]
                assert torch.equal(local(tensor), expected), f"{name} at step {step}: {local(tensor)} not {expected}"
        operations = reshard.recent_operations(joined.group)
        # The last one before the call, and what it moved.
        number = operations[-1]["number"]
        refit()
        later = [one for one in reshard.recent_operations(joined.group) if one["number"] > number]
        moved = sum(one["bytes"] for one in later if one["operation"] not in ("agreement", "barrier"))
        failed = [one for one in (*operations, *later) if one.get("error")]
        return version, refit.timings(), facts, failed, moved


F32, BF16 = torch.float32, torch.bfloat16
SAME = Case(
    {
        "a": ((8, 6), F32, [D0, D1]),
        "b": ((7, 5), BF16, [R, D0]),
        "c": ((4,), torch.int64, [D0, R]),
        "s": ((), F32, [R, R]),
        # FSDP2 over tensor parallelism, whose sizes nothing divides: parts of 2, 1, 2 and 0 rows, and of 3, 2, 2 and 2.
        "u": ((5, 3), F32, [_StridedShard(0, split_factor=2), D0]),
        "v": ((9, 3), F32, [_StridedShard(0, split_factor=2), D0]),
    },
    {
        "u": (lambda s: s["u"], F32, [D0]),
        "v": (lambda s: s["v"], F32, [R]),
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
# On the slices of a mesh: what FSDP2 leaves of a parameter that tensor parallelism does not shard.
SLICES = Case(
    {"norm": ((6, 4), F32, [D0]), "w": ((4, 8), F32, [D1])},
    {"norm": (lambda s: s["norm"], F32, [R]), "w": (lambda s: s["w"].to(BF16).to(F32), F32, [D0])},
    {
        "schema": RECIPE,
        "tensors": [{"to": "w", "from": {"cast": {"cast": "w", "dtype": "bf16"}, "dtype": "f32"}}],
        "keep": ["*"],
    },
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


def pair(member):
    return mesh_of([2, 3], ("tp",)) if member.rank >= 2 else None


def slices(member):
    return square(member)["dp"] if member.job == 0 else None


def two_by_two(member):
    return mesh_of(torch.arange(4).view(2, 2), ("a", "b")) if member.job == 1 else None


class Moves(unittest.TestCase):
    def moved(self, sizes, **settings):
        """settings: name=(case, source mesh, target mesh, tight). Returns what the first rank explained, by name."""
        of_ranks = gloo.values(jobs.run_jobs(sizes, move, list(settings.values())))
        for place, name in enumerate(settings):
            for rank, results in enumerate(of_ranks):
                version, timings, facts, failed, moved = results[place]
                ours = facts["ranks"][rank]
                with self.subTest(name, rank=rank):
                    self.assertEqual(version, 4 * place + 3)  # counted over all refits in the store
                    # What goes over the wire is the least that any algorithm could do with, and what was foretold.
                    self.assertEqual(timings["received_bytes"], ours["received_bytes"])
                    self.assertEqual(timings["received_bytes"], timings["received_bytes_bound"])
                    # Beside it only what ranks say of each move.
                    said = 1 + -(-timings["moves"] // 8)
                    self.assertEqual(moved, timings["received_bytes"] + said * (sum(sizes) - 1))
                    self.assertEqual(timings["sent_bytes"], ours["sent_bytes"])
                    for end, way in (("to", "received"), ("from", "sent")):
                        links = [link["bytes"] for link in facts["links"] if link[end] == rank]
                        self.assertEqual(sum(links), timings[f"{way}_bytes"])
                        self.assertTrue(all(links))
                    self.assertEqual(ours["received_bytes"], ours["received_bytes_bound"])
                    self.assertEqual(facts, of_ranks[0][place][2])
                    self.assertFalse(failed)
                    if facts["memory_limit"] is not None:
                        self.assertLessEqual(ours["memory_bytes"], facts["memory_limit"])
        return {name: of_ranks[0][place][2] for place, name in enumerate(settings)}

    def test_four_to_two(self):
        rows = Case(
            {"w": ((10, 4), F32, [D0]), "v": ((9,), BF16, [R])},
            {"w": (lambda s: s["w"], BF16, [D1]), "v": (lambda s: s["v"], F32, [D0])},
        )
        facts = self.moved(
            [4, 2],
            same=(SAME, square, line(2), False),
            fused=(FUSED, square, line(2), False),
            stacked=(STACKED, square, line(2), False),
            rows=(rows, left(4), line(2), False),
            slices=(SLICES, slices, line(2), False),
            tight=(FUSED, square, line(2), True),
        )
        self.assertEqual(facts["same"]["jobs"], [[0, 1, 2, 3], [4, 5]])
        self.assertEqual((len(facts["fused"]["rounds"]), len(facts["tight"]["rounds"])), (1, 2))

    def test_two_to_four(self):
        self.moved([2, 4], apart=(APART, left(2), two_by_two, False))

    def test_ranks_of_both_sides(self):
        self.moved([4], same=(SAME, square, pair, False))

    def test_plain_tensors(self):
        case = Case({"w": ((6, 4), F32, None)}, {"w": (lambda s: s["w"], BF16, None)})
        self.moved([2, 1], plain=(case, lambda m: None if m.job else "plain", lambda m: "plain" if m.job else None, False))


def refuse(member, cases):
    return [refuse_one(member, *case) for case in cases]


def refuse_one(member, source, target, recipe, options):
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


def unlike(member):
    return {"w": torch.zeros(2 + member.rank)}


def one_sparse(member):
    return {"w": torch.zeros(2).to_sparse() if member.rank == 1 else torch.zeros(2)}


def of(*rules, **more):
    return {"schema": RECIPE, "tensors": [{"to": "w", "from": rule} for rule in rules], **more}


TWO, FOUR = plain(w=((2,), F32)), plain(w=((4,), F32))
REFUSED = [  # (the kinds of errors, what they say, source, target, recipe, options)
    ("ValueError", "w2.*not in the source", TWO, plain(w2=((2,), F32)), None, {}),
    ("ValueError", "v.*not in the target", plain(w=((2,), F32), v=((2,), F32)), TWO, None, {}),
    ("ValueError", r"w: the target's shape is \[4\], the source's \[2\]", TWO, FOUR, None, {}),
    ("ValueError", "w: the target is torch.int64.*not cast", TWO, plain(w=((2,), torch.int64)), None, {}),
    ("NotImplementedError", "w: padding", TWO, FOUR, of({"pad": "w", "to": 4}), {}),
    ("ValueError", "schema", TWO, TWO, {"schema": "reshard.recipe/2"}, {}),
    ("ValueError", "is partial", partial, plain(w=((2,), F32)), of({"slice": "w", "end": 2}), {}),
    ("ValueError", "w: the source's ranks have different tensors: rank 0 .*rank 1", unlike, TWO, None, {}),
    ("ValueError|PeerError", "rank 1 failed: ValueError: w|w: only plain", one_sparse, TWO, None, {}),
    ("LimitError", "rank 2 needs .* the limit is 10", TWO, TWO, None, {"memory_limit": "10B"}),
]


class Refusals(unittest.TestCase):
    def test_all(self):
        for outcomes in gloo.values(jobs.run_jobs([2, 1], refuse, [case[2:] for case in REFUSED])):
            for (kinds, wanted, *_), (kind, message) in zip(REFUSED, outcomes):
                with self.subTest(wanted):
                    self.assertRegex(kind, f"^({kinds})$", message)
                    self.assertRegex(message, wanted)


if __name__ == "__main__":
    gloo.load_library()
    unittest.main()
