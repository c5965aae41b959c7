#!/usr/bin/env python3
"""What `reshard convert --to orbax` writes, restored by orbax-checkpoint into JAX on eight devices.

usage: orbax_test.py COMMAND PACKAGES [TEST...]

COMMAND is the command reshard, PACKAGES the folder with the Python package.
"""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

COMMAND, PACKAGES = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
sys.path.insert(0, PACKAGES)
FIXTURES = pathlib.Path(__file__).parent.parent / "checkpoint" / "fixtures"
os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}

import jax  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import reshard  # noqa: E402
from arrays import Arrays  # noqa: E402
from reshard.sources.orbax import OrbaxSource  # noqa: E402


RNG = np.random.default_rng(7)
ARRAYS = {
    "params.decoder.layers.mlp.wi_0.kernel": RNG.standard_normal((64, 6, 48), dtype=np.float32),
    "params.decoder.norm.scale": RNG.standard_normal(64).astype(ml_dtypes.bfloat16),
    "params.head.kernel": RNG.standard_normal((131, 8)).astype(np.float16),  # 131 rows have no divisor
    "quantized": RNG.standard_normal((16, 8)).astype(ml_dtypes.float8_e4m3fn),
    "opt.count": np.array(1 << 40),
    "opt.mask": np.array([True, False]),
    "empty": np.zeros((0, 4), np.float32),
}
# By name: over a mesh {x:4, y:2}.
SPECS = {
    "params.decoder.layers.mlp.wi_0.kernel": PartitionSpec("y", None, "x"),
    "params.decoder.norm.scale": PartitionSpec(("y", "x")),
    "params.head.kernel": PartitionSpec(None, "y"),
    "quantized": PartitionSpec("x", "y"),
}


def tree_of(flat):
    tree = {}
    for name, value in flat.items():
        *parents, last = name.split(".")
        at = tree
        for key in parents:
            at = at.setdefault(key, {})
        at[last] = value
    return tree


def flat_of(tree):
    return {".".join(str(key.key) for key in path): value for path, value in jax.tree_util.tree_flatten_with_path(tree)[0]}


def targets():
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    return tree_of({
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=NamedSharding(mesh, SPECS.get(name, PartitionSpec())))
        for name, array in ARRAYS.items()
    })  # fmt: skip


class OrbaxTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.scratch)

    def check_is(self, restored, arrays):
        flat = flat_of(restored)
        self.assertEqual(sorted(flat), sorted(arrays))
        for name, array in arrays.items():
            got = np.asarray(flat[name])
            self.assertEqual((got.dtype, got.shape), (array.dtype, array.shape), name)
            self.assertEqual(got.tobytes(), np.ascontiguousarray(array).tobytes(), name)
        return flat

    def test_restored_as_arrays_and_into_shardings(self):
        for number, terms in enumerate([{}, {"file_size": 3000}]):
            path = self.scratch / f"step-{number}"
            reshard.convert(Arrays(ARRAYS), path, to="orbax", verify=True, **terms)
            self.check_is(ocp.PyTreeCheckpointer().restore(path), ARRAYS)
            into = targets()
            for restored in (
                ocp.StandardCheckpointer().restore(path, into),
                ocp.PyTreeCheckpointer().restore(path, item=into, restore_args=ocp.checkpoint_utils.construct_restore_args(into)),
            ):
                flat = self.check_is(restored, ARRAYS)
                for name, spec in SPECS.items():
                    self.assertEqual(flat[name].sharding.spec, spec)

    def test_parameters_as_maxtext_asks_for_them(self):
        reshard.convert(Arrays(ARRAYS), self.scratch / "0", to="orbax")
        params = targets()["params"]
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=True)) as checkpointer:
            terms = {"transforms": {}, "restore_args": {"params": ocp.checkpoint_utils.construct_restore_args(params)}}
            restored = checkpointer.restore(self.scratch / "0", item={"params": params}, **terms)
        self.check_is(restored, {name: array for name, array in ARRAYS.items() if name.startswith("params.")})

    def test_a_step_of_a_checkpoint_manager(self):
        (self.scratch / "run" / "7").mkdir(parents=True)
        reshard.convert(Arrays(ARRAYS), self.scratch / "run" / "7" / "default", to="orbax")
        with ocp.CheckpointManager(self.scratch / "run") as manager:
            self.assertEqual(manager.latest_step(), 7)
            self.check_is(manager.restore(7, args=ocp.args.StandardRestore(targets())), ARRAYS)

    def test_chunks_are_the_shards_of_a_layout(self):
        path, rules = self.scratch / "cut", {"mesh": "{x:4,y:2}", "layouts": [["params.decoder.layers.*", "[<y>, *, <x>]"], ["*", "[...]"]]}
        reshard.convert(Arrays(ARRAYS), path, to="orbax", rules=rules)
        chunks = {tensor.name: tensor.chunk for tensor in OrbaxSource(str(path)).tensors()}
        self.assertEqual(chunks["params.decoder.layers.mlp.wi_0.kernel"], (32, 6, 12))
        self.check_is(ocp.StandardCheckpointer().restore(path, targets()), ARRAYS)

    def test_a_checkpoint_of_pytorch(self):
        reshard.convert(FIXTURES / "grid2x2", self.scratch / "jax", to="orbax", byte_items=False)
        # Back by tensorstore, and by this library alone.
        by_orbax = {name: np.asarray(array) for name, array in flat_of(ocp.PyTreeCheckpointer().restore(self.scratch / "jax")).items()}
        self.assertGreater(len(by_orbax), 2)
        reshard.convert(Arrays(by_orbax), self.scratch / "back", to="safetensors")
        self.assertTrue(reshard.verify(FIXTURES / "grid2x2", self.scratch / "back", byte_items=False))
        self.assertTrue(reshard.verify(FIXTURES / "grid2x2", self.scratch / "jax", byte_items=False))
        self.assertEqual(reshard.inspect(self.scratch / "jax")["format"], "orbax")


if __name__ == "__main__":
    unittest.main()
