"""What a refit will do, and what it has done, for people and programs."""

import dataclasses
import json
from typing import Any

from ..joined import Joined
from .schedule import Schedule
from .specs import Agreed


@dataclasses.dataclass
class Timings:
    """Seconds, and the bytes that this rank received in the last call."""

    discovery: float = 0
    planning: float = 0
    wire: float = 0
    commit: float = 0
    install: float = 0
    finish: float = 0
    received_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Explanation:
    """What Refit.explain returns: str() for people, to_dict() for programs."""

    def __init__(self, schedule: Schedule, agreed: Agreed, group: Joined):
        tensors: dict[str, dict[str, Any]] = {}
        for move in schedule.moves:
            target = agreed.target.specs[move.view.target]
            entry = tensors.setdefault(
                target.name,
                {
                    "name": target.name,
                    "shape": list(target.shape),
                    "dtype": target.dtype.removeprefix("torch."),
                    "mesh": target.mesh,
                    "layout": target.layout,
                    "made_of": move.view.text or move.view.source,
                    "moves": 0,
                    "bytes": 0,
                },
            )
            entry["moves"] += 1
            entry["bytes"] += sum(move.target_elements.values()) * move.wire.itemsize
        self._facts: dict[str, Any] = {
            "generation": group.generation,
            "jobs": group.jobs,
            "tensors": list(tensors.values()),
            "bytes": sum(entry["bytes"] for entry in tensors.values()),
            "memory_limit": agreed.memory_limit,
            "rounds": [
                {
                    "moves": len(moves),
                    "steps": [step["op"] for bucket in schedule.facts(moves)["buckets"] for step in bucket["steps"]],
                    "received_bytes": schedule.facts(moves)["totals"]["recv_bytes_total"],
                }
                for moves in schedule.rounds
            ],
            "ranks": [
                {
                    "rank": rank,
                    "job": next(place for place, ranks in enumerate(group.jobs) if rank in ranks),
                    "received_bytes": schedule.total(rank, "recv_bytes"),
                    "received_bytes_bound": schedule.total(rank, "recv_bytes_bound"),
                    "sent_bytes": schedule.total(rank, "send_bytes"),
                    "sent_between_meshes_bytes": schedule.total(rank, "send_between_meshes_bytes"),
                    "staged_bytes": schedule.staged[rank],
                    "cast_bytes": schedule.cast[rank],
                    "memory_bytes": schedule.memory(rank),
                }
                for rank in range(schedule.world)
            ],
        }

    def to_dict(self) -> dict[str, Any]:
        return self._facts

    def to_json(self) -> str:
        return json.dumps(self._facts)

    def __getitem__(self, key: str) -> Any:
        return self._facts[key]

    def __str__(self) -> str:
        facts = self._facts
        limit = "no memory limit" if facts["memory_limit"] is None else f"memory limit {facts['memory_limit']} B"
        moves = sum(round_["moves"] for round_ in facts["rounds"])
        steps = sum(len(round_["steps"]) for round_ in facts["rounds"])
        lines = [
            f"{len(facts['tensors'])} tensors, {facts['bytes']} B in the target; moves: {moves}, rounds: "
            f"{len(facts['rounds'])}, steps: {steps}; {limit}",
            *(f"  {entry['name']} {entry['layout']} {entry['dtype']}: {entry['made_of']}" for entry in facts["tensors"]),
            "rank job     received        bound         sent       staged       memory",
        ]
        for rank in facts["ranks"]:
            keys = ("received_bytes", "received_bytes_bound", "sent_bytes", "staged_bytes", "memory_bytes")
            lines.append(f"{rank['rank']:4} {rank['job']:3} " + " ".join(f"{rank[key]:12}" for key in keys))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<reshard refit of {len(self._facts['tensors'])} tensors, {self._facts['bytes']} bytes>"
