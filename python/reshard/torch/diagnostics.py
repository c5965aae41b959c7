"""What ran last, for error reports and measurements."""

import json
from typing import Any

import torch

from .groups import Group, group_name


def recent_operations(group: Group = None) -> list[dict[str, Any]]:
    """The last operations of this rank in the group, oldest first. Also works after a failure. Does not communicate."""
    return json.loads(torch.ops.reshard._recent_operations(group_name(group)))


def last_timings(group: Group = None) -> dict[str, Any]:
    """Where the time of this rank's last operation in the group went, in seconds, and how many bytes it received.

    `received_bytes` is what the plan counts. `received_extra_bytes` is what small all-reduces in shared memory read
    besides, because reading is quicker there than meeting a second time.
    """
    return json.loads(torch.ops.reshard._last_timings(group_name(group)))
