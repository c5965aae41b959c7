"""What DTensor.redistribute receives and holds, by the collectives that it starts on a fake process group.

Tensors are fake, so nothing travels and no GPU is needed. All ranks receive the same here, so rank 0 is followed. Only
for pairs in mesh order, the only ones that placements express without a shard order.
"""

import contextlib
import functools
import logging
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DeviceMesh, DTensor, Placement, Replicate, Shard, init_device_mesh
from torch.distributed.tensor._redistribute import _gen_transform_infos, use_min_cost_redistribution_plan
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from layouts import AXES, DEVICES, SIZE, Layout, Moved, Pair

_SCALE = 128  # SIZE times this is 1024 (4 GiB in all): the min-cost planner should weigh bytes, not latencies

logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)  # hints to flatten the mesh


class _Collectives(TorchDispatchMode):
    """Adds up what the collectives of one redistribute receive."""

    def __init__(self) -> None:
        super().__init__()
        self.received = 0
        self.held = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        match func.namespace, func._opname:
            case "_c10d_functional", "all_gather_into_tensor":
                self.received += out.numel() - args[0].numel()
                self.held = max(self.held, out.numel())
            case "_dtensor", "shard_dim_alltoall":
                self.received += out.numel() // 2  # the axis is of size 2, and one half stays
                self.held = max(self.held, out.numel())
            case "_c10d_functional", "wait_tensor":
                pass
            case "_c10d_functional" | "c10d" | "_dtensor", _:
                raise ValueError(f"uncounted: {func}")
        return out


@functools.cache
def _mesh(device: str) -> DeviceMesh:
    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=DEVICES, store=FakeStore())
    return init_device_mesh(device, (2,) * len(AXES), mesh_dim_names=tuple(AXES))


def _placements(layout: Layout) -> list[Placement]:
    dims = {axis: dim for dim, axes in enumerate(layout.dims) for axis in axes}
    return [Shard(dims[axis]) if axis in dims else Replicate() for axis in AXES]


def measure(pairs: Sequence[Pair], device: str, min_cost: bool) -> list[Moved]:
    """Redistributes on a mesh of `device`: "cuda", or "cpu", where a shard moves by all-gather as Gloo has it."""
    mesh = _mesh(device)
    planner = use_min_cost_redistribution_plan() if min_cost else contextlib.nullcontext()
    _gen_transform_infos.cache_clear()  # it does not know which planner was asked
    unit = _SCALE ** len(pairs[0].source.dims)
    out = []
    # One host of 8 devices: the planner that minimizes time asks for their number.
    with FakeTensorMode(), planner, mock.patch.object(torch.get_device_module(device), "device_count", lambda: DEVICES):
        for pair in pairs:
            local = torch.empty([size * _SCALE for size in pair.source.local_shape], device=device)
            tensor = DTensor.from_local(local, mesh, _placements(pair.source), run_check=False)
            with _Collectives() as seen:
                end = tensor.redistribute(mesh, _placements(pair.target)).to_local()
            if tuple(end.shape) != tuple(size * _SCALE for size in pair.target.local_shape):
                raise ValueError(f"{pair}: DTensor ends at {tuple(end.shape)}")
            out.append(Moved(seen.received // unit, max(pair.larger_end, seen.held // unit)))
    return out
