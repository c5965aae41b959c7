"""The network that the operators plan for."""

import torch

from ..arguments import Topology, topology_text


def set_topology(topology: Topology | None) -> None:
    """Tells all operators of this process, once, which network they plan for.

        reshard.set_topology("dgx-h100")

    From the next call on, redistributions, batches and the sequence-parallel set cross slow links as little as they
    can: within nodes, then across them, then within nodes. Without it, and without the environment variable
    RESHARD_TOPOLOGY, which takes a name or a file, all ranks count as equally far. `reshard.plan` of a DTensor uses it,
    too.

    Tell every rank the same. Where ranks were told different things, all get an error that names the topology. What is
    already bound keeps its plan. `load` plans for it what it redistributes; `save` redistributes nothing.

    Args:
        topology: a name such as "dgx-h100" (docs/topologies.md has all), the path of a JSON file, or its contents, as in
            `reshard.plan`. Its devices are global ranks. A group sees it by the global ranks of its members; a
            level whose domains are not equally long runs of these is left out for that group. None forgets what was
            told: RESHARD_TOPOLOGY applies again.

    Raises:
        ValueError: no such name, or not a topology.
        OSError: a file that cannot be read.
    """
    if topology is None:
        torch.ops.reshard._set_topology(None, None)
        return
    torch.ops.reshard._set_topology(*topology_text(topology))


def configured_topology() -> tuple[str, str] | None:
    """The name and the JSON of the topology that was set, or None.

    Raises:
        ValueError: RESHARD_TOPOLOGY names no topology.
    """
    name, text = torch.ops.reshard._topology()
    return (name, text) if name else None
