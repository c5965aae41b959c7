#!/usr/bin/env python3
"""What the package takes in place of texts and names: layouts for placements and placements for layouts, DTensors and
models for meshes and layouts, PyTorch's reductions for names; and what it says of those that do not fit."""

import itertools
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import gloo
from checks import ChecksTest, main

WORLD = 4
CHOICES = (Replicate(), Shard(0), Shard(1))


def whole(shape=(8, 12), first=0.0):
    return first + torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def on_mesh(dims=("dp", "tp")):
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=dims)


def alike(c, what, got, wanted):
    if got is None or wanted is None:
        return
    c.equal(what, got.to_local(), wanted.to_local())
    c.true(what, got._spec == wanted._spec, f"{got._spec} instead of {wanted._spec}")


def check_the_same_layout_said_differently(c):
    """Every target, with every shard order, as text and as placements."""
    import reshard
    from reshard.torch.groups import span_of_group
    from reshard.torch.layouts import layout_text

    for mesh in (on_mesh(), on_mesh(None), DeviceMesh("cpu", torch.tensor([[3, 1], [0, 2]]), mesh_dim_names=("a", "b"))):
        for shape in ((8, 12), (7, 5)):
            x = distribute_tensor(whole(shape), mesh, [Shard(0), Shard(1)])
            orders = [(p, None) for p in itertools.product(CHOICES, repeat=2)]
            orders += [((Shard(d), Shard(d)), ((d, (1, 0)),)) for d in (0, 1)]
            for placements, order in orders:
                what = f"{mesh} {shape} {placements} {order}"
                wanted = c.run(what, lambda: reshard.redistribute(x, mesh, placements, order))
                text = layout_text(mesh, wanted._spec.placements, wanted._spec.shard_order, x.shape, span_of_group(None))
                alike(c, f"{what} as {text}", c.run(what, lambda: reshard.redistribute(x, text)), wanted)
                alike(c, f"{what} second", c.run(what, lambda: reshard.redistribute(x, mesh, text)), wanted)
                if order is None:
                    alike(c, f"{what} first", c.run(what, lambda: reshard.redistribute(x, list(placements))), wanted)
                    got = c.run(what, lambda: reshard.redistribute(x, device_mesh=mesh, placements=placements))
                    alike(c, f"{what} by DTensor's names", got, wanted)
                many = c.run(what, lambda: reshard.redistribute_all([x, x], None, text))
                alike(c, f"{what} many", many and many[1], wanted)
                plan = c.run(what, lambda: reshard.plan(x, text))
                c.true(f"{what} planned", plan is not None and plan["target"] == text, plan and plan["target"])


def check_rules_and_strided_shards(c):
    import reshard

    mesh = on_mesh()
    x = distribute_tensor(whole(), mesh, [Replicate(), Replicate()])
    rule = c.run("a rule", lambda: reshard.redistribute(x, "[<tp,dp>, ...]"))
    alike(c, "a rule", rule, reshard.redistribute(x, mesh, [Shard(0), Shard(0)], ((0, (1, 0)),)))
    strided = reshard.redistribute(x, mesh, [_StridedShard(0, split_factor=2), Shard(0)])
    c.equal("strided", c.run("strided", lambda: reshard.redistribute(x, "[<tp,dp>8, 12]")).to_local(), strided.to_local())
    partial = DTensor.from_local(whole(), mesh, [Partial(), Replicate()], run_check=False)
    reduced = c.run("partial", lambda: reshard.redistribute(partial, "[<dp>8, 12]"))
    c.equal("partial", reduced.to_local(), 2 * whole().chunk(2)[c.rank // 2])


def check_refused_arguments(c):
    import reshard

    mesh = on_mesh()
    x = distribute_tensor(whole(), mesh, [Shard(0), Shard(1)])
    c.raises("twice", lambda: reshard.redistribute(x, [Shard(0)] * 2, [Shard(1)] * 2), "placements twice", kind=TypeError)
    c.raises("two meshes", lambda: reshard.redistribute(x, mesh, "[8, 12]", device_mesh=mesh), "same argument", kind=TypeError)
    c.raises("an order", lambda: reshard.redistribute(x, "[<dp,tp>8, 12]", shard_order=((0, (1, 0)),)), "already", kind=ValueError)
    c.raises("sizes", lambda: reshard.redistribute(x, "[<dp>9, 12]"), "9", kind=ValueError)
    c.raises("an axis", lambda: reshard.redistribute(x, "[<ep>8, 12]"), "ep", "dp", kind=ValueError)
    c.raises("no placements", lambda: reshard.redistribute(x, "[<1,dp:2"), kind=ValueError)
    zigzag = reshard.redistribute(x, "[<2,~dp>8, 12]")
    c.true("no DTensor can have it", isinstance(zigzag, reshard.Fragment), zigzag)
    local, layouts = x.to_local(), ("{dp:2,tp:2}", "[<dp>8, <tp>12]", "[8, <dp,tp>12]")
    wrong = local[:3]
    if c.rank == 1:
        c.raises("which side", lambda: torch.ops.reshard.redistribute(wrong, *layouts, c.group),
                 "the source has shape [3, 6]; its layout gives this rank [4, 6]", kind=ValueError)
    else:
        c.raises("which side", lambda: torch.ops.reshard.redistribute(local, *layouts, c.group), "rank 1")


def check_reductions(c):
    import reshard

    x = torch.tensor([c.rank + 1.0])
    for op, wanted in (("SUM", 10.0), ("AVG", 2.5), ("MIN", 1.0), ("MAX", 4.0), ("PRODUCT", 24.0)):
        op = getattr(dist.ReduceOp, op)
        for said in (op, dist.ReduceOp(op)):
            c.equal(f"{said}", c.run(f"{said}", lambda: reshard.all_reduce(x, said, dist.group.WORLD)), torch.tensor([wanted]))
    c.raises("bits", lambda: reshard.all_reduce(x, dist.ReduceOp.BXOR), "BXOR", "sum, avg", kind=ValueError)


class Model(torch.nn.Module):
    """Two weights under FSDP and tensor parallelism, one of them under two names, and a bias."""

    def __init__(self, mesh, weight, bias, first=0.0):
        super().__init__()
        self.a = torch.nn.Linear(12, 8, bias=True)
        self.b = torch.nn.Linear(12, 8, bias=False)
        self.a.weight = torch.nn.Parameter(distribute_tensor(whole((8, 12), first), mesh, weight))
        self.a.bias = torch.nn.Parameter(distribute_tensor(whole((8,), first), mesh, bias))
        self.b.weight = self.a.weight


def check_models(c):
    import reshard

    mesh = on_mesh()
    other = DeviceMesh("cpu", torch.tensor([2, 0, 3, 1]), mesh_dim_names=("x",))
    trainer = Model(mesh, [Shard(0), Shard(1)], [Shard(0), Replicate()])
    engine = Model(other, [Shard(1)], [Replicate()], -1000.0)
    refit = c.run("bind", lambda: reshard.bind(trainer, engine))
    for step in (1, 2):
        with torch.no_grad():
            for parameter in trainer.parameters():
                parameter._local_tensor.add_(100.0)
        c.run("run", refit.run)
        # By coordinate: distribute_tensor follows the rank, which is another order on this mesh.
        wanted = whole((8, 12), 100.0 * step).chunk(4, 1)[other.get_coordinate()[0]]
        c.equal("weight", engine.a.weight.to_local().detach(), wanted.contiguous())
        c.equal("bias", engine.a.bias.to_local().detach(), whole((8,), 100.0 * step))
    batch = c.run("plan", lambda: reshard.plan_batch(trainer, engine))
    c.true("tied tensors move once", batch is not None and batch.names == ["a.weight", "a.bias"], batch and batch.names)
    lists = c.run("lists", lambda: reshard.bind(list(trainer.parameters()), list(engine.parameters())))
    c.run("run", lists.run)
    c.raises("a plan of a model", lambda: reshard.plan(trainer, engine), "plan_batch", kind=TypeError)


def check_models_that_do_not_fit(c):
    import reshard

    mesh = on_mesh()
    x = distribute_tensor(whole(), mesh, [Shard(0), Shard(1)])
    y = distribute_tensor(whole(), mesh, [Shard(1), Shard(0)])
    c.raises("names", lambda: reshard.bind({"model.w": x, "model.v": y}, {"w": y, "v": x}),
             "2 names are not in the source", "with the prefix", '"model."', kind=ValueError)
    c.raises("a name", lambda: reshard.bind({"weight": x}, {"weigth": y}), 'did you mean "weight"', kind=ValueError)
    c.raises("more", lambda: reshard.bind({"a": x, "b": x}, {"a": y}), '"b" is not in the target', kind=ValueError)
    c.raises("plain", lambda: reshard.bind({"a": torch.ones(3)}, {"a": y}), "a: only DTensors", kind=ValueError)
    c.raises("dtype", lambda: reshard.bind([x], [y.double()]), "float64", kind=ValueError)
    c.raises("some", lambda: reshard.bind([x], [y], "{dp:2,tp:2}"), "together", kind=TypeError)
    c.raises("a mesh", lambda: reshard.bind([x], [y], target_mesh="{x:4}"), "target_mesh", kind=TypeError)
    c.raises("no target", lambda: reshard.plan("{x:4}", "[<x>4]"), "target is missing", kind=TypeError)
    c.raises("a dtype", lambda: reshard.plan(x, y, dtype="bf16"), "DTensor's", kind=TypeError)
    plan = c.run("plan", lambda: reshard.plan(x, y))
    c.true("plan", plan["source"] == "[4<dp>8, 6<tp>12]" and plan["target"] == "[4<tp>8, 6<dp>12]" and plan["dtype"] == "f32", plan)


def check_names_of_old(c):
    import reshard

    x = torch.ones(1, 8, 6)
    for name, call in (
        ("gather", lambda gather: gather(x)),
        ("all_to_all_single", lambda exchange: exchange(x, "split_to_full")),
    ):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            old = getattr(reshard, name)
        c.true(name, len(said) == 1 and said[0].category is DeprecationWarning and name in str(said[0].message), said)
        new = getattr(reshard.sequence_parallel, name)
        c.equal(name, c.run(name, lambda: call(old)), c.run(name, lambda: call(new)))


class ArgumentsTest(ChecksTest):
    def test_on_ranks(self):
        self.on_ranks(
            WORLD,
            [
                check_the_same_layout_said_differently,
                check_rules_and_strided_shards,
                check_refused_arguments,
                check_reductions,
                check_models,
                check_models_that_do_not_fit,
                check_names_of_old,
            ],
        )


if __name__ == "__main__":
    main("arguments")
