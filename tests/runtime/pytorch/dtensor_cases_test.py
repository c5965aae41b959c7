#!/usr/bin/env python3
"""The cases of PyTorch's own test of redistribution (test/distributed/tensor/test_redistribute.py), written anew: each
runs as PyTorch has it and under reshard.dtensor_redistribution(), and gives the same values, gradients and specs.

How many collectives ran is not compared: that is what changes. Meshes of 8 ranks there are of 4 here.
"""

import contextlib
import itertools
import logging
import random

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, _redistribute, distribute_tensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor.placement_types import _StridedShard

from checks import ChecksTest, main

R, P = Replicate(), Partial()
S = [Shard(dim) for dim in range(4)]


class Run:
    """One run of a case: what it saw, to be compared with the other run's."""

    meshes: dict = {}

    def __init__(self, c):
        self.world = c.world
        self.seen = []

    def see(self, what, value):
        if isinstance(value, DTensor):
            spec = value._spec
            meta = (spec.placements, spec.shard_order, tuple(value.shape), value.stride(), value.dtype)
            self.seen.append((what, (value.to_local().detach(), meta, value.requires_grad)))
        else:
            self.seen.append((what, (value.detach(), None, None)))

    def refused(self, what, function):
        """Notes the kind of error, or what came out."""
        try:
            self.see(what, function())
        except Exception as error:
            self.seen.append((what, type(error).__name__))

    def mesh(self, *shape, names=None):
        """Made once: each has groups of its own."""
        shape = shape or (self.world,)
        if (shape, names) not in Run.meshes:
            Run.meshes[shape, names] = DeviceMesh("cpu", torch.arange(self.world).reshape(shape), mesh_dim_names=names)
        return Run.meshes[shape, names]

    def grid(self, names=None):
        return self.mesh(self.world // 2, 2, names=names)

    def there_and_back(self, what, x, placements, **options):
        """Redistributes, and the gradient back."""
        x = x.detach().requires_grad_()
        y = x.redistribute(placements=placements, **options)
        self.see(what, y)
        y.backward(torch.ones_like(y))
        self.see(f"{what}: gradient", x.grad)


def uneven_sizes(world):
    for extra in (0, 1, 2):
        yield (world * 3 + extra, 3), 0
        yield (3, world * 3 + extra), 1


def random_tensor(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


def shard_to_replicate(run):
    for dtype in (torch.float32, torch.cfloat):
        for size, dim in uneven_sizes(run.world):
            x = distribute_tensor(random_tensor(*size, dtype=dtype), run.mesh(), [S[dim]])
            run.there_and_back(f"{dtype} {size} {dim}", x, [R])


def replicate_to_replicate(run):
    run.there_and_back("R -> R", distribute_tensor(random_tensor(12, 3), run.mesh(), [R]), [R])


def partial_to_partial(run):
    for dtype in (torch.float32, torch.cfloat):
        local = torch.ones(12, 3, dtype=dtype, requires_grad=True)
        x = distribute_tensor(local, run.mesh(), [P])
        y = x.redistribute(placements=[P])
        run.see("P -> P", y)
        x.retain_grad()
        y.backward(DTensor.from_local(torch.ones(12, 3, dtype=dtype), run.mesh(), [P]))
        run.see("gradient", x.grad)


def replicate_with_partial_gradient(run):
    for dtype in (torch.float32, torch.cfloat):
        x = distribute_tensor(random_tensor(12, 3, dtype=dtype), run.mesh(), [R]).requires_grad_()
        out = x.redistribute(placements=[R]).to_local(grad_placements=[P])
        out.backward(torch.ones_like(out))
        run.see("gradient", x.grad)


def replicate_to_shard(run):
    for size, dim in uneven_sizes(run.world):
        run.there_and_back(f"{size} {dim}", distribute_tensor(random_tensor(*size), run.mesh(), [R]), [S[dim]])


def partial_to_replicate(run):
    for dtype in (torch.float32, torch.cfloat):
        local = torch.ones(12, 3, dtype=dtype, requires_grad=True)
        y = DTensor.from_local(local * 1, run.mesh(), [P]).redistribute(placements=[R])
        run.see("P -> R", y)
        y.backward(torch.ones_like(y))
        run.see("gradient", local.grad)


DTYPES = [torch.bfloat16, torch.float32, None]


def conversions_of_replicas(run):
    for forward, backward in itertools.product(DTYPES, DTYPES):
        x = distribute_tensor(random_tensor(12, 3), run.mesh(), [R])
        run.there_and_back(f"{forward} {backward}", x, [R], forward_dtype=forward, backward_dtype=backward)


def conversions_of_shards(run):
    for forward, backward in itertools.product(DTYPES, DTYPES):
        for size, dim in (((run.world * 3, 3), 0), ((3, run.world * 3 + 1), 1)):
            x = distribute_tensor(random_tensor(*size), run.mesh(), [S[dim]])
            what = f"{forward} {backward} {size} {dim}"
            run.there_and_back(what, x, [R], forward_dtype=forward, backward_dtype=backward)
            run.there_and_back(f"{what} to the other", x, [S[1 - dim]], forward_dtype=forward, backward_dtype=backward)


def replicate_to_partial(run):
    x = distribute_tensor(random_tensor(12, 3), run.mesh(), [R])
    run.refused("by the user", lambda: x.redistribute(placements=[P]))
    run.see("within", _redistribute.Redistribute.apply(x, x.device_mesh, (P,)))
    x = distribute_tensor(random_tensor(12, 3), run.grid(), [R, R])
    run.see("within, on a grid", _redistribute.Redistribute.apply(x, x.device_mesh, (P, P)))


def partial_to_shard(run):
    for dtype in (torch.float32, torch.cfloat):
        for size, dim in uneven_sizes(run.world):
            x = DTensor.from_local(torch.ones(size, dtype=dtype), run.mesh(), [P], run_check=False)
            run.there_and_back(f"{dtype} {size} {dim}", x, [S[dim]])


def gathers_along_any_dimension(run):
    for shape, dim in (((1, 32, 24), 1), ((1, 32, 24), 2), ((4, 32, 24), 1)):
        x = distribute_tensor(random_tensor(*shape), run.grid(), [S[dim], S[dim]])
        run.there_and_back(f"{shape} {dim}", x, [S[dim], R])


def negative_dimension(run):
    x = distribute_tensor(random_tensor(12, 3), run.mesh(), [S[1]])
    run.see("S(1) -> S(-1)", x.redistribute(placements=[Shard(-1)]))
    run.see("S(1) -> S(-2)", x.redistribute(placements=[Shard(-2)]))


def uneven_shards(run):
    for shape in ((10, 5), (9, 5), (3, 5), (1, 3)):
        for placements in ([S[0], S[0]], [S[0], S[1]]):
            x = distribute_tensor(random_tensor(*shape), run.grid(), placements)
            run.see(f"{shape} {placements}", x.full_tensor())


SHAPES = ((8, 8), (8, 8, 8), (8, 5), (5, 8), (5, 5))


def another_shard_dimension(run):
    for dtype in (torch.float32, torch.cfloat):
        for shape in SHAPES:
            x = random_tensor(*shape, dtype=dtype)
            for before, after in ((0, 1), (1, 0)):
                one = distribute_tensor(x, run.mesh(), [S[before]])
                run.there_and_back(f"{dtype} {shape} {before} {after}", one, [S[after]])
            pairs = [((0, 1), (0, 0)), ((0, 1), (1, 0)), ((0, 0), (1, 1))]
            if len(shape) > 2:
                pairs += [((0, 2), (1, 0)), ((1, 1), (1, 2))]
            for before, after in pairs:
                one = distribute_tensor(x, run.grid(), [S[dim] for dim in before])
                run.there_and_back(f"{dtype} {shape} {before} {after}", one, [S[dim] for dim in after])


def meshes_of_one(run):
    mesh = run.mesh(run.world, 1)
    for before, after in itertools.product((S[1], R, P), (S[0], S[1], R)):
        x = DTensor.from_local(random_tensor(16, 8), mesh, [S[0], before])
        run.see(f"{before} {after}", x.redistribute(placements=[S[0], after]))


def staying_partial(run):
    mesh = run.grid()
    prod = Partial("product")
    cases = [
        ([P, S[0]], [P, S[0]]),
        ([P, S[0]], [P, S[1]]),
        ([S[0], P], [R, P]),
        ([S[0], prod], [R, prod]),
        ([S[0], R], [S[0], P]),
        ([S[0], R], [R, P]),
        ([S[0], S[1]], [R, P]),
        ([S[0], prod], [R, P]),
    ]
    for before, after in cases:
        x = DTensor.from_local(random_tensor(12, 8), mesh, before)
        run.refused(f"{before} {after}", lambda: x.redistribute(mesh, after))


def every_pair(run):
    """Of placements on one, two and three mesh dimensions."""
    for shape in {(run.world,), (run.world // 2, 2), (2, 1, run.world // 2)}:
        mesh = run.mesh(*shape)
        whole = random_tensor(16, 24)
        choices = [R, S[0], S[1]]
        for before in itertools.product([*choices, P], repeat=len(shape)):
            if len(shape) == 3 and before.count(R) != 1:
                continue
            x = distribute_tensor(whole, mesh, [R if p.is_partial() else p for p in before])
            x = DTensor.from_local(x.to_local(), mesh, before, run_check=False)
            for after in itertools.product(choices, repeat=len(shape)):
                if len(shape) == 3 and after.count(R) != 1:
                    continue
                y = x.redistribute(placements=after)
                run.see(f"{before} {after}", y)
                if len(shape) < 3:
                    run.see(f"{before} {after}: all of it", y.full_tensor())


def three_mesh_dimensions(run):
    mesh = run.mesh(2, 1, run.world // 2)
    x = random_tensor(8, 8, 8)
    for before, after in (
        ((0, 0, 0), (1, 1, 1)),
        ((0, 1, 0), (1, 0, 0)),
        ((0, 1, 2), (2, 1, 0)),
        ((1, 0, 0), (None, 0, 0)),
        ((1, None, 0), (None, 0, 0)),
        ((0, 0, 1), (0, 1, 2)),
    ):
        before, after = ([R if dim is None else S[dim] for dim in dims] for dims in (before, after))
        run.there_and_back(f"{before} {after}", distribute_tensor(x, mesh, before), after)


def ordered(x, order):
    """x in another shard order, for which DTensor has only its inner function."""
    placements = [R] * x.device_mesh.ndim
    for dim, mesh_dims in order:
        for mesh_dim in mesh_dims:
            placements[mesh_dim] = S[dim]
    order = tuple(ShardOrderEntry(dim, tuple(mesh_dims)) for dim, mesh_dims in sorted(order))
    spec = DTensorSpec(x.device_mesh, tuple(placements), tensor_meta=x._spec.tensor_meta, shard_order=order)
    local = _redistribute.redistribute_local_tensor(x._local_tensor, x._spec, spec)
    return DTensor(local, spec, requires_grad=False)


def all_orders(mesh_dims, rank):
    """Each way to cut dimensions by all mesh dimensions."""
    for dims in itertools.product(range(rank), repeat=mesh_dims):
        by_dim = {dim: [m for m in range(mesh_dims) if dims[m] == dim] for dim in set(dims)}
        for lists in itertools.product(*(itertools.permutations(mesh_dims) for mesh_dims in by_dim.values())):
            yield tuple(zip(by_dim, lists))


def shard_orders(run):
    mesh = run.grid()
    for shape in ((16, 8), (8, 16, 4), (17, 5), (9, 4, 3, 1)):
        x = distribute_tensor(random_tensor(*shape), mesh, [R, R])
        orders = [*all_orders(2, len(shape))]
        random.Random(1).shuffle(orders)
        for order in orders:
            x = ordered(x, order)
            run.see(f"{shape} {order}", x)
            run.see(f"{shape} {order}: all of it", ordered(x, ()).to_local())
    mesh = run.mesh(2, 1, run.world // 2)
    x = distribute_tensor(random_tensor(8, 8, 8), mesh, [R, R, R])
    for order in (((0, (0, 1, 2)),), ((0, (1, 2)),), ((0, (2, 0, 1)),), ((0, (0, 1)),), ((0, (2,)), (1, (1,)))):
        x = ordered(x, order)
        run.see(f"{order}", x)


def plans_of_least_cost(run):
    for enabled in (True, False):
        with _redistribute.use_min_cost_redistribution_plan(enabled=enabled):
            x = distribute_tensor(random_tensor(8, 8, 8), run.grid(), [S[0], S[0]])
            run.there_and_back(f"{enabled}", x, [S[1], S[1]])
            run.there_and_back(f"{enabled} swapped", x, [S[1], S[0]])
        _redistribute._gen_transform_infos.cache_clear()


def shard_orders_of_partial_tensors(run):
    for shape in ((16, 8), (13, 2, 7)):
        for placements in itertools.combinations((S[0], S[1], P, Partial("min"), R), 2):
            local = random_tensor(*shape)
            if sum(p.is_partial() for p in placements) == 2:
                run.refused(f"{shape} {placements}", lambda: DTensor.from_local(local, run.grid(), placements))
                continue
            x = DTensor.from_local(local, run.grid(), placements)
            for order in all_orders(2, 2):
                run.refused(f"{shape} {placements} {order}", lambda: ordered(x, order))


def partial_to_another(run):
    mesh, local = run.mesh(), random_tensor(4, 4)
    meta = TensorMeta(local.shape, local.stride(), local.dtype)
    specs = [DTensorSpec(mesh, (Partial(op),), tensor_meta=meta) for op in ("sum", "avg")]
    run.refused("sum -> avg", lambda: _redistribute.redistribute_local_tensor(local, *specs))


def strided_shards(run):
    mesh = run.grid()
    x = random_tensor(8, 4)
    strided = distribute_tensor(x, mesh, [_StridedShard(-2, split_factor=2), Shard(-2)])
    run.see("strided", strided)
    run.see("of the other order", ordered(distribute_tensor(x, mesh, [R, R]), [(0, (1, 0))]))
    for after in itertools.product((R, S[0], S[1]), repeat=2):
        run.refused(f"strided {after}", lambda: strided.redistribute(placements=after))


def flattened_meshes(run):
    """Collectives that DTensor merges, in sizes of which that is right."""
    mesh = run.grid(names=("A", "B"))
    if "A_B" not in mesh._flatten_mapping:
        mesh["A", "B"]._flatten("A_B")
    for before, after in (
        ((P, P), (R, R)),
        ((P, P), (S[0], S[0])),
        ((P, P), (S[0], S[1])),
        ((S[0], S[0]), (R, R)),
        ((S[0], S[1]), (R, R)),
        ((P, Partial("avg")), (R, R)),
        ((P, S[0]), (R, R)),
        ((P, R), (R, R)),
    ):
        for size in (16, 5 if all(p.is_partial() for p in before) else 8):
            local = distribute_tensor(random_tensor(size, 16, 3), mesh, [R if p.is_partial() else p for p in before])
            x = DTensor.from_local(local.to_local(), mesh, before, run_check=False)
            run.see(f"{size} {before} {after}", x.redistribute(placements=after))


CASES = [
    shard_to_replicate,
    replicate_to_replicate,
    partial_to_partial,
    replicate_with_partial_gradient,
    replicate_to_shard,
    partial_to_replicate,
    conversions_of_replicas,
    conversions_of_shards,
    replicate_to_partial,
    partial_to_shard,
    gathers_along_any_dimension,
    negative_dimension,
    uneven_shards,
    another_shard_dimension,
    meshes_of_one,
    staying_partial,
    every_pair,
    three_mesh_dimensions,
    shard_orders,
    plans_of_least_cost,
    shard_orders_of_partial_tensors,
    partial_to_another,
    strided_shards,
    flattened_meshes,
]


def seen_by(case, c, context):
    torch.manual_seed(21)
    run = Run(c)
    with context:
        case(run)
    return run.seen


def differ(got, wanted):
    """Why two things that were seen are not the same, or nothing."""
    if isinstance(wanted, str) or isinstance(got, str):
        return "" if wanted == got else f"{got} instead of {wanted}"
    if got[1:] != wanted[1:]:
        return f"{got[1:]} instead of {wanted[1:]}"
    got, wanted = got[0], wanted[0]
    same = got.shape == wanted.shape and got.dtype == wanted.dtype and torch.allclose(got, wanted, rtol=1e-5, atol=1e-5)
    return "" if same else f"{got} instead of {wanted}"


def check_cases(c):
    import reshard
    from reshard.torch import inside_dtensor

    answered = 0
    for case in CASES:
        name = case.__name__
        own = c.run(name, lambda: seen_by(case, c, contextlib.nullcontext()))
        ours = c.run(f"{name}, ours", lambda: seen_by(case, c, reshard.dtensor_redistribution()))
        c.true(name, own and ours and [what for what, _ in own] == [what for what, _ in ours], "not the same checks")
        for (what, wanted), (_, got) in zip(own or (), ours or ()):
            if isinstance(wanted, str) and not isinstance(got, str):
                answered += 1  # where DTensor has no answer
            else:
                why = differ(got, wanted)
                c.true(f"{name}: {what}", not why, why)
    ways = [way for ways in inside_dtensor._ways.values() for way in ways.values()]
    taken = sum(way is not None for way in ways)
    c.true("plans are taken", taken > 100, f"{taken} of {len(ways)}")
    c.true("and DTensor's own way, too", taken < len(ways), f"{taken} of {len(ways)}")
    if c.rank == 0:
        print(f"{c.world} ranks: {len(CASES)} cases; plans for {taken} of {len(ways)} redistributions; ", end="")
        print(f"{answered} answers where DTensor has none", flush=True)


class DTensorCasesTest(ChecksTest):
    def test_cases(self):
        for world in (2, 4):
            with self.subTest(world=world):
                self.on_ranks(world, [check_cases], timeout=100)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # DTensor on its own fallbacks
    main("dtensor_cases")
