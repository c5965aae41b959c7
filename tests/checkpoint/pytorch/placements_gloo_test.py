#!/usr/bin/env python3
"""FSDP2 over tensor parallelism with sizes that do not divide, on Gloo ranks: models that parallelize_module and
fully_shard made, moved, saved, loaded and fingerprinted, each value compared with the model before it was sharded."""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

import gloo
from checks import ChecksTest, main
from shared_folder import remove, shared_folder

# By shape of the mesh: sizes of the dimension that both axes cut.
SIZES = {(2, 2): (1, 2, 3, 5, 9, 10, 17), (3, 2): (4, 7, 13, 16), (2, 2, 2): (3, 10, 13)}
# PyTorch's own dcp planners place these as none of its other parts does (tests/runtime/pytorch/placements_test.py), and
# what a save says of it: of 7 it is only seen by reshard's writer, of 13 the planner finds its chunks to overlap.
WRONG_IN_PYTORCH = {(3, 2): {7: "reshard.save", 13: "Failed to validate global plan"}}


def chunk(tensor, dim, parts, index):
    """What torch.chunk gives the index-th of so many ranks."""
    each = -(-tensor.shape[dim] // parts)
    begin = min(index * each, tensor.shape[dim])
    return tensor.narrow(dim, begin, min(each, tensor.shape[dim] - begin))


def columns(mesh, whole):
    """What fully_shard would make of a row-wise parallel weight, if it cut columns that do not divide."""
    dp, tp = mesh.shape[-2:]
    *_, i, j = mesh.get_coordinate()
    local = chunk(chunk(whole, 1, tp, j), 1, dp, i).contiguous()
    placements = [*[Replicate()] * (mesh.ndim - 2), _StridedShard(1, split_factor=tp), Shard(1)]
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


def sharded(shape):
    """DTensors by name, of rows and of columns, and the whole tensors."""
    names = ("replicate", "dp", "tp")[-len(shape) :]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = nn.ModuleDict()
    wholes, by_columns = {}, {}
    torch.manual_seed(5)
    for size in SIZES[shape]:
        layer = nn.Linear(4, size)
        wholes.update({f"{size}.{key}": value.detach().clone() for key, value in layer.named_parameters()})
        parallelize_module(layer, mesh["tp"], ColwiseParallel())
        fully_shard(layer, mesh=mesh[names[:-1]] if len(shape) == 3 else mesh["dp"])
        model[str(size)] = layer
        wholes[f"columns{size}"] = torch.randn(3, size)
        by_columns[f"columns{size}"] = columns(mesh, wholes[f"columns{size}"])
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return mesh, {**tensors, **by_columns}, wholes


def zeros(tensors):
    return {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}


def check_locals(c, what, got, wanted):
    for name, tensor in wanted.items():
        c.equal(f"{what} {name}", got[name].to_local(), tensor.to_local())
        c.true(f"{what} {name}", got[name].placements == tensor.placements, got[name].placements)


def check_redistribute(c, shape):
    import reshard

    mesh, tensors, wholes = sharded(shape)
    replicated = [Replicate()] * len(shape)
    for name, tensor in tensors.items():
        whole = wholes[name]
        strided = [p for p in tensor.placements if isinstance(p, _StridedShard)]
        c.true(f"{name} is strided", len(strided) == 1, tensor.placements)
        moved = c.run(name, lambda: reshard.redistribute(tensor, replicated))
        c.equal(name, moved.to_local(), whole)
        # Back to it, from a copy and from another layout, and to what the library writes for its own text of it.
        placements = list(tensor.placements)
        back = c.run(f"{name} back", lambda: reshard.redistribute(moved, placements))
        check_locals(c, "back", {name: back}, {name: tensor})
        other = [*replicated[:-1], Shard(whole.dim() - 1)]
        other = c.run(name, lambda: reshard.redistribute(tensor, other))
        c.equal(f"{name} in another layout", other.full_tensor(), whole)
        check_locals(c, "and back", {name: c.run(name, lambda: reshard.redistribute(other, placements))}, {name: tensor})
        order = "<tp,dp>"
        text = f"[{order}, ...]" if whole.dim() == 1 or strided[0].dim == 0 else f"[*, {order}]"
        ordered = c.run(f"{name} {text}", lambda: reshard.redistribute(other, text))
        c.equal(f"{name} {text}", ordered.to_local(), tensor.to_local())
        c.equal(f"{name} {text}, whole", c.run(name, lambda: reshard.redistribute(ordered, replicated)).to_local(), whole)
        with reshard.dtensor_redistribution():
            c.equal(f"{name} full_tensor", c.run(name, lambda: tensor.full_tensor()), whole)
        c.equal(f"{name} PyTorch's full_tensor", tensor.full_tensor(), whole)
        # Gradients come back in the layout of the tensor.
        x = tensor.clone().requires_grad_()  # the operators of PyTorch keep strided shards
        y = c.run(f"{name}, differentiated", lambda: reshard.redistribute(x, replicated)).to_local()
        (y * whole).sum().backward()
        check_locals(c, "gradient", {name: x.grad}, {name: tensor})
        c.true(f"{name} is planned", order in str(c.run(name, lambda: reshard.plan(tensor, replicated))))
    together = c.run("all", lambda: reshard.redistribute_all(list(tensors.values()), None, replicated))
    for moved, name in zip(together, tensors):
        c.equal(f"{name} in a batch", moved.to_local(), wholes[name])
    engine = {name: distribute_tensor(torch.zeros_like(whole), mesh, replicated) for name, whole in wholes.items()}
    c.run("bound", lambda: reshard.bind(tensors, engine).run())
    for name, whole in wholes.items():
        c.equal(f"{name} bound", engine[name].to_local(), whole)


def check_checkpoints(c, shape):
    import reshard

    _, tensors, wholes = sharded(shape)
    root = shared_folder(c)
    fingerprints = reshard.fingerprint(wholes, per_tensor=True)
    c.true("fingerprint", c.run("fingerprint", lambda: reshard.fingerprint(tensors, per_tensor=True)) == fingerprints)

    ours = os.path.join(root, "ours")
    c.run("save", lambda: reshard.save(ours, tensors))
    c.true("saved", reshard.fingerprint(ours, per_tensor=True) == fingerprints)
    plain = zeros(wholes)
    dcp.load(plain, checkpoint_id=ours)
    for name, whole in wholes.items():
        c.equal(f"{name}, saved by reshard.save, loaded by PyTorch", plain[name], whole)
    for read in ("once", "own"):
        state = zeros(tensors)
        c.run("load", lambda: reshard.load(ours, state, read=read))
        check_locals(c, f"reshard.load {read}", state, tensors)
        state = zeros(tensors)
        planner = reshard.dcp.LoadPlanner(read=read)
        c.run("dcp.load", lambda: dcp.load(state, storage_reader=reshard.dcp.StorageReader(ours), planner=planner))
        check_locals(c, f"LoadPlanner {read}", state, tensors)

    # With PyTorch's planners, which compute the places of DTensors by themselves.
    wrong = WRONG_IN_PYTORCH.get(shape, {})
    agreed = {name: tensor for name, tensor in tensors.items() if not any(size in tensor.shape for size in wrong)}
    theirs = os.path.join(root, "theirs")
    c.run("StorageWriter", lambda: dcp.save(agreed, storage_writer=reshard.dcp.StorageWriter(theirs)))
    state = zeros(agreed)
    c.run("StorageReader", lambda: dcp.load(state, storage_reader=reshard.dcp.StorageReader(theirs)))
    check_locals(c, "StorageWriter to StorageReader", state, agreed)
    state = zeros(agreed)
    c.run("load", lambda: reshard.load(theirs, state))
    check_locals(c, "StorageWriter to reshard.load", state, agreed)
    for name in sorted(tensors.keys() - agreed.keys()):
        path = os.path.join(root, name)
        c.raises(
            f"{name}, whose places PyTorch computes wrong",
            lambda: dcp.save({name: tensors[name]}, storage_writer=reshard.dcp.StorageWriter(path)),
            next(said for size, said in wrong.items() if size in tensors[name].shape),
            kind=CheckpointException,
        )
        c.true(f"{name} is not written", not os.path.exists(os.path.join(path, ".metadata")))
    remove(c, root)


def check_refusals(c, shape):
    """Strided shards that no later axis explains say which tensor they are of."""
    import reshard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    local = torch.zeros(4, 3)
    placements = [_StridedShard(0, split_factor=4), Shard(0)]
    odd = DTensor.from_local(local, mesh, placements, run_check=False, shape=torch.Size([15, 3]), stride=(3, 1))
    said = ("Shard(dim=0) over mesh axis tp", "15 elements", "Redistribute")
    root = shared_folder(c)
    state = {"layers": {"odd": odd}}
    for what, function in {
        "save": lambda: reshard.save(os.path.join(root, "x"), state),
        "load": lambda: reshard.load(os.path.join(root, "x"), state),
        "fingerprint": lambda: reshard.fingerprint(state),
    }.items():
        c.raises(what, function, "layers.odd of shape [15, 3] over {dp:2,tp:2}", *said, kind=NotImplementedError)
    c.raises("redistribute", lambda: reshard.redistribute(odd, [Replicate()] * 2), *said, kind=NotImplementedError)
    c.raises(
        "redistribute_all",
        lambda: reshard.redistribute_all([odd], None, [Replicate()] * 2),
        "tensor 0",
        *said,
        kind=NotImplementedError,
    )
    remove(c, root)


class PlacementsTest(ChecksTest):
    def on_mesh(self, shape, *more):
        world = torch.Size(shape).numel()
        self.on_ranks(world, [check_redistribute, check_checkpoints, *more], shape, timeout=240)

    def test_fsdp_over_tp(self):
        self.on_mesh((2, 2), check_refusals)

    def test_after_the_loss_of_a_node(self):
        self.on_mesh((3, 2))

    def test_hsdp_over_tp(self):
        self.on_mesh((2, 2, 2))


if __name__ == "__main__":
    main("placements")
