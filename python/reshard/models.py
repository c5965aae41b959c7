"""Plans of whole models."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _core
from .arguments import Mesh, Topology, dtype_name, mesh_text, topology_text
from .checkpoints import json_text
from .planning import Batch, scheduled

__all__ = ["plan_model"]


def plan_model(
    model: str | os.PathLike | Mapping[str, Sequence[int]],
    source: str | os.PathLike | Mapping[str, Any],
    target: str | os.PathLike | Mapping[str, Any],
    *,
    mesh: Mesh | None = None,
    target_mesh: Mesh | None = None,
    dtype: object = "bf16",
    bucket: int | str | None = None,
    objective: str = "time",
    ops: str | Iterable[str] = "all",
    memory_limit: int | str | None = None,
    topology: Topology | None = None,
    nodes: tuple[int, int] | None = None,
    relabel: bool = False,
) -> Batch:
    """Plans a whole model as one schedule.

        print(reshard.plan_model("step-1000", "fsdp+tp:llama", "tp:llama", mesh="{dp:4,tp:8}", topology="dgx-h100"))

    Args:
        model: a checkpoint, a Hugging Face folder (only metadata is read), a JSON file of names and shapes, or shapes
            in elements by name.
        source, target: where the tensors are and where they go: rules ({"mesh": ..., "layouts": [...]}) or the path of a
            file with them; one layout rule for all, such as "[<dp>, ...]"; or schemes joined by "+": "fsdp", "tp:llama",
            "tp:gpt2", "tp:neox", "ep", "replicate", each followed by "@" and its axes where they cannot be guessed.
        mesh, target_mesh: of layout rules and schemes, as text or as a dict; the target's defaults to the source's.
        dtype: of shapes that have none.
        bucket, objective, ops, memory_limit, topology, nodes, relabel: as in plan_batch().

    Raises:
        InputError: not a model; text that is neither rules nor a layout rule nor schemes; what plan_batch() refuses.
        FileError: a file that cannot be read.
        LimitError: nothing fits the memory limit.
    """
    is_json = isinstance(model, Mapping)
    text = json.dumps(model) if is_json else os.fspath(model)

    def said(where: str | os.PathLike | Mapping[str, Any], over: Mesh | None) -> tuple[str, bool, str | None]:
        if isinstance(where, Mapping):
            return json.dumps(where), True, None
        path = os.fspath(where)
        if not isinstance(where, str) or path.endswith(".json") or os.path.isfile(path):
            return json_text(path), True, None
        return path, False, mesh_text(over)

    problems, names = _core.model_problems(
        text, is_json, dtype_name(dtype), said(source, mesh), said(target, target_mesh or mesh)
    )
    named = topology_text(topology) if topology is not None else ("flat", None)
    return scheduled(problems, names, bucket, (objective, ops, memory_limit, named, nodes), relabel)

