"""What ran last: for error reports and for measuring."""

import json
from typing import Any

import torch

from .groups import Group, group_name


def recent_operations(group: Group = None) -> list[dict[str, Any]]:
    """The latest operations of this rank in the group, oldest first. Works after a failure too; no communication."""
    return json.loads(torch.ops.reshard._recent_operations(group_name(group)))


def last_timings(group: Group = None) -> dict[str, Any]:
    """Where the time of this rank's last operation in the group went, in seconds, and the bytes that it received."""
    return json.loads(torch.ops.reshard._last_timings(group_name(group)))
