"""Plans, and the judge of plans. Nothing here moves data."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from .arguments import Mesh, Topology, byte_count, dtype_name, mesh_text, sizes, topology_text
from .errors import InputError
from .layouts import Layout, Page

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement

__all__ = ["Batch", "Plan", "Verdict", "check", "plan", "plan_batch"]


class _Result:
    """What the command prints as JSON, as an object: r["key"], "key" in r, r.to_dict()."""

    def to_json(self) -> str:
        """One line of JSON, as the command prints it with --json."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict."""
        return json.loads(self.to_json())

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __contains__(self, key: object) -> bool:
        return key in self.to_dict()

    def keys(self) -> Iterable[str]:
        """The keys of the dict."""
        return self.to_dict().keys()


class Plan(Page, _Result):
    """The steps from one layout to another, what they cost, and why they were chosen.

    str() is what `reshard plan` prints; a notebook draws it. plan["steps"] and the like are keys of
    docs/plan.schema.json.
    """

    def __init__(self, core: _core.Plan, devices: Sequence[int] | None = None):
        self._core = core
        # Of a relabelled plan: device ids in row-major order of the target's mesh.
        self.devices: list[int] | None = None if devices is None else list(devices)
        self._dict: dict[str, Any] | None = None

    def to_json(self, pieces: bool = False) -> str:
        """One line of JSON. `pieces` adds every box that travels, as [step, sender, receiver, [offset...], [size...]]
        in elements.

        Raises:
            LimitError: more than 10 million pieces.
        """
        return self._core.json(pieces)

    def to_dict(self, pieces: bool = False) -> dict[str, Any]:
        """The same as a dict."""
        return json.loads(self.to_json(pieces))

    def explain(self) -> str:
        """Every step with its groups and bytes, the memory, the bound, and what else was tried and why it lost."""
        return self._core.explain()

    def simulate(self) -> str:
        """When each step ends, found by following every message over the network.

        Raises:
            LimitError: more than 4 million messages.
        """
        return self._core.simulate()

    def html(self) -> str:
        """A page for a browser, in one file below 1 MB that needs no network: who holds what, what each device sends and
        receives in each step, the bounds, and the plans that lost."""
        return self._core.html()

    def svg(self) -> str:
        """A picture: one panel per layout, from source to target, and the steps between them."""
        return self._core.svg()

    @property
    def steps(self) -> list[dict[str, Any]]:
        """In order; empty if source and target are equivalent."""
        return self._facts["steps"]

    @property
    def bytes(self) -> int:
        """Bytes received by the device that receives the most."""
        return self._facts["totals"]["recv_bytes_max"]

    @property
    def bound(self) -> int:
        """The lower bound for every algorithm: bytes that the worst device has to receive."""
        return self._facts["bounds"]["recv_bytes_max"]

    @property
    def peak_bytes(self) -> int:
        """The most memory that a device needs at once, source and staging included."""
        return self._facts["totals"]["peak_bytes"]

    @property
    def seconds(self) -> float:
        """An estimate, from the topology's bandwidths and latencies."""
        return self._facts["totals"]["time_ns"] / 1e9

    @property
    def _facts(self) -> dict[str, Any]:
        if self._dict is None:
            self._dict = self.to_dict()
        return self._dict

    def __getitem__(self, key: str) -> Any:
        return self._facts[key]

    def __contains__(self, key: object) -> bool:
        return key in self._facts

    def keys(self) -> Iterable[str]:
        """The keys of the dict."""
        return self._facts.keys()

    def __str__(self) -> str:
        return self._core.text().rstrip("\n")

    def __repr__(self) -> str:
        ops = ", ".join(step["op"] for step in self.steps) or "nothing to do"
        return f"<reshard.Plan {self['source']} -> {self['target']}: {ops}; {self.bytes} bytes, bound {self.bound}>"

    def _repr_svg_(self) -> str:
        return self.svg()


class Batch(Page, _Result):
    """Many tensors as one schedule. str() is what `reshard plan --batch --coalesce` prints; keys are those of
    docs/batch.schema.json."""

    def __init__(self, core: _core.Batch, names: Sequence[str], devices: Sequence[int] | None):
        self._core = core
        self.names = list(names)
        self.devices: list[int] | None = None if devices is None else list(devices)

    def to_json(self) -> str:
        """One line of JSON, as the command prints it with --json."""
        return self._core.json()

    def html(self) -> str:
        """A page for a browser, in one file that needs no network."""
        return self._core.html()

    def plan(self, tensor: int | str) -> Plan:
        """The plan of one tensor, by its index or its name."""
        place = self.names.index(tensor) if isinstance(tensor, str) else range(len(self))[tensor]
        return Plan(self._core.plan_of(place))

    def __len__(self) -> int:
        return len(self._core)

    def explain(self) -> str:
        """For every distinct plan its tensors, its steps, and why it was chosen."""
        return self._core.explain()

    def __str__(self) -> str:
        return self._core.text().rstrip("\n")

    def __repr__(self) -> str:
        return f"<reshard.Batch of {len(self)} tensors>"


class Verdict(Page, _Result):
    """What the judge says of plans: bool(verdict), str(verdict), and the keys of docs/check.schema.json."""

    def __init__(self, agrees: bool, text: str, as_json: str, page: str):
        self.agrees = agrees
        self._text, self._json, self._page = text, as_json, page

    def html(self) -> str:
        """A page for a browser, in one file that needs no network."""
        return self._page

    def to_json(self) -> str:
        """One line of JSON, as `reshard check --json` prints it."""
        return self._json

    def __bool__(self) -> bool:
        return self.agrees

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    def __repr__(self) -> str:
        return f"<reshard.Verdict: {'agrees' if self.agrees else 'does not agree'}>"


def _options(
    objective: str,
    ops: str | Iterable[str],
    memory_limit: int | str | None,
    topology: tuple[str, str | None],
    nodes: tuple[int, int] | None,
    world: int,
    overlap: bool = True,
) -> _core.Options:
    ops = ops if isinstance(ops, str) else ",".join(ops)
    options = _core.options(objective, ops, byte_count(memory_limit), *topology, overlap)
    if nodes is not None:
        options.set_nodes(*nodes)
        if nodes[0] * nodes[1] < world:
            raise InputError(f"nodes {nodes[0]}x{nodes[1]} are {nodes[0] * nodes[1]} devices, but there are {world}")
    return options


def plan(
    mesh: "Mesh | Layout | DTensor",
    source: "str | Layout | DTensor | Sequence[Placement]",
    target: str | None = None,
    *,
    target_mesh: "Mesh | DeviceMesh | None" = None,
    dtype: object = None,
    shape: Sequence[int] | None = None,
    format: str = "reshard",
    source_format: str | None = None,
    target_format: str | None = None,
    objective: str = "time",
    ops: str | Iterable[str] = "all",
    memory_limit: int | str | None = None,
    topology: Topology | None = None,
    nodes: tuple[int, int] | None = None,
    overlap: bool = True,
    relabel: bool = False,
) -> Plan:
    """Finds the cheapest plan from one layout to another.

        print(reshard.plan("{X:4,Y:4,Z:16}", "[32<X,Y>512, 128]", "[32<Y,X>512, 128]"))
        print(reshard.plan(before, after))      # two of reshard.Layout
        print(reshard.plan(x, [Shard(1)]))      # what reshard.redistribute(x, [Shard(1)]) would do; x is a DTensor

    Args:
        mesh: the source's mesh, such as "{X:4,Y:2}" or {"X": 4, "Y": 2}. Or a `Layout`; the next argument is then the
            target's. Or a DTensor, which gives mesh, layout and dtype; the next argument is then the target:
            placements, a layout as text, or another DTensor.
        source, target: layouts, such as "[<X>1024, 64]". Sizes are global.
        target_mesh: the target's mesh; None means that of the source. A DeviceMesh where the source is a DTensor.
        dtype: a name such as "bf16" or "float32", a torch.dtype, or a NumPy dtype; None is "bf16".
        shape: global sizes; source and target may then be rules without sizes, or in another notation.
        format: the notation of both: "reshard", "dtensor", "jax", "shardy" or "hlo". source_format and target_format
            override it for one of them.
        objective: what to minimize: "time", "bytes" or "steps".
        ops: "all", "boxes" (contiguous intermediates), or the names of operations, as a list or separated by commas.
        memory_limit: the most that a device may need at once: bytes, or text such as "2GiB".
        topology: "flat", "dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200", "mi300x", "pcie", "cpu"
            (docs/topologies.md), the path of a JSON file, or its contents. None is "flat" or, for a DTensor, what
            `set_topology` has set.
        nodes: (nodes, devices of each), in place of the topology's domains.
        overlap: whether steps may run at the same time, on chunks of the tensor, where the topology has several levels.
        relabel: lets any device of the target take any shard, and finds the order that moves the fewest bytes
            (Plan.devices).

    Needs neither a process group nor PyTorch, and does not communicate.

    Raises:
        TypeError: neither texts nor a DTensor; an argument that the DTensor itself gives.
        InputError: malformed text (with a caret under the column), an unknown option, or no plan with these ops.
        UnsupportedError: what the planner does not support, such as a target that is partial over a new axis.
        LimitError: nothing fits the memory limit; the message has the bytes needed.
        OSError: a topology file that cannot be read.
    """
    told = None
    if isinstance(mesh, Layout):
        if not isinstance(source, Layout) or not target is target_mesh is shape is None:
            raise TypeError("plan(layout, layout): the target is a Layout, too, and has mesh and shape in it")
        problem = _core.problem_of(mesh._core, source._core, dtype_name(dtype or "bf16"))
    else:
        if not isinstance(mesh, str | Mapping):
            if target is not None or dtype is not None or shape is not None:
                if hasattr(mesh, "device_mesh"):
                    raise TypeError("plan(dtensor, target): mesh, layout, shape and dtype are the DTensor's")
                raise TypeError(f"plan(mesh, source, target): the mesh is text or a dict, not {type(mesh).__name__}")
            from .torch.problems import plan_texts
            from .torch.topology import configured_topology

            mesh, source, target_mesh, target, dtype = plan_texts(mesh, source, target_mesh)
            told = configured_topology()
        elif target is None:
            raise TypeError("plan(mesh, source, target): the target is missing")
        problem = _core.problem(
            mesh_text(mesh),
            source,
            target,
            mesh_text(target_mesh),
            dtype_name(dtype or "bf16"),
            sizes(shape),
            source_format or format,
            target_format or format,
        )
    named = topology_text(topology) if topology is not None else told or ("flat", None)
    options = _options(objective, ops, memory_limit, named, nodes, problem.world, overlap)
    devices = None
    if relabel:
        [problem], devices = _core.relabel([problem], [])
    return Plan(_core.plan(problem, options), devices)


def plan_batch(
    problems: "Iterable[Mapping[str, Any]] | torch.nn.Module | Mapping[str, DTensor] | Sequence[DTensor]",
    targets: "torch.nn.Module | Mapping[str, DTensor] | Sequence[DTensor] | None" = None,
    *,
    dtype: object = "bf16",
    bucket: int | str | None = None,
    objective: str = "time",
    ops: str | Iterable[str] = "all",
    memory_limit: int | str | None = None,
    topology: Topology | None = None,
    nodes: tuple[int, int] | None = None,
    relabel: bool = False,
) -> Batch:
    """Plans many tensors as one schedule, such as the state of a model.

    Args:
        problems: for each tensor what a line of `reshard plan --batch` has: {"mesh": "{X:2}", "from": "[<X>4]",
            "to": "[4]"} and, where needed, "id", "dtype", "shape", "to_mesh", "from_format", "to_format"; or a `Layout` as
            "from" and as "to", without a mesh. Or DTensors: a model, a dict, or a list.
        targets: for DTensors, the DTensors that they are to become, with the same names.
        dtype: of the tensors that have none of their own.
        bucket: the most bytes per device in one exchange, such as "1GiB".
        objective, ops, memory_limit, topology, nodes: as in plan().
        relabel: finds one order of the target's devices for all tensors (Batch.devices).

    Raises what plan() raises, with the tensor's "id" in the message.
    """
    told = None
    if targets is not None:
        from .torch.problems import batch_lines
        from .torch.topology import configured_topology

        problems = batch_lines(problems, targets)
        told = configured_topology()
    known = {"id", "mesh", "from", "to", "dtype", "shape", "to_mesh", "from_format", "to_format"}
    read, names = [], []
    for place, one in enumerate(problems):
        name = str(one.get("id", place))
        if strange := set(one) - known:
            raise InputError(f"{name}: unknown key {sorted(strange)[0]!r} (known: {', '.join(sorted(known))})")
        try:
            read.append(problem_of_line(one, dtype))
        except (InputError, TypeError) as error:
            raise InputError(f"{name}: {error}") from None
        names.append(name)
    named = topology_text(topology) if topology is not None else told or ("flat", None)
    return scheduled(read, names, bucket, (objective, ops, memory_limit, named, nodes), relabel)


def problem_of_line(line: Mapping[str, Any], dtype: object = "bf16") -> _core.Problem:
    """The problem of one tensor, given as plan_batch takes it; see there for the errors."""
    named = dtype_name(line.get("dtype") or dtype)
    source, target = line.get("from"), line.get("to")
    if isinstance(source, Layout) and isinstance(target, Layout):
        return _core.problem_of(source._core, target._core, named)
    if missing := {"mesh", "from", "to"} - set(line):
        raise InputError(f"{sorted(missing)[0]!r} is missing")
    return _core.problem(
        mesh_text(line["mesh"]),
        source,
        target,
        mesh_text(line.get("to_mesh")),
        named,
        sizes(line.get("shape")),
        line.get("from_format") or "reshard",
        line.get("to_format") or "reshard",
    )


def scheduled(
    problems: list[_core.Problem], names: list[str], bucket: int | str | None, terms: tuple, relabel: bool
) -> Batch:
    """Plans problems on `terms`: objective, ops, memory limit, topology as (name, JSON), nodes."""
    world = max((problem.world for problem in problems), default=0)
    options = _options(*terms, world)
    devices = None
    if relabel and problems:
        problems, devices = _core.relabel(problems, names)
    return Batch(_core.plan_batch(problems, names, options, byte_count(bucket)), names, devices)


def check(plan: Plan | Batch | Mapping[str, Any] | str) -> Verdict:
    """Whether a plan is legal, whether its figures are right, and how far it is from the bound; derived from its
    layouts alone, by code that the planner does not use.

    Args:
        plan: a Plan or Batch, or the JSON of a plan from any tool, as a dict or text.

    Raises:
        InputError: what cannot be read as a plan.
    """
    if isinstance(plan, _Result):
        text = plan.to_json()
    else:
        text = plan if isinstance(plan, str) else json.dumps(plan)
    return Verdict(*_core.check(text))
