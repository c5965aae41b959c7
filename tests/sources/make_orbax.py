#!/usr/bin/env python3
"""Writes fixtures/orbax_*: one tree as orbax-checkpoint stores it in its forms, from eight devices.

usage: make_orbax.py FOLDER        (pip install orbax-checkpoint==0.12.8 "jax[cpu]"==0.10.2)

Values are those of sources_test.py. With --check compares what orbax-checkpoint itself restores from them.
"""
import os
import pathlib
import shutil
import sys

os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

folder = pathlib.Path(sys.argv[1]).resolve()
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("fsdp", "tensor"))


def put(array, *names):
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*names)))


tree = {
    "params": {
        "decoder": {
            "layers": {"mlp": {"wi": {"kernel": put(jnp.arange(16 * 8 * 4, dtype=jnp.float32).reshape(16, 8, 4), "fsdp", None, "tensor")}}},
            "norm": {"scale": put(jnp.arange(32).astype(jnp.bfloat16).reshape(8, 4), "fsdp")},
        }
    },
    "opt": [put(jnp.arange(8), "fsdp"), None],
    "step": 7,
    "name": "hello",
}
for name, terms in {"ocdbt": {}, "plain": {"use_ocdbt": False}, "zarr3": {"use_zarr3": True}}.items():
    path = folder / f"orbax_{name}"
    shutil.rmtree(path, ignore_errors=True)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**terms)) as checkpointer:
        checkpointer.save(path, tree)
shutil.rmtree(folder / "orbax_steps", ignore_errors=True)
with ocp.CheckpointManager(folder / "orbax_steps") as manager:
    items = {"state": ocp.args.StandardSave({"params": tree["params"], "step": 7}), "extra": ocp.args.JsonSave({"a": 1})}
    manager.save(3, args=ocp.args.Composite(**items))
