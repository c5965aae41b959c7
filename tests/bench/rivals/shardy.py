"""What Shardy's own pass `sdy-reshard-to-collectives` receives and holds, run from the jaxlib wheel.

Each pair becomes a function with one sdy.reshard. The pass replaces it by a chain of collectives, which are read back
with their shardings. JAX itself leaves resharding to XLA's partitioner (xla.py).
"""

import re
from collections.abc import Sequence

from jax._src.interpreters import mlir
from jaxlib.mlir import ir, passmanager

from layouts import AXES, RANK, SIZE, Layout, Moved, Pair

_TENSOR = f"tensor<{'x'.join([str(SIZE)] * RANK)}xf32>"
_STEP = re.compile(r"%\w+ = sdy\.(\w+) (?:\[(.*?)\] )?%\w+ out_sharding=<@mesh, \[(.*?)\]>")
_PIPELINE = "builtin.module(func.func(sdy-reshard-to-collectives,canonicalize))"


def _sharding(layout: Layout) -> str:
    dims = ("{" + ", ".join(f'"{axis}"' for axis in axes) + "}" for axes in layout.dims)
    return f"<@mesh, [{', '.join(dims)}]>"


def _function(name: str, pair: Pair) -> str:
    source, target = _sharding(pair.source), _sharding(pair.target)
    return (f"func.func @{name}(%arg: {_TENSOR} {{sdy.sharding = #sdy.sharding{source}}})"
            f" -> ({_TENSOR} {{sdy.sharding = #sdy.sharding{target}}}) {{\n"
            f"  %0 = sdy.reshard %arg {target} : {_TENSOR}\n  return %0 : {_TENSOR}\n}}\n")


def _count(pair: Pair, body: str) -> Moved:
    """Follows the collectives of a function, printed one per line after its signature."""
    layout, received, held = pair.source, 0, pair.larger_end
    for line in body.splitlines()[1:]:
        if "sdy." not in line:
            continue
        step = _STEP.search(line)
        if step is None:
            raise ValueError(f"{pair}: cannot read {line}")
        op, moved, sharding = step.groups()
        after = Layout(tuple("".join(re.findall(r'"(\w)"', dim)) for dim in re.findall(r"\{(.*?)\}", sharding)))
        before, local = layout.local_elements, after.local_elements
        match op:
            case "all_slice":
                pass
            case "all_gather":
                received += local - before
            case "all_to_all":
                received += local - local // 2 ** len(re.findall(r'"\w"', moved))
            case "collective_permute":
                received += local
            case _:
                raise ValueError(f"{pair}: unknown step {op}")
        layout, held = after, max(held, local)
    if layout != pair.target:
        raise ValueError(f"{pair}: the pass ends at {layout}")
    return Moved(received, held)


def measure(pairs: Sequence[Pair]) -> list[Moved]:
    """Runs the pass on all pairs as functions of one module."""
    axes = ", ".join(f'"{axis}"=2' for axis in AXES)
    functions = "".join(_function(f"pair{i}", pair) for i, pair in enumerate(pairs))
    with mlir.make_ir_context():
        module = ir.Module.parse(f"sdy.mesh @mesh = <[{axes}]>\n{functions}")
        passmanager.PassManager.parse(_PIPELINE).run(module.operation)
        bodies = str(module).split("func.func")[1:]
    return [_count(pair, body) for pair, body in zip(pairs, bodies, strict=True)]
