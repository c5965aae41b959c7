"""What XLA's partitioner receives and holds, as JAX runs it.

Each pair is jax.jit of the identity with the two shardings, compiled for 8 CPU devices. What is counted are the
collectives of the compiled module, after all of XLA's passes. How code is generated for the rest changes none of them,
so the time for that is saved.
"""

import contextlib
import functools
import math
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from layouts import AXES, DEVICES, RANK, SIZE, Layout, Moved, Pair

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", DEVICES)

# Spends less time on code that never runs.
_QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_llvm_disable_expensive_passes": True,
}
_INSTRUCTION = re.compile(r"%([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)")
_SHAPE = re.compile(r"\w+\[([\d,]*)\]")
_COLLECTIVE = re.compile(r"all-|collective-|reduce-scatter|ragged-|send|recv|while|conditional")


def _elements(shapes: str) -> int:
    """Elements of a shape, or of all in a tuple."""
    return sum(math.prod(int(size) for size in sizes.split(",") if size) for sizes in _SHAPE.findall(shapes))


def _count(pair: Pair, module: str) -> Moved:
    sizes: dict[str, int] = {}
    received, held = 0, pair.larger_end
    for line in module.splitlines():
        found = _INSTRUCTION.search(line)
        if found is None:
            continue
        name, shapes, op, operands = found.groups()
        size = sizes[name] = _elements(shapes)
        if not _COLLECTIVE.match(op):
            continue
        names = re.findall(r"%([\w.-]+)", operands)
        match op:
            case "all-gather":
                received += size - sum(sizes[operand] for operand in names)
            case "all-to-all":  # one operand for each device of the group, of which one stays
                received += size - size // len(names)
            case "collective-permute":
                ends = re.findall(r"\{(\d+),(\d+)\}", line)
                received += size if any(source != target for source, target in ends) else 0
            case _:
                raise ValueError(f"{pair}: uncounted {line}")
        held = max(held, size)
    return Moved(received, held)


@functools.cache
def _known_options() -> dict[str, Any]:
    """Those of _QUICKLY that this version of XLA has."""
    lowered = jax.jit(lambda x: x).lower(0.0)
    known = {}
    for name, value in _QUICKLY.items():
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            lowered.compile(compiler_options={name: value})
            known[name] = value
    return known


def measure(pairs: Sequence[Pair]) -> list[Moved]:
    """Compiles each pair on its own."""
    mesh = Mesh(numpy.array(jax.devices()).reshape([2] * len(AXES)), tuple(AXES))
    argument = jax.ShapeDtypeStruct((SIZE,) * RANK, numpy.float32)

    def sharding(layout: Layout) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*(tuple(axes) for axes in layout.dims)))

    def compiled(pair: Pair) -> str:
        identity = jax.jit(lambda x: x, in_shardings=sharding(pair.source), out_shardings=sharding(pair.target))
        return identity.lower(argument).compile(compiler_options=_known_options()).as_text()

    return [_count(pair, compiled(pair)) for pair in pairs]
