#!/usr/bin/env python3
"""What layouts the placements of DTensors are read as, against PyTorch's own answers, without ranks: FSDP2 over tensor
parallelism for all small sizes and meshes, and the orders of mesh dimensions that split factors say."""

import itertools
import math
import subprocess
import unittest

import gloo
import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

RESHARD = gloo.LIBRARY.parent.parent / "bin/reshard"
LARGEST = 17  # rows
# Rows, dp and tp for which PyTorch 2.11 contradicts itself: compute_local_shape_and_global_offset splits the blocks of a
# strided shard anew, and these have an empty piece before one that is not. fully_shard and full_tensor have the order.
WRONG_IN_PYTORCH = {(7, 3, 2), (11, 3, 3), (13, 3, 2), (15, 3, 4)}


class FakeMesh:
    """All that PyTorch's conversions of shard orders ask of a mesh."""

    def __init__(self, *shape):
        self.shape = shape

    def size(self, mesh_dim):
        return self.shape[mesh_dim]

    def text(self):
        return "{" + ",".join(f"d{dim}:{size}" for dim, size in enumerate(self.shape)) + "}"

    def coordinates(self):
        return itertools.product(*map(range, self.shape))


def text_of(placements):
    return "".join(map(str, placements))


def layout_of(placements, mesh, rows):
    return torch.ops.reshard._layout_from_dtensor(text_of(placements), mesh.text(), [rows])


def held(layout, mesh):
    """The rows of each device, in the order of coordinates."""
    numbers = iter(torch.ops.reshard._shards(mesh.text(), layout))
    rows = {}
    for device in numbers:
        intervals = [(next(numbers), next(numbers)) for _ in range(next(numbers))]
        rows[device] = [row for begin, end in intervals for row in range(begin, end)]
    return [rows[device] for device in range(math.prod(mesh.shape))]


def chunk(rows, parts, index):
    """What torch.chunk and fully_shard give the index-th of so many ranks."""
    chunks = torch.tensor(rows).chunk(parts) if rows else ()
    return chunks[index].tolist() if index < len(chunks) else []


def in_order(rows, order, mesh, at):
    for mesh_dim in order:
        rows = chunk(rows, mesh.size(mesh_dim), at[mesh_dim])
    return rows


class PlacementsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        gloo.load_library()

    def assert_round_trip(self, layout, mesh, rows):
        """It is written as placements that are read as the same layout."""
        written = torch.ops.reshard._layout_to_dtensor(layout, mesh.text(), [rows])
        back = torch.ops.reshard._layout_from_dtensor(written, mesh.text(), [rows])
        self.assertEqual(held(back, mesh), held(layout, mesh), f"{layout} as {written}")

    def has_offsets(self, ours, placements, mesh, rows):
        """Whether they are those of compute_local_shape_and_global_offset."""
        same = True
        for mine, at in zip(ours, mesh.coordinates()):
            (size,), (offset,) = _compute_local_shape_and_global_offset((rows,), mesh.shape, list(at), placements)
            same = same and size == len(mine) and (size == 0 or offset == mine[0])
        return same

    def test_fsdp_over_tp(self):
        wrong = set()
        for rows, dp, tp in itertools.product(range(LARGEST + 1), (1, 2, 3), (1, 2, 3, 4)):
            mesh = FakeMesh(dp, tp)
            placements = (_StridedShard(0, split_factor=tp) if tp > 1 else Shard(0), Shard(0))
            layout = layout_of(placements, mesh, rows)
            ours = held(layout, mesh)
            wanted = [in_order(list(range(rows)), (1, 0) if tp > 1 else (0, 1), mesh, at) for at in mesh.coordinates()]
            self.assertEqual(ours, wanted, f"{rows} rows on {mesh.text()}: {layout}")
            self.assert_round_trip(layout, mesh, rows)
            if not self.has_offsets(ours, placements, mesh, rows):
                wrong.add((rows, dp, tp))
        self.assertEqual(wrong, WRONG_IN_PYTORCH)

    def test_hsdp_over_tp(self):
        mesh = FakeMesh(2, 2, 2)
        placements = (Replicate(), _StridedShard(0, split_factor=2), Shard(0))
        for rows in range(LARGEST + 1):
            layout = layout_of(placements, mesh, rows)
            ours = held(layout, mesh)
            wanted = [in_order(list(range(rows)), (2, 1), mesh, at) for at in mesh.coordinates()]
            self.assertEqual(ours, wanted, layout)
            self.assertTrue(self.has_offsets(ours, placements, mesh, rows), layout)
            self.assert_round_trip(layout, mesh, rows)

    def test_all_orders_as_split_factors(self):
        """PyTorch writes each order of three mesh dimensions as strided shards, and reads them as that order."""
        for shape in ((2, 3, 2), (2, 2, 3), (4, 1, 2), (3, 2, 1)):
            mesh = FakeMesh(*shape)
            for order, rows in itertools.product(itertools.permutations(range(3)), (0, 1, 7, 11, 13, 24)):
                entry = (ShardOrderEntry(0, order),)
                placements = DTensorSpec._convert_shard_order_to_StridedShard(entry, (Shard(0),) * 3, mesh)
                self.assertIsNotNone(DTensorSpec._maybe_convert_StridedShard_to_shard_order(placements, mesh))
                layout = layout_of(placements, mesh, rows)
                wanted = [in_order(list(range(rows)), order, mesh, at) for at in mesh.coordinates()]
                self.assertEqual(held(layout, mesh), wanted, f"{placements} of {rows} rows on {mesh.text()}: {layout}")
                self.assert_round_trip(layout, mesh, rows)

    def test_factors_that_say_no_order(self):
        """Where PyTorch finds no order, what is read is what compute_local_shape_and_global_offset gives, or refused."""
        read = 0
        mesh = FakeMesh(2, 3)
        factors = itertools.product((1, 2, 3, 4, 6), repeat=2)
        for (first, second), rows in itertools.product(factors, (5, 12, 17, 24, 36)):
            placements = (_StridedShard(0, split_factor=first), _StridedShard(0, split_factor=second))
            if DTensorSpec._maybe_convert_StridedShard_to_shard_order(placements, mesh) is not None:
                continue
            try:
                layout = layout_of(placements, mesh, rows)
            except NotImplementedError as error:
                self.assertIn("_StridedShard(dim=0, sf=", str(error))
                self.assertIn("over mesh axis d1", str(error))
                continue
            self.assertTrue(self.has_offsets(held(layout, mesh), placements, mesh, rows), f"{placements} of {rows}")
            read += 1
        self.assertGreater(read, 10)

    def test_the_command(self):
        lines = subprocess.run(
            [RESHARD, "plan", "{dp:2,tp:2}", "(_StridedShard(dim=0, sf=2), Shard(dim=0))", "[10, 4]"]
            + ["--shape", "10,4", "--from-format", "dtensor"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        self.assertIn("[3<tp,dp>10, 4]", lines)

    def test_python_plans(self):
        import reshard

        plan = reshard.plan(
            "{dp:2,tp:2}", "_S(0, 2)S(0)", "[<tp,dp>, ...]", shape=[10, 4], source_format="dtensor", target_format="reshard"
        )
        self.assertIn("[3<tp,dp>10, 4]", str(plan))
        self.assertEqual(reshard.show("{dp:3,tp:2}", "_S(0, 2)S(0)", format="dtensor", shape=[16]).layout, "[3<tp,dp>16]")

    def test_layouts_as_values(self):
        import reshard
        import torch.distributed as dist
        from torch.distributed.tensor import DTensor, Partial, init_device_mesh
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=0, world_size=6, store=FakeStore())
        self.addCleanup(dist.destroy_process_group)
        mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("dp", "tp"))
        for placements, order, text in (
            ([Shard(0), Shard(1)], None, "[<dp>7, <tp>4]"),
            ([Shard(0), Shard(0)], None, "[<dp,tp>7, 4]"),
            ([Shard(0), Shard(0)], ((0, (1, 0)),), "[<tp,dp>7, 4]"),
            ([_StridedShard(0, split_factor=2), Shard(0)], None, "[<tp,dp>7, 4]"),
            ([Replicate(), Partial()], None, "[7, 4] sum<tp>"),
        ):
            layout = reshard.Layout.from_placements(mesh, placements, (7, 4), order)
            self.assertEqual(layout, reshard.Layout("{dp:3,tp:2}", text))
            self.assertEqual(reshard.Layout.from_placements(mesh, *_twice(layout.to_placements(mesh), (7, 4))), layout)
        x = DTensor.from_local(torch.zeros(3, 2), mesh, [Shard(0), Shard(1)], shape=(7, 4), stride=(4, 1))
        self.assertEqual(reshard.Layout.of(x), reshard.Layout("{dp:3,tp:2}", "[<dp>7, <tp>4]"))
        for mesh_text, text, error in (("{tp:2,dp:3}", "[<tp>7]", ValueError), ("{dp:3,tp:2}", "[<2,~dp>12]", NotImplementedError)):
            with self.assertRaises(error):
                reshard.Layout(mesh_text, text).to_placements(mesh)
        with self.assertRaises(TypeError):
            reshard.Layout.of(torch.zeros(3))


def _twice(placements_and_order, shape):
    """As from_placements takes them."""
    placements, order = placements_and_order
    return placements, shape, order


if __name__ == "__main__":
    unittest.main()
