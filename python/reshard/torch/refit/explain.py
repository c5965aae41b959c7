"""What a refit will do, and what it has done, for people and programs."""

import dataclasses
import json
from typing import Any

from ...errors import LimitError
from ..joined import Joined
from .schedule import Rounds, Schedule
from .specs import Agreed


# In the text a table of more ranks is no help.
_MOST_RANKS = 16


@dataclasses.dataclass
class Timings:
    """Seconds, and what this rank moved in the last call."""

    discovery: float = 0
    planning: float = 0
    compare: float = 0
    wire: float = 0
    commit: float = 0
    install: float = 0
    finish: float = 0
    received_bytes: int = 0
    received_bytes_bound: int = 0
    sent_bytes: int = 0
    moves: int = 0
    skipped_moves: int = 0

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
        everything = schedule.all
        self._facts: dict[str, Any] = {
            "generation": group.generation,
            "jobs": group.jobs,
            "tensors": list(tensors.values()),
            "bytes": sum(entry["bytes"] for entry in tensors.values()),
            "memory_limit": agreed.memory_limit,
            "rounds": [
                {
                    "moves": len(moves),
                    "steps": [step["op"] for bucket in round_["buckets"] for step in bucket["steps"]],
                    "received_bytes": round_["totals"]["recv_bytes_total"],
                }
                for moves, round_ in zip(everything.moves, everything.facts)
            ],
            "ranks": [
                {
                    "rank": rank,
                    "job": next(place for place, ranks in enumerate(group.jobs) if rank in ranks),
                    "received_bytes": everything.total(rank, "recv_bytes"),
                    "received_bytes_bound": everything.total(rank, "recv_bytes_bound"),
                    "sent_bytes": everything.total(rank, "send_bytes"),
                    "sent_between_meshes_bytes": everything.total(rank, "send_between_meshes_bytes"),
                    "staged_bytes": schedule.staged[rank],
                    "cast_bytes": schedule.cast[rank],
                    "memory_bytes": schedule.memory(rank, everything),
                }
                for rank in range(schedule.world)
            ],
            "links": _links(everything),
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
        if facts["links"] and len(facts["ranks"]) <= _MOST_RANKS:
            lines += _table(facts["links"])
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<reshard refit of {len(self._facts['tensors'])} tensors, {self._facts['bytes']} bytes>"


def _links(rounds: Rounds) -> list[dict[str, int]] | None:
    """By sender, then by receiver; None where that takes too long."""
    try:
        return [{"from": sender, "to": to, "bytes": size} for (sender, to), size in rounds.links().items()]
    except LimitError:
        return None


def _table(links: list[dict[str, int]]) -> list[str]:
    """A line for each sender, a column for each receiver."""
    senders, receivers = (sorted({link[end] for link in links}) for end in ("from", "to"))
    sizes = {(link["from"], link["to"]): link["bytes"] for link in links}
    lines = ["from\\to " + " ".join(f"{receiver:12}" for receiver in receivers)]
    for sender in senders:
        lines.append(f"{sender:7} " + " ".join(f"{sizes.get((sender, receiver), 0):12}" for receiver in receivers))
    return lines
