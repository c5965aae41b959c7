#!/usr/bin/env python3
"""Batches whose tensors go between different meshes, on Gloo ranks: contents by logical index, gradients, bound ones,
exchanges counted against a batch within one mesh, memory limits."""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from checks import ChecksTest, main
from reference import Layout, Mesh

OPS = torch.ops.reshard
WORLD = 4
GRID, ROW, FIRST, LAST, MIDDLE = "{X:2,Y:2}", "{Z:4}", "{A:2}", "{B:2}@2", "{B:2}@1"
# Mesh and layout before, mesh and layout after.
PAIRS = [
    (GRID, "[<X,Y>8, 6]", ROW, "[8, <Z>6]"),
    (GRID, "[<X>7, <Y>5]", "{Z:4}@[3,1,0,2]", "[<Z>7, 5]"),
    (ROW, "[<Z>9, 4]", FIRST, "[9, <A>4]"),
    (FIRST, "[<A>9, 4]", LAST, "[9, <B>4]"),
    (FIRST, "[5, <A>7]", MIDDLE, "[<B>5, 7]"),
    (LAST, "[3]", ROW, "[<Z>3]"),
    (ROW, "[<Z>8, 3]", ROW, "[8, <Z>3]"),
    (LAST, "[<B>2]", MIDDLE, "[2]"),
]
SUM = (ROW, "[6, 4] sum<Z>", MIDDLE, "[<B>6, 4]")
WITHIN = [(ROW, "[<Z>8, 6]", ROW, "[8, <Z>6]")] * len(PAIRS)


def fragment(mesh, text, rank, scale=1.0):
    """Of the tensor whose element number i has the value scale * (i + 1); of no elements outside the mesh."""
    layout = Layout(text, Mesh(mesh))
    if not layout.holds(rank):
        return torch.empty([0] * len(layout.shape))
    whole = (torch.arange(torch.Size(layout.shape).numel(), dtype=torch.float32) + 1) * scale
    return torch.from_numpy(layout.local(whole.reshape(layout.shape).numpy(), rank))


def sources(pairs, rank, scale=1.0):
    return [fragment(mesh, text, rank, scale) for mesh, text, _, _ in pairs]


def targets(pairs, rank, scale=1.0):
    """A sum has the contributions of four ranks."""
    return [fragment(mesh, text, rank, scale * (4 if "sum" in source else 1)) for _, source, mesh, text in pairs]


def move(c, pairs, locals_, **options):
    meshes, froms, target_meshes, tos = (list(column) for column in zip(*pairs))
    return OPS.redistribute_batch(locals_, meshes, froms, tos, c.group, target_meshes, **options)


def exchanges(function):
    """How many operations it takes, beside agreement."""
    import reshard

    last = max((operation["number"] for operation in reshard.recent_operations()), default=-1)
    function()
    return sum(o["number"] > last and o["operation"] != "agreement" for o in reshard.recent_operations())


def check_all(c, what, got, wanted):
    for number, (g, w) in enumerate(zip(got or [], wanted)):
        c.equal(f"{what}: {number}", g, w)


def check_contents(c):
    pairs = [*PAIRS, SUM, *PAIRS]
    got = c.run("a batch", lambda: move(c, pairs, sources(pairs, c.rank)))
    check_all(c, "a batch", got, targets(pairs, c.rank))
    # Some are differentiated or strided: through the dispatcher.
    inputs = [x.t().contiguous().t() if x.dim() == 2 else x for x in sources(pairs, c.rank)]
    inputs[0] = inputs[0].requires_grad_()
    got = c.run("a batch with gradients", lambda: move(c, pairs, inputs))
    check_all(c, "a batch with gradients", [y.detach() for y in got or []], targets(pairs, c.rank))
    # One pair for all.
    mesh, source, target_mesh, target = PAIRS[2]
    got = c.run(
        "one pair",
        lambda: OPS.redistribute_batch(
            sources(PAIRS[2:3] * 3, c.rank), mesh, [source] * 3, [target] * 3, c.group, target_mesh=target_mesh
        ),
    )
    check_all(c, "one pair", got, targets(PAIRS[2:3] * 3, c.rank))


def check_exchanges(c):
    """As many as within one mesh."""
    within, between = sources(WITHIN, c.rank), sources(PAIRS, c.rank)
    move(c, PAIRS, between)
    wanted = exchanges(lambda: move(c, WITHIN, within))
    c.true("within a mesh", wanted > 0, wanted)
    got = exchanges(lambda: move(c, PAIRS, between))
    c.true("between meshes", got == wanted, f"{got} exchanges instead of {wanted}")
    one_by_one = exchanges(lambda: [move(c, [pair], [x]) for pair, x in zip(PAIRS, between)])
    c.true("one by one", one_by_one > wanted, one_by_one)


def check_gradients(c):
    """The gradient is the fragment of what came back; a contribution to a sum has that of the sum."""
    pairs = [*PAIRS, SUM]
    inputs = [x.requires_grad_() for x in sources(pairs, c.rank)]
    ys = move(c, pairs, inputs)
    given = [fragment(mesh, text, c.rank, 0.5) for _, _, mesh, text in pairs]
    grads = []
    count = exchanges(lambda: grads.extend(torch.autograd.grad(ys, inputs, given)))
    wanted = [fragment(mesh, text.split(" sum")[0], c.rank, 0.5) for mesh, text, _, _ in pairs]
    check_all(c, "gradients", grads, wanted)
    within = [x.requires_grad_() for x in sources(WITHIN, c.rank)]
    zs = move(c, WITHIN, within)
    expected = exchanges(lambda: torch.autograd.grad(zs, within, [torch.ones_like(z) for z in zs]))
    c.true("exchanges of gradients", count == expected, f"{count} instead of {expected}")


def bind(c, pairs, **options):
    import reshard

    meshes, froms, target_meshes, tos = (list(column) for column in zip(*pairs))
    tensors, outs = sources(pairs, c.rank), [torch.full_like(t, -1) for t in targets(pairs, c.rank)]
    return tensors, outs, reshard.bind(tensors, outs, meshes, froms, tos, target_mesh=target_meshes, **options)


def check_bound(c):
    pairs = [*PAIRS, SUM]
    tensors, outs, batch = bind(c, pairs)
    for scale in (1.0, 3.0):
        for tensor, content in zip(tensors, sources(pairs, c.rank, scale)):
            tensor.copy_(content)
        c.run("run", batch.run)
        check_all(c, f"bound, {scale}", outs, targets(pairs, c.rank, scale))
    counts = [exchanges(bind(c, list_of)[2].run) for list_of in (PAIRS, WITHIN)]
    c.true("bound exchanges", counts[0] == counts[1] > 0, counts)


def check_memory_limit(c):
    import reshard

    inputs, wanted = sources(PAIRS, c.rank), targets(PAIRS, c.rank)
    unlimited = exchanges(lambda: move(c, PAIRS, inputs))
    counts = []
    for limit in (1 << 20, 600, 300):
        got = []
        counts.append(exchanges(lambda limit=limit: got.extend(move(c, PAIRS, inputs, memory_limit=limit))))
        check_all(c, f"limit {limit}", got, wanted)
    c.true("more exchanges in less memory", unlimited == counts[0] < counts[1] < counts[2], [unlimited, *counts])
    c.true("what was received", reshard.last_timings()["received_bytes"] >= 0)
    tensors, outs, batch = bind(c, PAIRS, memory_limit="0.5KiB")
    c.true("bound", exchanges(batch.run) > unlimited)
    check_all(c, "bound under a limit", outs, wanted)
    # The gradients keep to it, too.
    leaves = [x.requires_grad_() for x in sources(PAIRS, c.rank)]
    ys = move(c, PAIRS, leaves, memory_limit=500)
    ones = [torch.ones_like(y) for y in ys]
    c.true("gradients", exchanges(lambda: torch.autograd.grad(ys, leaves, ones)) > unlimited)


def check_refusals(c):
    inputs = sources(PAIRS, c.rank)
    c.raises("too little", lambda: move(c, PAIRS, inputs, memory_limit=8), "tensor 0", kind=torch.OutOfMemoryError)
    c.raises("negative", lambda: move(c, PAIRS, inputs, memory_limit=-1), "negative", kind=ValueError)
    mine = 10000 if c.rank == 2 else None
    c.raises("another limit", lambda: move(c, PAIRS, inputs, memory_limit=mine), "memory limit", "10000 bytes", "none")
    limit = "1MiB" if c.rank == 1 else "2MiB"
    c.raises("another bound limit", lambda: bind(c, PAIRS, memory_limit=limit), "memory limit", "1048576", "2097152")
    meshes, froms, target_meshes, tos = (list(column) for column in zip(*PAIRS))
    c.one_rank_errs(
        "too few meshes",
        3,
        lambda: move(c, PAIRS, inputs)[0],
        lambda: OPS.redistribute_batch(inputs, meshes[1:], froms, tos, c.group, target_meshes),
        "7 meshes",
    )
    c.one_rank_errs(
        "bound to too few meshes", 0, lambda: bind(c, PAIRS)[1][0], lambda: bind_to(c, meshes[1:]), "7 meshes"
    )
    check_all(c, "afterwards", c.run("afterwards", lambda: move(c, PAIRS, inputs)), targets(PAIRS, c.rank))


def bind_to(c, meshes):
    import reshard

    _, froms, target_meshes, tos = (list(column) for column in zip(*PAIRS))
    return reshard.bind(sources(PAIRS, c.rank), targets(PAIRS, c.rank), meshes, froms, tos, target_mesh=target_meshes)


# DTensors: shape, mesh and placements before, mesh and placements after. The layouts of the meshes' axes are d0, d1.
R, S0, S1 = Replicate(), Shard(0), Shard(1)
MOVES = [
    ((8, 6), ((0, 1), (2, 3)), (S0, S1), (0, 1, 2, 3), (S1,)),
    ((7, 5), ((0, 1), (2, 3)), (S1, S0), (3, 1, 0, 2), (S0,)),
    ((9, 4), (0, 1), (S0,), (2, 3), (S1,)),
    ((9, 4), (2, 3), (R,), (0, 1, 2, 3), (S0,)),
    ((5, 6), (0, 1, 2, 3), (S0,), (0, 1, 2, 3), (R,)),
]
OVERLAPPING = ((5, 7), (0, 1), (S1,), (1, 2), (S0,))


def dtensor(c, shape, mesh, placements, scale=1.0):
    whole = (torch.arange(torch.Size(shape).numel(), dtype=torch.float32) + 1).reshape(shape) * scale
    local = torch.empty(0)  # as DTensor.from_local has it outside the mesh
    if c.rank in mesh.mesh.flatten().tolist():
        local = whole
        for dim, placement in enumerate(placements):
            if isinstance(placement, Shard):
                chunks = list(local.chunk(mesh.size(dim), placement.dim))
                at = mesh.get_coordinate()[dim]
                nothing = local.narrow(placement.dim, 0, 0)
                local = chunks[at] if at < len(chunks) else nothing
    return DTensor.from_local(
        local.contiguous(), mesh, placements, run_check=False, shape=torch.Size(shape), stride=whole.stride()
    )


def check_locals(c, what, got, wanted):
    """Outside a mesh, there are no elements in any number of dimensions."""
    for number, (g, w) in enumerate(zip(got or [], wanted)):
        local, expected = g.to_local(), w.to_local()
        if expected.dim() == 1 and not local.numel():
            local = local.flatten()
        c.equal(f"{what}: {number}", local, expected)


def check_dtensors(c):
    import reshard

    meshes = {}
    for _, before, _, after, _ in [*MOVES, OVERLAPPING]:
        for ranks in (before, after):
            meshes.setdefault(ranks, DeviceMesh("cpu", torch.tensor(ranks)))
    world = torch.distributed.group.WORLD

    def placed(moves, scale=1.0):
        befores = [dtensor(c, shape, meshes[before], p, scale) for shape, before, p, _, _ in moves]
        return befores, [dtensor(c, shape, meshes[after], p, scale) for shape, _, _, after, p in moves]

    def moved(moves, xs, **options):
        return reshard.redistribute_all(xs, [meshes[m[3]] for m in moves], [m[4] for m in moves], **options)

    one = [MOVES[4]]
    wanted = exchanges(lambda: moved(one, placed(one)[0]))
    for moves, options in ((MOVES, {}), ([*MOVES, OVERLAPPING], {"group": world})):
        xs, after = placed(moves)
        ys = c.run("redistribute_all", lambda moves=moves, xs=xs: moved(moves, xs, **options))
        check_locals(c, "redistribute_all", ys, after)
        for y, move_ in zip(ys or [], moves):
            c.true("where it is", y.device_mesh == meshes[move_[3]] and tuple(y.placements) == move_[4], y.placements)
        count = exchanges(lambda moves=moves, xs=xs: moved(moves, xs, **options))
        c.true("exchanges", count == wanted, f"{count} instead of {wanted}")
        limited = exchanges(lambda moves=moves, xs=xs: moved(moves, xs, **options, memory_limit="500B"))
        c.true("with a limit", limited > wanted, limited)
    # Without a group the overlapping ones have a group of their own, which rank 3 is not in.
    xs, after = placed([*MOVES, OVERLAPPING])
    ys = c.run("by groups", lambda: moved([*MOVES, OVERLAPPING], xs))
    check_locals(c, "by groups", ys, after)

    xs, after = placed(MOVES)
    for x in xs:
        x.requires_grad_()
    ys = moved(MOVES, xs)
    given = moved(MOVES, placed(MOVES, 0.25)[0])
    grads = c.run("gradients", lambda: torch.autograd.grad(ys, xs, given))
    check_locals(c, "gradients", grads, placed(MOVES, 0.25)[0])

    xs, after = placed([*MOVES, OVERLAPPING])
    outs = placed([*MOVES, OVERLAPPING], -1.0)[1]
    bound = c.run("bind", lambda: reshard.bind(xs, outs))
    count = exchanges(bound.run)
    check_locals(c, "bind", outs, after)
    c.true("exchanges of a bound batch", count == wanted, f"{count} instead of {wanted}")
    bound = c.run("bind under a limit", lambda: reshard.bind(xs, outs, memory_limit=500))
    c.true("exchanges under a limit", exchanges(bound.run) > wanted)
    c.raises("a list too short", lambda: reshard.redistribute_all(xs, [None], (S0,)), "1 meshes", kind=ValueError)
    c.raises("no number of bytes", lambda: moved(MOVES, xs, memory_limit="much"), "much", kind=ValueError)


class BetweenMeshesTest(ChecksTest):
    def test_texts(self):
        self.on_ranks(
            WORLD,
            [check_contents, check_exchanges, check_gradients, check_bound, check_memory_limit, check_refusals],
        )

    def test_dtensors(self):
        self.on_ranks(WORLD, [check_dtensors])


if __name__ == "__main__":
    main("between meshes")
