"""What `reshard plan --objective bytes` receives and holds, as its plans say."""

import json
import subprocess
from collections.abc import Sequence

from layouts import AXES, SIZE, Layout, Moved, Pair


def _text(layout: Layout) -> str:
    dims = ((f"<{','.join(axes)}>" if axes else "") + str(SIZE) for axes in layout.dims)
    return f"[{', '.join(dims)}]"


def measure(pairs: Sequence[Pair], command: str, ops: str) -> list[Moved]:
    """Plans each pair with these --ops. Fails if a plan's lower bound is not the one counted in layouts.py."""
    mesh = "{" + ",".join(f"{axis}:2" for axis in AXES) + "}"
    problems = [{"mesh": mesh, "from": _text(pair.source), "to": _text(pair.target), "dtype": "i8"} for pair in pairs]
    words = [command, "plan", "--batch", "-", "--json", "--quiet", "--objective", "bytes", "--ops", ops]
    lines = "".join(json.dumps(problem) + "\n" for problem in problems)
    plans = subprocess.run(words, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    out = []
    for pair, line in zip(pairs, plans, strict=True):
        plan = json.loads(line)
        if plan["bounds"]["recv_bytes_max"] != pair.bound:
            raise ValueError(f"{pair}: the plan's bound is {plan['bounds']['recv_bytes_max']}, counted: {pair.bound}")
        received = sum(step["recv_bytes_max"] for step in plan["steps"])
        out.append(Moved(received, max(pair.larger_end, plan["totals"]["intermediate_bytes_max"])))
    return out
