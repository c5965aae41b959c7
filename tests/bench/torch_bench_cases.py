"""What torch_bench.py times: for each case a problem, and contenders that all solve it.

A contender is a function without arguments that makes its result anew; contenders(rank, mode) runs in every process,
and checks that the results agree before anything is timed.
"""
import dataclasses
import functools
import logging

import reshard.torch
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)  # on its own chains of collectives

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()
# name: (placements of the source, of the target)
ROWS = {
    "S0->S1": ((S0,), (S1,)),
    "S0->R": ((S0,), (R,)),
    "R->S0": ((R,), (S0,)),
    "P->S0": ((P,), (S0,)),
    "(S0,S1)->(S1,S0)": ((S0, S1), (S1, S0)),
    "(R,S0)->(S1,S1)": ((R, S0), (S1, S1)),
    "(S0,R)->(R,S0)": ((S0, R), (R, S0)),
}
AXES = ("X", "Y")


@functools.lru_cache(maxsize=None)
def _mesh(shape):
    return init_device_mesh("cpu", shape, mesh_dim_names=AXES[:len(shape)])


def _mesh_text(shape):
    return "{" + ",".join(f"{axis}:{size}" for axis, size in zip(AXES, shape)) + "}"


def _layout_text(shape, placements):
    dims = []
    for dim, size in enumerate(shape):
        axes = [axis for axis, placement in zip(AXES, placements) if placement == Shard(dim)]
        dims.append(f"<{','.join(axes)}>{size}" if axes else str(size))
    partial = [axis for axis, placement in zip(AXES, placements) if placement.is_partial()]
    return f"[{', '.join(dims)}]" + (f" sum<{','.join(partial)}>" if partial else "")


def _shards(mesh_shape, placements):
    count = 1
    for size, placement in zip(mesh_shape, placements):
        count *= size if placement.is_shard() else 1
    return count


def _square(elements):
    """A power of two as rows x columns, about as many of each."""
    rows = 1 << ((elements.bit_length() - 1) // 2)
    return rows, elements // rows


def _record(size=64):
    """One 64-byte all-gather, the most that agreement may cost."""
    mine = torch.zeros(size, dtype=torch.uint8)
    return lambda: dist.all_gather_into_tensor(torch.empty(size * dist.get_world_size(), dtype=torch.uint8), mine)


def _hand(local):
    """S0 -> S1 as one writes it by hand: pack, all_to_all_single. Rows arrive in order: nothing to unpack."""
    ranks = dist.get_world_size()
    rows, columns = local.shape

    def run():
        packed = local.view(rows, ranks, columns // ranks).transpose(0, 1).contiguous()
        out = torch.empty_like(packed)
        dist.all_to_all_single(out, packed)
        return out.view(ranks * rows, columns // ranks)

    return run


def _must_agree(results):
    (first, wanted), *others = results.items()
    for name, result in others:
        if not torch.equal(result, wanted):
            raise AssertionError(f"{first} and {name} differ")


@dataclasses.dataclass(frozen=True)
class Redistribution:
    row: str
    mesh_shape: tuple
    shape: tuple

    @property
    def mesh(self):
        return _mesh_text(self.mesh_shape)

    @property
    def source(self):
        return _layout_text(self.shape, ROWS[self.row][0])

    @property
    def target(self):
        return _layout_text(self.shape, ROWS[self.row][1])

    @property
    def moves(self):
        return self.row != "R->S0"

    def contenders(self, rank, mode):
        mesh = _mesh(self.mesh_shape)
        source, target = ROWS[self.row]
        whole = torch.arange(self.shape[0] * self.shape[1], dtype=torch.float32).reshape(self.shape)
        x = DTensor.from_local(whole.remainder_(1021), mesh, [R] * mesh.ndim)  # sums stay exact
        x = x.redistribute(mesh, [R if p.is_partial() else p for p in source])
        x = DTensor.from_local(x.to_local().clone(), mesh, source)
        local, name, texts = x.to_local(), dist.group.WORLD.group_name, (self.mesh, self.source, self.target)
        contenders = {"reshard": lambda: torch.ops.reshard.redistribute(local, *texts, name)}
        contenders["DTensor"] = lambda: x.redistribute(mesh, target).to_local()
        if self.row == "S0->S1":
            contenders["by hand"] = _hand(local)
        _must_agree({name: contender() for name, contender in contenders.items()})
        if mode == "default":
            return {"reshard": contenders["reshard"], "64-byte all-gather": _record()}
        return contenders


def redistribution(row, ranks, size):
    """The case whose sharded tile has `size` bytes; None where the row needs another number of ranks."""
    source, target = ROWS[row]
    mesh_shape = (ranks,) if len(source) == 1 else (2, ranks // 2)
    if len(source) == 2 and ranks != 4:
        return None
    shards = max(_shards(mesh_shape, source), _shards(mesh_shape, target))
    return Redistribution(row, mesh_shape, _square(size // 4 * shards))


@dataclasses.dataclass(frozen=True)
class Zigzag:
    ranks: int
    size: int

    def contenders(self, rank, mode):
        ranks = self.ranks
        length = 1 << ((self.size // 4).bit_length() // 2)
        channels = self.size // 4 // length
        x = torch.arange(self.size // 4, dtype=torch.float32).view(1, channels, length) + rank
        group = dist.group.WORLD.group_name
        order = [chunk for i in range(ranks) for chunk in (i, 2 * ranks - 1 - i)]
        inverse = torch.tensor(sorted(range(2 * ranks), key=order.__getitem__))

        def three_copies():
            # What the known implementations do: pack, all_to_all_single, rearrange, reorder the chunks.
            packed = x.view(1, ranks, channels // ranks, length).transpose(0, 1).contiguous()
            out = torch.empty_like(packed)
            dist.all_to_all_single(out, packed)
            full = out.permute(1, 2, 0, 3).contiguous().view(1, channels // ranks, 2 * ranks, length // 2)
            return full.index_select(2, inverse).view(1, channels // ranks, ranks * length)

        contenders = {"reshard": lambda: torch.ops.reshard.all_to_all_single(x, group, "split_to_full", True),
                      "three copies": three_copies}
        _must_agree({name: contender() for name, contender in contenders.items()})
        return {"reshard": contenders["reshard"]} if mode == "default" else contenders


def zigzag(ranks, size):
    return Zigzag(ranks, size)


@dataclasses.dataclass(frozen=True)
class Overhead:
    ranks: int

    def contenders(self, rank, mode):
        shape = (32 * self.ranks, 32)  # 4 KiB a rank
        local = torch.ones(32, 32)
        mesh, source, target = _mesh_text((self.ranks,)), _layout_text(shape, (S0,)), _layout_text(shape, (S1,))
        group = dist.group.WORLD.group_name
        packed = torch.ones(1024)
        return {
            "reshard": lambda: torch.ops.reshard.redistribute(local, mesh, source, target, group),
            "bare collective": lambda: dist.all_to_all_single(torch.empty(1024), packed),
            "64-byte all-gather": _record(),
        }


def overhead(ranks):
    return Overhead(ranks)


@dataclasses.dataclass(frozen=True)
class Batch:
    ranks: int
    count: int = 1000

    def contenders(self, rank, mode):
        mesh, group = _mesh_text((self.ranks,)), dist.group.WORLD.group_name
        shape, flat_shape = (32 * self.ranks, 32), (32 * self.ranks, 32 * self.count)
        locals_ = [torch.full((32, 32), float(i)) for i in range(self.count)]
        sources = [_layout_text(shape, (S0,))] * self.count
        targets = [_layout_text(shape, (S1,))] * self.count
        outs = [torch.empty(32 * self.ranks, 32 // self.ranks) for _ in range(self.count)]
        bound = reshard.bind(locals_, outs, mesh, sources, targets, group)
        flat = torch.ones(32, 32 * self.count)
        flat_texts = (mesh, _layout_text(flat_shape, (S0,)), _layout_text(flat_shape, (S1,)))
        return {
            "reshard": lambda: torch.ops.reshard.redistribute_batch(locals_, mesh, sources, targets, group),
            "bound": bound.run,
            "PyTorch negates a list": lambda: torch._foreach_neg(locals_),
            "one flat tensor": lambda: torch.ops.reshard.redistribute(flat, *flat_texts, group),
            "bare collective": lambda: dist.all_to_all_single(torch.empty_like(flat), flat),
        }


def batch(ranks):
    return Batch(ranks)
