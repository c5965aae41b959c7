"""Makes plans without running them."""

import json
from typing import Any

import torch

DTYPE_NAMES = {
    torch.bool: "bool",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.complex32: "c32",
    torch.float8_e8m0fnu: "f8e8m0",
    torch.float4_e2m1fn_x2: "f4e2m1x2",
}


def plan(
    mesh: str,
    source: str,
    target: str,
    *,
    target_mesh: str | None = None,
    dtype: str | torch.dtype = "bf16",
    **options: Any,
) -> dict[str, Any]:
    """Finds the cheapest plan from one layout to another, and returns it as `reshard plan --json` prints it.

    Args:
        mesh: the source's mesh, such as "{X:4,Y:2}".
        source, target: layouts, such as "[<X>1024, 64]". Sizes are global.
        target_mesh: the target's mesh; None means that of the source.
        dtype: a torch.dtype, or one of the names that the command takes, such as "bf16".
        options: those of the command: objective ("time", "bytes", "steps"), ops ("all", "boxes", or names, as a list or
            separated by commas), memory_limit (bytes per device, or text such as "2GiB"), topology (the name of a
            preset or a file), pieces (True lists every message).

    Needs no process group, and does not communicate.

    Raises:
        ValueError: malformed text (with a caret under the column), an unknown option, or no feasible plan.
        NotImplementedError: what the planner does not support, such as a target that is partial over a new axis.
    """
    name = DTYPE_NAMES[dtype] if isinstance(dtype, torch.dtype) else dtype
    ops = options.get("ops")
    if ops is not None and not isinstance(ops, str):
        options["ops"] = ",".join(ops)
    given = {key: value for key, value in options.items() if value is not None}
    return json.loads(torch.ops.reshard._plan(mesh, source, target, target_mesh or "", name, json.dumps(given)))
