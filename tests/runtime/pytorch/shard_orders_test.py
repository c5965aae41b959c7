#!/usr/bin/env python3
"""Operators on DTensors in other shard orders, once reshard.install() has been called: values, and the orders that the
results say."""

import logging
import warnings

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from checks import ChecksTest, main

R, S0, S1 = Replicate(), Shard(0), Shard(1)
ORDER = ((0, (1, 0)),)
# 3, 2, 3, 2 rows in both orders, but other ones; the largest and the smallest among those that differ.
WHOLE = torch.arange(1.0, 41.0).reshape(10, 4).roll(4, 0)


def grid():
    return DeviceMesh("cpu", torch.arange(4).reshape(2, 2))


def usual(whole, placements=(S0, S0)):
    return distribute_tensor(whole, grid(), placements)


def ordered(whole):
    import reshard

    return reshard.redistribute(usual(whole, (R, R)), (S0, S0), shard_order=ORDER)


def order_of(x):
    return tuple((entry.tensor_dim, tuple(entry.mesh_dims)) for entry in x._spec.shard_order)


def all_of(x):
    import reshard

    return reshard.redistribute(x, (R, R)).to_local()


def same(c, what, got, wanted, order=None):
    if got is None:
        return
    c.true(what, torch.allclose(all_of(got).float(), wanted.float()), f"{all_of(got)} instead of {wanted}")
    if order is not None:
        c.true(what, order_of(got) == order, f"order {order_of(got)} instead of {order}")


KEEPING = {
    "clone": torch.clone,
    "detach": torch.Tensor.detach,
    "a cast": lambda x: x.to(torch.float64).to(torch.float32),
    "relu": torch.relu,
    "itself twice": lambda x: x + x,
    "a number": lambda x: 2 * x - 1,
    "where": lambda x: torch.where(x > 7, x, -x),
    "in place": lambda x: x.clone().mul_(3).add_(1),
    "zeros": torch.zeros_like,
    "contiguous": torch.Tensor.contiguous,
}
MOVING = {
    "sum": lambda x: x.sum(0),
    "matmul": lambda x: x @ x.t(),
    "transposed": lambda x: x.t(),
    "view": lambda x: x.view(10, 2, 2),
    "softmax": lambda x: torch.softmax(x, 0),
    "slice": lambda x: x[2:7],
    "cat": lambda x: torch.cat([x, x]),
    "cumsum": lambda x: torch.cumsum(x, 0),
    "argmax": lambda x: x.argmax(0),
    "place of the least": lambda x: x.min(0).indices,
}


def check_one_tensor(c):
    for name, function in KEEPING.items():
        same(c, name, c.run(name, lambda: function(ordered(WHOLE))), function(WHOLE), ORDER)
    for name, function in MOVING.items():
        same(c, name, c.run(name, lambda: function(ordered(WHOLE))), function(WHOLE))


def check_two_tensors(c):
    other = WHOLE.flip(0) * 0.5
    x, y = ordered(WHOLE), usual(other)
    same(c, "ordered + usual", c.run("ordered + usual", lambda: x + y), WHOLE + other, ORDER)
    same(c, "usual + ordered", c.run("usual + ordered", lambda: y + x), WHOLE + other)
    same(c, "ordered + replica", c.run("replica", lambda: x + usual(other, (R, R))), WHOLE + other)
    same(c, "ordered + a row", c.run("a row", lambda: x + usual(other[0], (R, R))), WHOLE + other[0])
    same(c, "ordered + columns", c.run("columns", lambda: x + usual(other, (S1, S1))), WHOLE + other)
    written = ordered(WHOLE)
    c.run("into ordered", lambda: written.add_(y))
    same(c, "into ordered", written, WHOLE + other, ORDER)
    written = usual(WHOLE)
    c.run("into usual", lambda: written.add_(ordered(other)))
    same(c, "into usual", written, WHOLE + other, ((0, (0, 1)),))
    written = ordered(WHOLE)
    c.run("copied", lambda: written.copy_(y))
    same(c, "copied", written, other, ORDER)
    sums = c.run("lists", lambda: torch._foreach_add([x, y, x, y], [ordered(other), y, y, x]))
    if sums:
        same(c, "lists, both ordered", sums[0], WHOLE + other, ORDER)
        same(c, "lists, both usual", sums[1], 2 * other)
        same(c, "lists, ordered and usual", sums[2], WHOLE + other, ORDER)
        same(c, "lists, usual and ordered", sums[3], WHOLE + other)
    into = [ordered(WHOLE), usual(WHOLE)]
    c.run("into lists", lambda: torch._foreach_add_(into, [y, ordered(other)]))
    same(c, "into a list, ordered", into[0], WHOLE + other, ORDER)
    same(c, "into a list, usual", into[1], WHOLE + other, ((0, (0, 1)),))
    random = ordered(torch.zeros(10, 4))
    with warnings.catch_warnings(action="ignore"):  # on random operators on the host
        c.run("random numbers", lambda: random.uniform_(1, 2))
    c.true("random numbers", order_of(random) == ORDER and bool((all_of(random) >= 1).all()))


def check_training(c):
    """A step of an optimizer, with gradients through redistributions and operators."""
    import reshard

    for optimizer in (torch.optim.SGD, torch.optim.Adam):
        for options in ({"foreach": False}, {"foreach": True}):
            what = f"{optimizer.__name__} {options}"
            weights = [torch.nn.Parameter(x) for x in (ordered(WHOLE), usual(WHOLE), WHOLE.clone())]
            batch = torch.arange(12.0).reshape(4, 3) / 10
            for weight in weights:
                inputs = usual(batch, (R, R)) if weight is not weights[2] else batch
                step = optimizer([weight], lr=0.1, **options)
                for _ in range(2):
                    loss = torch.tanh((weight * 0.01) @ inputs).sum()
                    loss.backward()
                    step.step()
                    step.zero_grad()
            same(c, what, weights[0], weights[2].detach(), ORDER)
            same(c, f"{what}, usual", weights[1], weights[2].detach())
    # The operator might write into the gradient, which is in the usual order.
    weight = torch.nn.Parameter(ordered(WHOLE))
    weight.grad = usual(WHOLE)
    c.raises("fused", torch.optim.Adam([weight], fused=True).step, "shard order", kind=RuntimeError)
    weight.grad = ordered(WHOLE)
    c.run("fused", torch.optim.Adam([weight], fused=True).step)
    plain = torch.nn.Parameter(WHOLE.clone())
    plain.grad = WHOLE
    torch.optim.Adam([plain], fused=True).step()
    same(c, "fused", weight, plain.detach(), ORDER)
    weight = torch.nn.Parameter(ordered(WHOLE))
    (weight * usual(WHOLE)).redistribute(placements=[R, R]).sum().backward()
    same(c, "gradient of DTensor.redistribute", weight.grad, WHOLE)


def check_uninstalled(c):
    """PyTorch's own behaviour is back, and nothing is remembered from in between."""
    import reshard

    reshard.uninstall()
    same(c, "usual tensors", usual(WHOLE) + usual(WHOLE), 2 * WHOLE)
    c.true("clone drops the order", order_of(ordered(WHOLE).clone()) == ((0, (0, 1)),))
    reshard.install()
    same(c, "and again", ordered(WHOLE).clone(), WHOLE, ORDER)


def check_all(c):
    import reshard

    order_of(ordered(WHOLE).clone())  # PyTorch remembers what it decided of this
    reshard.install()
    for check in (check_one_tensor, check_two_tensors, check_training, check_uninstalled):
        check(c)


class ShardOrdersTest(ChecksTest):
    def test_operators(self):
        self.on_ranks(4, [check_all], timeout=100)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main("shard_orders")
