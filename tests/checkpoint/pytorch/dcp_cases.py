"""What PyTorch's own tests of torch.distributed.checkpoint try, as cases for any pair of a writer and a reader.

A case is function(c, storage, folder): it runs on all ranks of a group of four, in a folder of its own, and saves and
loads only through storage.save and storage.load.
"""

import io
import os
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec, ShardMetadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner, _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

warnings.filterwarnings("ignore")

CASES = []


def case(function):
    CASES.append(function)
    return function


class Storage:
    """A writer and a reader, of PyTorch or of reshard."""

    def __init__(self, writes, reads):
        self.writes, self.reads = writes, reads

    def __str__(self):
        return f"{self.writes} -> {self.reads}"

    def writer(self, path, **options):
        import reshard

        kind = reshard.dcp.StorageWriter if self.writes == "reshard" else dcp.FileSystemWriter
        return kind(path, **options)

    def reader(self, path, **options):
        import reshard

        return reshard.dcp.StorageReader(path, **options) if self.reads == "reshard" else dcp.FileSystemReader(path)

    def save(self, path, state, writer=None, **options):
        return dcp.save(state, storage_writer=writer or self.writer(path), **options)

    def load(self, path, state, reader=None, **options):
        dcp.load(state, storage_reader=reader or self.reader(path), **options)
        return state


def numbered(*shape, dtype=torch.float32, seed=0):
    """Elements that say where they are."""
    return (torch.arange(torch.Size(shape).numel()) * 3 + seed * 1000 + 1).reshape(shape).to(dtype)


def equal_tensors(c, what, got, wanted):
    c.true(f"{what}: names", got.keys() == wanted.keys(), f"{sorted(got)} instead of {sorted(wanted)}")
    for name in wanted:
        c.equal(f"{what}: {name}", got[name], wanted[name])


def full_of(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


# ---- plain tensors and values


@case
def modules(c, storage, folder):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3))
    wanted = {name: value.clone() for name, value in model.state_dict().items()}
    storage.save(folder, model.state_dict())
    equal_tensors(c, "model", storage.load(folder, {k: torch.zeros_like(v) for k, v in wanted.items()}), wanted)


@case
def nested_values(c, storage, folder):
    state = {
        "a": {"list": [numbered(3), {"b": numbered(2, 2)}], "number": 7},
        "text": "x" * 1000,
        "tuple": (1, 2.5, None),
        "flag": True,
    }
    storage.save(folder, state)
    got = {"a": {"list": [torch.zeros(3), {"b": torch.zeros(2, 2)}], "number": 0}, "text": "", "tuple": None, "flag": 0}
    storage.load(folder, got)
    c.equal("in a list", got["a"]["list"][0], numbered(3))
    c.equal("deeper", got["a"]["list"][1]["b"], numbered(2, 2))
    values = (got["a"]["number"], got["text"], got["tuple"], got["flag"])
    c.true("values", values == (7, "x" * 1000, (1, 2.5, None), True), values)


@case
def dtypes_and_views(c, storage, folder):
    kinds = [torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int64, torch.bool]
    state = {str(kind): numbered(4, 6, dtype=kind) for kind in kinds}
    state["f8"] = numbered(16).to(torch.float8_e4m3fn)
    state["complex"] = torch.complex(numbered(5), -numbered(5))
    state["conjugated"] = state["complex"].conj()
    state["scalar"] = torch.tensor(3.5)
    state["empty"] = torch.zeros(0, 4)
    state["transposed"] = numbered(6, 4).t()
    state["part"] = numbered(100, 100)[10:13, ::7]
    state["expanded"] = numbered(1, 3).expand(4, 3)
    storage.save(folder, state)
    got = storage.load(folder, {k: torch.zeros(v.shape, dtype=v.dtype) for k, v in state.items()})
    bits = lambda t: t.resolve_conj().contiguous().view(-1).view(torch.uint8)
    equal_tensors(c, "bits", {k: bits(v) for k, v in got.items()}, {k: bits(v) for k, v in state.items()})


@case
def into_other_dtypes_and_strides(c, storage, folder):
    storage.save(folder, {"w": numbered(6, 4), "n": numbered(5, dtype=torch.int64)})
    got = {"w": torch.zeros(4, 6, dtype=torch.bfloat16).t(), "n": torch.zeros(10, dtype=torch.float32)[::2]}
    storage.load(folder, got)
    c.equal("cast", got["w"].contiguous(), numbered(6, 4).bfloat16())
    c.equal("strided", got["n"].contiguous(), numbered(5))


@case
def missing_and_other_shapes(c, storage, folder):
    storage.save(folder, {"w": numbered(4)})
    kinds = (RuntimeError, ValueError, dist.checkpoint.CheckpointException)
    c.raises("missing", lambda: storage.load(folder, {"v": torch.zeros(4)}), "v", kind=kinds)
    c.raises("shape", lambda: storage.load(folder, {"w": torch.zeros(5)}), "", kind=kinds)
    got = {"w": torch.zeros(4), "v": torch.zeros(2)}
    storage.load(folder, got, planner=DefaultLoadPlanner(allow_partial_load=True))
    equal_tensors(c, "what is there", got, {"w": numbered(4), "v": torch.zeros(2)})


@case
def without_a_state(c, storage, folder):
    storage.save(folder, {"a": {"b": numbered(3)}, "c": [numbered(2), 5]})
    got, only = {}, {}
    for state, keys in ((got, None), (only, {"a"})):
        _load_state_dict(state, storage.reader(folder), planner=_EmptyStateDictLoadPlanner(keys=keys))
    c.equal("tensor", got["a"]["b"], numbered(3))
    c.true("value", got["c"][1] == 5, got)
    c.true("keys", only.keys() == {"a"}, only.keys())


class _Counter:
    def __init__(self, count):
        self.count = count

    def state_dict(self):
        return {"count": self.count, "weights": numbered(3, seed=self.count)}

    def load_state_dict(self, state):
        self.count, self.weights = state["count"], state["weights"]


@case
def stateful_objects(c, storage, folder):
    storage.save(folder, {"counter": _Counter(4), "other": numbered(2)})
    counter = _Counter(0)
    storage.load(folder, {"counter": counter, "other": torch.zeros(2)})
    c.true("value", counter.count == 4, counter.count)
    c.equal("tensor", counter.weights, numbered(3, seed=4))


# ---- sharded tensors of any kind


def chunked(c, whole, dim):
    """A ShardedTensor whose i-th chunk is rank i's."""
    spec = ChunkShardingSpec(dim=dim, placements=[f"rank:{r}/cpu" for r in range(c.world)])
    result = sharded_tensor.zeros(spec, *whole.shape)
    for shard in result.local_shards():
        box = tuple(slice(o, o + s) for o, s in zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes))
        shard.tensor.copy_(whole[box])
    return result


def listed(c, whole, cuts):
    """A ShardedTensor cut into rows at these places, dealt to the ranks in turn from the last."""
    shards = []
    for i, (begin, end) in enumerate(zip([0, *cuts], [*cuts, whole.shape[0]])):
        rank = c.world - 1 - i % c.world
        shards.append(ShardMetadata([begin, 0], [end - begin, whole.shape[1]], placement=f"rank:{rank}/cpu"))
    result = sharded_tensor.zeros(EnumerableShardingSpec(shards), *whole.shape)
    for shard in result.local_shards():
        begin, size = shard.metadata.shard_offsets[0], shard.metadata.shard_sizes[0]
        shard.tensor.copy_(whole[begin : begin + size])
    return result


def equal_shards(c, what, got, whole):
    for shard in got.local_shards():
        box = tuple(slice(o, o + s) for o, s in zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes))
        c.equal(f"{what} {shard.metadata.shard_offsets}", shard.tensor, whole[box])


@case
def sharded_tensors(c, storage, folder):
    whole = numbered(12, 8)
    makers = [
        lambda t: chunked(c, t, 0),
        lambda t: chunked(c, t, 1),
        lambda t: listed(c, t, [3, 4, 9]),
        lambda t: listed(c, t, [1, 2, 3, 5, 11]),
    ]
    for i, saved in enumerate(makers):
        path = os.path.join(folder, str(i))
        storage.save(path, {"w": saved(whole)})
        for j, wanted in enumerate(makers):
            got = storage.load(path, {"w": wanted(torch.zeros(12, 8))})
            equal_shards(c, f"{i} -> {j}", got["w"], whole)
        c.equal(f"{i} -> tensor", storage.load(path, {"w": torch.zeros(12, 8)})["w"], whole)
    path = os.path.join(folder, "tensor")
    storage.save(path, {"w": whole})
    equal_shards(c, "tensor -> sharded", storage.load(path, {"w": makers[2](torch.zeros(12, 8))})["w"], whole)


def dtensor_layouts():
    one = init_device_mesh("cpu", (4,), mesh_dim_names=("x",))
    two = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    return [
        (one, [Shard(0)]),
        (one, [Shard(1)]),
        (one, [Replicate()]),
        (two, [Shard(0), Shard(1)]),
        (two, [Shard(1), Shard(0)]),
        (two, [Replicate(), Shard(1)]),
        (two, [Shard(0), Shard(0)]),
        (two, [Replicate(), Replicate()]),
    ]


@case
def dtensors(c, storage, folder):
    layouts = dtensor_layouts()
    wholes = {"even": numbered(8, 12), "uneven": numbered(5, 7, seed=1), "few": numbered(2, 3, seed=2)}
    for i, (mesh, placements) in enumerate(layouts):
        path = os.path.join(folder, str(i))
        storage.save(path, {k: distribute_tensor(v, mesh, placements) for k, v in wholes.items()})
        for j, (other, wanted) in enumerate(layouts):
            got = {k: distribute_tensor(torch.zeros_like(v), other, wanted) for k, v in wholes.items()}
            storage.load(path, got)
            for name, value in got.items():
                mine = distribute_tensor(wholes[name], other, wanted).to_local()
                c.equal(f"{i} -> {j}, {name}", value.to_local(), mine)


@case
def meshes_of_some_ranks(c, storage, folder):
    whole = numbered(6, 4)
    few = DeviceMesh("cpu", [0, 1])
    dist.barrier()
    all_ = init_device_mesh("cpu", (4,))
    storage.save(os.path.join(folder, "few"), {"w": distribute_tensor(whole, few, [Shard(0)])})
    got = storage.load(os.path.join(folder, "few"), {"w": distribute_tensor(torch.zeros(6, 4), all_, [Shard(1)])})
    c.equal("2 -> 4", got["w"].to_local(), distribute_tensor(whole, all_, [Shard(1)]).to_local())
    storage.save(os.path.join(folder, "all"), {"w": distribute_tensor(whole, all_, [Shard(0)])})
    got = storage.load(os.path.join(folder, "all"), {"w": distribute_tensor(torch.zeros(6, 4), few, [Shard(0)])})
    if c.rank < 2:
        c.equal("4 -> 2", got["w"].to_local(), whole[3 * c.rank : 3 * c.rank + 3])


def trained(mesh, split):
    """A model under FSDP2, with `split` also tensor-parallel, and its optimizer after a step."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    if split:
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    else:
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(numbered(2, 8) / 10).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def flat_fulls(model, optimizer):
    options = StateDictOptions(full_state_dict=True, flatten_optimizer_state_dict=True)
    weights, state = get_state_dict(model, optimizer, options=options)
    return {k: v for part in (weights, state) for k, v in part.items() if isinstance(v, torch.Tensor)}


@case
def fsdp_and_optimizers(c, storage, folder):
    meshes = [
        (init_device_mesh("cpu", (4,)), False),
        (init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")), True),
    ]
    for i, (mesh, split) in enumerate(meshes):
        model, optimizer = trained(mesh, split)
        wanted = flat_fulls(model, optimizer)
        for flat in (False, True):
            options = StateDictOptions(flatten_optimizer_state_dict=flat)
            path = os.path.join(folder, f"{i}{flat}")
            weights, state = get_state_dict(model, optimizer, options=options)
            storage.save(path, {"model": weights, "optim": state})
            for other, other_split in meshes:
                into, into_optimizer = trained(other, other_split)
                for parameter in into.parameters():
                    parameter.detach().to_local().zero_()
                weights, state = get_state_dict(into, into_optimizer, options=options)
                got = {"model": weights, "optim": state}
                storage.load(path, got)
                set_state_dict(into, into_optimizer, model_state_dict=got["model"], optim_state_dict=got["optim"], options=options)
                equal_tensors(c, f"{split} -> {other_split}, flat {flat}", flat_fulls(into, into_optimizer), wanted)


def trained_flat(mesh):
    """A model under the first FSDP, whose parts are ShardedTensors without a mesh and DTensors with one."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    model = FullyShardedDataParallel(model, device_mesh=mesh, device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(numbered(2, 8) / 10).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


@case
def first_fsdp_and_optimizers(c, storage, folder):
    for mesh in (None, init_device_mesh("cpu", (4,))):
        model, optimizer = trained_flat(mesh)
        wanted = flat_fulls(model, optimizer)
        path = os.path.join(folder, "with" if mesh else "without")
        weights, state = get_state_dict(model, optimizer)
        storage.save(path, {"model": weights, "optim": state})
        into, into_optimizer = trained_flat(mesh)
        with torch.no_grad():
            for parameter in into.parameters():
                parameter.zero_()
        weights, state = get_state_dict(into, into_optimizer)
        got = storage.load(path, {"model": weights, "optim": state})
        set_state_dict(into, into_optimizer, model_state_dict=got["model"], optim_state_dict=got["optim"])
        equal_tensors(c, path, flat_fulls(into, into_optimizer), wanted)
    # And what the second FSDP reads of the first one's.
    other, other_optimizer = trained(init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")), True)
    weights, state = get_state_dict(other, other_optimizer)
    got = storage.load(path, {"model": weights, "optim": state})
    set_state_dict(other, other_optimizer, model_state_dict=got["model"], optim_state_dict=got["optim"])
    equal_tensors(c, "into the second", flat_fulls(other, other_optimizer), wanted)


# ---- how it is called


@case
def again_and_again(c, storage, folder):
    for step in range(3):
        storage.save(folder, {"w": chunked(c, numbered(8, 2, seed=step), 0), "step": step})
        got = storage.load(folder, {"w": torch.zeros(8, 2), "step": None})
        c.equal(f"step {step}", got["w"], numbered(8, 2, seed=step))
        c.true(f"step {step}", got["step"] == step, got["step"])


@case
def cached_plans(c, storage, folder):
    for step in range(3):
        path = os.path.join(folder, str(step // 2))  # the last two into one
        planner = DefaultSavePlanner(enable_plan_caching=True)
        storage.save(path, {"w": chunked(c, numbered(8, 2, seed=step), 0)}, planner=planner)
        c.equal(f"step {step}", storage.load(path, {"w": torch.zeros(8, 2)})["w"], numbered(8, 2, seed=step))


@case
def behind(c, storage, folder):
    mesh = init_device_mesh("cpu", (4,))
    state = {"w": distribute_tensor(numbered(8, 3), mesh, [Shard(0)]), "step": 5}
    future = dcp.async_save(state, storage_writer=storage.writer(folder))
    state["w"].to_local().zero_()
    future.result()
    got = storage.load(folder, {"w": torch.zeros(8, 3), "step": 0})
    c.equal("as it was", got["w"], numbered(8, 3))


@case
def without_collectives(c, storage, folder):
    alone = os.path.join(folder, str(c.rank))
    storage.save(alone, {"w": numbered(4, seed=c.rank)}, no_dist=True)
    c.equal("alone", storage.load(alone, {"w": torch.zeros(4)}, no_dist=True)["w"], numbered(4, seed=c.rank))
    together = os.path.join(folder, "together")
    storage.save(together, {"w": chunked(c, numbered(8, 2), 0)}, use_collectives=False)
    dist.barrier()
    got = storage.load(together, {"w": chunked(c, torch.zeros(8, 2), 0)})
    equal_shards(c, "each its own", got["w"], numbered(8, 2))


@case
def some_ranks(c, storage, folder):
    pair = dist.new_group([1, 3])
    if c.rank in (1, 3):
        storage.save(folder, {"w": numbered(4), "x": [c.rank]}, process_group=pair)
        got = storage.load(folder, {"w": torch.zeros(4)}, process_group=pair)
        c.equal("loaded", got["w"], numbered(4))
    dist.barrier()


@case
def several_files(c, storage, folder):
    state = {f"t{i}": numbered(i + 1, 50, seed=i) for i in range(9)}
    storage.save(folder, {**state, "value": 1}, writer=storage.writer(folder, thread_count=3))
    equal_tensors(c, "all", storage.load(folder, {k: torch.zeros_like(v) for k, v in state.items()}), state)


@case
def by_name_of_the_checkpoint(c, storage, folder):
    writer, reader = storage.writer(folder), storage.reader(folder)
    for name in ("one", "two"):
        path = os.path.join(folder, name)
        dcp.save({"w": numbered(3, seed=len(name))}, checkpoint_id=path, storage_writer=writer)
        got = {"w": torch.zeros(3)}
        dcp.load(got, checkpoint_id=path, storage_reader=reader)
        c.equal(name, got["w"], numbered(3, seed=len(name)))


@case
def custom_planners(c, storage, folder):
    class Halved(DefaultSavePlanner):
        def transform_object(self, item, object_):
            object_ = super().transform_object(item, object_)
            return object_ if isinstance(object_, io.BytesIO) else object_ / 2

    class Doubled(DefaultLoadPlanner):
        def commit_tensor(self, item, tensor):
            tensor.mul_(4)

    storage.save(folder, {"w": numbered(6, 2)}, planner=Halved())
    got = storage.load(folder, {"w": torch.zeros(6, 2)}, planner=Doubled())
    c.equal("both", got["w"], numbered(6, 2) * 2)


@case
def nothing_there(c, storage, folder):
    kinds = (RuntimeError, OSError, AssertionError, dist.checkpoint.CheckpointException)
    c.raises("no checkpoint", lambda: storage.load(os.path.join(folder, "no"), {"w": torch.zeros(1)}), "", kind=kinds)
