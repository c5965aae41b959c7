"""Expert slots as engines write them, and as layouts."""

import re
from collections.abc import Iterable, Sequence

from .errors import InputError

__all__ = ["expert_layouts", "expert_map"]


def expert_layouts(
    physical_to_logical_map: Iterable[Sequence[int]], ranks: int, shape: Sequence[int], axis: str = "ep"
) -> list[str]:
    """The layout of each layer's stacked expert weights under a `physical_to_logical_map`.

    Args:
        physical_to_logical_map: [layers, slots]; the expert in each slot, as EPLB, vLLM and SGLang write it. Slots are
            dealt to ranks in order, equally many to each. May be a tensor.
        ranks: how many ranks the slots are dealt to; must divide the number of slots.
        shape: of one layer's weights of all experts: [experts, ...].
        axis: the mesh axis of the ranks.

    Returns:
        One layout per layer, such as "[<ep={5,6|5,7|...}>12, 7168, 2048]".

    Raises:
        InputError: slots that cannot be dealt evenly, or an expert that does not exist or that no slot holds.
    """
    layouts = []
    for layer, row in enumerate(physical_to_logical_map):
        slots = [int(expert) for expert in row]
        if ranks < 1 or len(slots) % ranks != 0:
            raise InputError(f"layer {layer}: {len(slots)} slots cannot be dealt evenly to {ranks} ranks")
        outside = [expert for expert in slots if not 0 <= expert < shape[0]]
        if outside:
            raise InputError(f"layer {layer}: a slot holds expert {outside[0]}, but the experts are 0 to {shape[0] - 1}")
        missing = sorted(set(range(shape[0])) - set(slots))
        if missing:
            raise InputError(f"layer {layer}: no slot holds expert {missing[0]}")
        each = len(slots) // ranks
        table = "|".join(",".join(map(str, slots[i : i + each])) for i in range(0, len(slots), each))
        layouts.append(f"[<{axis}={{{table}}}>{', '.join(map(str, shape))}]")
    return layouts


def expert_map(layouts: Iterable[str]) -> list[list[int]]:
    """The `physical_to_logical_map` of layouts with a slot table each: the inverse of expert_layouts.

    Args:
        layouts: one per layer, each with the same number of slots on every rank.

    Returns:
        [layers, slots]; the expert in each slot.

    Raises:
        InputError: a layout without a slot table, or whose ranks have different numbers of slots.
    """
    rows = []
    for layer, layout in enumerate(layouts):
        found = re.search(r"=\{([0-9,|\- ]*)\}", layout)
        if not found:
            raise InputError(f"layer {layer}: {layout} has no slot table")
        ranks = []
        for table in found[1].split("|"):
            runs = [run.split("-") for run in table.replace(" ", "").split(",") if run]
            ranks.append([expert for run in runs for expert in range(int(run[0]), int(run[-1]) + 1)])
        if len({len(slots) for slots in ranks}) > 1:
            raise InputError(f"layer {layer}: the ranks of {layout} have different numbers of slots")
        rows.append([expert for slots in ranks for expert in slots])
    return rows
