#!/usr/bin/env python3
"""reshard.dcp in torch.distributed.checkpoint, on Gloo ranks.

Every case of dcp_cases.py with our writer and reader, and with one of ours and one of PyTorch's; then what only ours do.
With --table: also with both of PyTorch's; a line for each case and pair, passed or failed and why.
"""

import os
import pathlib
import pickle
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta

import dcp_cases
import gloo
from checks import ChecksTest, main
from dcp_cases import Storage, chunked, equal_shards, numbered
from shared_folder import remove, shared_folder

PAIRS = [Storage("torch", "torch"), Storage("reshard", "torch"), Storage("torch", "reshard"), Storage("reshard", "reshard")]
WITH_OURS = PAIRS[1:]


def in_folder(c, function):
    folder = shared_folder(c)
    try:
        function(folder)
    finally:
        remove(c, folder)


def run_case(c, function, storage):
    """Its failures, as texts."""
    before = len(c.failures)

    def run(folder):
        try:
            function(c, storage, folder)
        except Exception:
            c.fail(f"{function.__name__}, {storage}", traceback.format_exc())

    in_folder(c, run)
    return [text for _, text in c.failures[before:]]


def check_cases(c):
    for function in dcp_cases.CASES:
        for storage in WITH_OURS:
            run_case(c, function, storage)


# ---- what only ours do


def one_file_of_each_save(c, folder):
    import reshard

    path = os.path.join(folder, "x")
    if c.rank == 0:
        os.makedirs(path)
        pathlib.Path(path, "common.pt").write_text("theirs")
    dist.barrier()
    for step in range(2):
        dcp.save({"w": chunked(c, numbered(8, 2, seed=step), 0)}, storage_writer=reshard.dcp.StorageWriter(path))
    dist.barrier()
    names = sorted(os.listdir(path))
    c.true("files", len(names) == 7 and {"common.pt", ".metadata", "reshard.json"} < set(names), names)
    refusing = reshard.dcp.StorageWriter(path, overwrite=False)
    c.raises("refused", lambda: dcp.save({"w": numbered(2)}, storage_writer=refusing), "overwrite", kind=CheckpointException)
    checked = reshard.verify(path, path)
    c.true("verified", checked.equal, checked)


def a_rank_that_fails(c, folder):
    """While it writes: the old checkpoint stays, and every rank hears of it."""
    import reshard
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    class Failing(DefaultSavePlanner):
        def resolve_data(self, item):
            if c.rank == 2:
                raise OSError("no space left on the test")
            return super().resolve_data(item)

    writer = lambda: reshard.dcp.StorageWriter(folder)
    dcp.save({"w": chunked(c, numbered(8, 2), 0)}, storage_writer=writer())
    state = {"w": chunked(c, numbered(8, 2, seed=1), 0)}
    c.raises("failed", lambda: dcp.save(state, storage_writer=writer(), planner=Failing()), "no space", kind=CheckpointException)
    got = {"w": chunked(c, torch.zeros(8, 2), 0)}
    dcp.load(got, storage_reader=reshard.dcp.StorageReader(folder))
    equal_shards(c, "the old one", got["w"], numbered(8, 2))
    dcp.save(state, storage_writer=writer())
    dcp.load(got, storage_reader=reshard.dcp.StorageReader(folder))
    equal_shards(c, "the next one", got["w"], numbered(8, 2, seed=1))


class _Runs:
    def __reduce__(self):
        return (os.mkdir, (os.environ["RESHARD_DCP_TEST_MARK"],))


class _Config:
    pass


def nothing_is_run(c, folder):
    import reshard

    mark = os.path.join(folder, "mark")
    os.environ["RESHARD_DCP_TEST_MARK"] = mark
    path = os.path.join(folder, "x")
    dcp.save({"w": numbered(3), "value": _Config()}, checkpoint_id=path)
    read = lambda state, **options: dcp.load(state, storage_reader=reshard.dcp.StorageReader(path, **options))
    c.raises("a class", lambda: read({"w": torch.zeros(3), "value": None}), "add_safe_globals", kind=CheckpointException)
    state = {"w": torch.zeros(3), "value": None}
    read(state, weights_only=False)
    c.true("allowed", isinstance(state["value"], _Config), state)
    dist.barrier()
    if c.rank == 0:
        metadata = pathlib.Path(path, ".metadata")
        data = pickle.loads(metadata.read_bytes())
        data.more = _Runs()
        metadata.write_bytes(pickle.dumps(data))
        os.path.isdir(mark) and os.rmdir(mark)
    dist.barrier()
    # A call in the metadata is a value that nobody asks for.
    state = {"w": torch.zeros(3)}
    read(state)
    c.equal("beside metadata that runs", state["w"], numbered(3))
    c.true("not run", not os.path.exists(mark))


def damage_is_named(c, folder):
    import reshard

    path = os.path.join(folder, "x")
    dcp.save({"w": numbered(1000)}, storage_writer=reshard.dcp.StorageWriter(path))
    dist.barrier()
    if c.rank == 0:
        name = next(n for n in os.listdir(path) if n.endswith(".distcp"))
        with open(os.path.join(path, name), "r+b") as file:
            data = file.read()
            file.seek(data.index(numbered(1000).numpy().tobytes()[400:800]))
            file.write(b"\xff")
    dist.barrier()
    reader = reshard.dcp.StorageReader(path)
    c.raises("damaged", lambda: dcp.load({"w": torch.zeros(1000)}, storage_reader=reader), '"w"', kind=CheckpointException)


def other_formats(c, folder):
    import reshard

    path = os.path.join(folder, "model.pt")
    if c.rank == 0:
        torch.save({"layers": [{"w": numbered(6, 4)}], "step": 3}, path)
    dist.barrier()
    mesh = init_device_mesh("cpu", (4,))
    state = {"layers": [{"w": distribute_tensor(torch.zeros(6, 4), mesh, [Shard(0)])}], "step": 0}
    dcp.load(state, storage_reader=reshard.dcp.StorageReader(path))
    c.equal("tensor", state["layers"][0]["w"].to_local(), distribute_tensor(numbered(6, 4), mesh, [Shard(0)]).to_local())
    c.true("value", state["step"] == 3, state["step"])


def reasons_survive(c, folder):
    import reshard

    reader = reshard.dcp.StorageReader(os.path.join(folder, "nowhere"))
    for planner in (None, reshard.dcp.LoadPlanner()):
        load = lambda: dcp.load({"w": torch.zeros(1)}, storage_reader=reader, planner=planner)
        c.raises(f"{planner}", load, "nowhere", kind=CheckpointException)
    c.raises("by itself", lambda: reader.read_metadata().planner_data, "nowhere", kind=FileNotFoundError)


def ordered(c, whole, fill=True):
    """Rows over b then a, which torch.distributed.checkpoint cannot express."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    a, b = mesh.get_coordinate()
    part = b * 2 + a
    rows = whole.shape[0] // 4
    local = whole[part * rows : (part + 1) * rows].clone()
    meta = TensorMeta(whole.shape, whole.stride(), whole.dtype)
    spec = DTensorSpec(mesh, (Shard(0), Shard(0)), tensor_meta=meta, shard_order=(ShardOrderEntry(0, (1, 0)),))
    return DTensor(local if fill else torch.zeros_like(local), spec, requires_grad=False), local


def the_planner(c, folder):
    import reshard

    path = os.path.join(folder, "x")
    whole = numbered(1024, 32)
    dcp.save({"q": whole, "k": whole + 0.5, "old": whole, "step": 3}, storage_writer=reshard.dcp.StorageWriter(path))
    got, local = ordered(c, whole, fill=False)
    planner = reshard.dcp.LoadPlanner()
    state = {"q": got, "step": 0}
    dcp.load(state, storage_reader=reshard.dcp.StorageReader(path), planner=planner)
    c.equal("shard order", state["q"]._local_tensor, local)
    c.true("value", state["step"] == 3, state["step"])
    c.true("unexpected", planner.report["unexpected"] == ["k", "old"], planner.report)
    # Replicas: read once, then sent.
    state = {"q": torch.zeros(1024, 32)}
    dcp.load(state, storage_reader=reshard.dcp.StorageReader(path, check=False), planner=planner)
    read = torch.tensor([planner.report["read_bytes"]])
    dist.all_reduce(read)
    c.equal("replicas", state["q"], whole)
    c.true("read once", read.item() < 1.3 * whole.nbytes, read.item())
    recipe = {
        "schema": "reshard.recipe/1",
        "tensors": [{"to": "qk", "from": {"concatenate": ["q", "k"], "dim": 0}}],
        "keep": ["*"],
    }
    mesh = init_device_mesh("cpu", (4,))
    for planner in (reshard.dcp.LoadPlanner(cast=True), None):
        target = distribute_tensor(torch.zeros(2048, 32, dtype=torch.bfloat16), mesh, [Shard(1)])
        state = {"qk": target, "old": torch.zeros(1024, 32)}
        dcp.load(state, storage_reader=reshard.dcp.StorageReader(path, recipe=recipe), planner=planner)
        wanted = torch.cat([whole, whole + 0.5]).bfloat16()[:, 8 * c.rank : 8 * c.rank + 8]
        c.equal(f"fused and cast, {planner}", state["qk"].to_local(), wanted)
    c.raises("missing", lambda: dcp.load(
        {"v": torch.zeros(1)}, storage_reader=reshard.dcp.StorageReader(path), planner=reshard.dcp.LoadPlanner()
    ), '"v"', kind=CheckpointException)
    planner = reshard.dcp.LoadPlanner(strict=False)
    state = {"q": torch.zeros(1024, 32), "v": torch.ones(2), "z": 4}
    dcp.load(state, storage_reader=reshard.dcp.StorageReader(path), planner=planner)
    c.equal("what is there", state["q"], whole)
    c.equal("what is not", state["v"], torch.ones(2))
    c.true("missing", planner.report["missing"] == ["v", "z"] and state["z"] == 4, planner.report)
    c.raises("with another reader", lambda: dcp.load(
        {"q": torch.zeros(1024, 32)}, storage_reader=dcp.FileSystemReader(path), planner=reshard.dcp.LoadPlanner()
    ), "needs reshard.dcp.StorageReader", kind=CheckpointException)


def in_pieces(c, folder):
    """What goes through other memory, in pieces of a few elements: strides and dtypes as devices would have it."""
    import reshard.dcp.reader
    import reshard.dcp.writer

    before = reshard.dcp.reader.PIECE_BYTES
    reshard.dcp.reader.PIECE_BYTES = reshard.dcp.writer.PIECE_BYTES = 40
    try:
        whole = numbered(7, 5, 6)
        views = {"moved": whole.permute(2, 0, 1), "steps": whole[::2, 1:, ::3], "row": numbered(1, 1, 30)[..., ::1].expand(2, 1, 30)}
        dcp.save(views, storage_writer=reshard.dcp.StorageWriter(folder))
        for dtype in (torch.float32, torch.float64):
            got = {name: torch.zeros(view.shape, dtype=dtype) for name, view in views.items()}
            got["moved"] = torch.zeros(7, 5, 6, dtype=dtype).permute(2, 0, 1)
            dcp.load(got, storage_reader=reshard.dcp.StorageReader(folder))
            for name, view in views.items():
                c.equal(f"{name}, {dtype}", got[name].contiguous(), view.contiguous().to(dtype))
    finally:
        reshard.dcp.reader.PIECE_BYTES = reshard.dcp.writer.PIECE_BYTES = before


OURS = [in_pieces, one_file_of_each_save, a_rank_that_fails, nothing_is_run, damage_is_named, other_formats, reasons_survive, the_planner]


def check_ours(c):
    for function in OURS:
        in_folder(c, lambda folder: c.run(function.__name__, lambda: function(c, folder)))


class DcpTest(ChecksTest):
    def test_cases(self):
        self.on_ranks(4, [check_cases, check_ours], timeout=150)


def table(rank, world):
    from checks import Checks

    c = Checks(rank, world)
    lines = []
    for function in dcp_cases.CASES:
        for storage in PAIRS:
            failed = [None] * world
            dist.all_gather_object(failed, run_case(c, function, storage))
            why = next((texts[0] for texts in failed if texts), "")
            lines.append(f"{function.__name__:32} {str(storage):20} {'failed: ' + why if why else 'passed'}")
    return lines


if __name__ == "__main__":
    gloo.load_library()
    if sys.argv[1:] == ["--table"]:
        print(*gloo.values(gloo.run_ranks(4, table, timeout=300))[0], sep="\n")
    else:
        main("dcp_gloo_test")
