"""What a loader does with the tensors that it is given, found by running it once without any."""

import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ...errors import InputError
from ..private_pytorch import local_of, own_tensors, storage_key
from ..problems import Tensors, named
from .expressions import Before, Bits, Cast, Expression, Fill, Source, Unknown, leaves, nodes, sources_of
from .memory import view_of
from .operations import NEW
from .recipes import NAMES_OF_DTYPES, compressed, to_json
from .recorder import Recorder, StandIn, ValuesNeeded

Shapes = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # name: shape and dtype
Loader = Callable[[Any], Any]
Export = Callable[[dict[str, torch.Tensor]], Any]

# So often a loader that looks at values is recorded again without the tensors at which it looks.
_MOST_ATTEMPTS = 64


@dataclasses.dataclass
class Recording:
    """What `reshard.record` found. Names are those of the target's state dict."""

    expressions: dict[str, Expression]  # of every parameter that the loader writes
    sources: list[Source]  # what there was to load
    unrecorded: dict[str, list[str]]  # parameters that recipes cannot say: operations and where they are called
    unwritten: dict[str, int]  # parameters of which the loader leaves elements as they are: how many
    ignored: list[str]  # tensors of the source that no parameter is made of
    overwritten: list[str]  # where something from the source is written over: file and line, and what is lost
    by_value: list[str]  # tensors of the source at whose values the loader looks; it was recorded without them
    tied: dict[str, str]  # parameters that are other ones under a second name: the first name
    result: Any  # what the loader returned

    @functools.cached_property
    def recipe(self) -> dict[str, Any]:
        """reshard.recipe/1: how every parameter is made of the source, as far as recipes can say it."""
        said = {n: value for n, value in self.expressions.items() if n not in self.unrecorded and n not in self.unwritten}
        anchor = next(iter(self.sources), None)
        names = [source.name for source in self.sources]
        rules = [(name, to_json(value, anchor)) for name, value in said.items()]
        recipe: dict[str, Any] = {"schema": "reshard.recipe/1", "tensors": compressed(rules, names)}
        used = frozenset().union(*map(sources_of, said.values()))
        if dropped := [name for name in names if name not in used]:
            recipe["drop"] = dropped
        return recipe

    @property
    def complete(self) -> bool:
        """Whether every element of every parameter is in the recipe."""
        return not self.unrecorded and not self.unwritten and not self.by_value

    def save(self, path: str | os.PathLike) -> None:
        """Writes the recipe to a file, for `reshard convert --recipe`."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.recipe, file, indent=1)
            file.write("\n")

    def __str__(self) -> str:
        said = len(self.expressions.keys() - self.unrecorded.keys() - self.unwritten.keys())
        lines = [f"{len(self.expressions)} parameters written, {said} of them in the recipe"]
        for title, names in (
            ("not in the recipe", [f"{name}: {'; '.join(why)}" for name, why in self.unrecorded.items()]),
            ("not written, or not all of it", [f"{name}: {n} elements" for name, n in self.unwritten.items()]),
            ("used for its values", self.by_value),
            ("written over", self.overwritten),
            ("another name", [f"{name}: {first}" for name, first in self.tied.items()]),
            ("in the source, and not used", self.ignored),
        ):
            if names:
                lines.append(f"{title}: {len(names)}")
                lines += [f"  {name}" for name in names[:20]] + ([f"  ... {len(names) - 20} more"] if len(names) > 20 else [])
        return "\n".join(lines)


def record(
    loader: Loader,
    source: Tensors | Shapes | str | os.PathLike,
    *,
    target: Tensors | None = None,
    ignore: Collection[str] = (),
) -> Recording:
    """Runs a loader once on tensors without values, and finds what each parameter is made of.

        recording = reshard.record(model.load_weights, "step-1000")        
        recording.save("to_engine.json")                      # reshard convert ... --recipe to_engine.json
        print(recording)                                      # what recipes cannot say, what is not written, not used

    The loader may slice, split, concatenate, stack, transpose, reshape, cast, pad, index by constants, copy into
    parameters or parts of them, or replace them. Whatever else it does (arithmetic, quantization) makes the parameters
    that come of it `unrecorded`, with the operation, the file and the line. Nothing is moved and no parameter changes:
    parameters that the loader replaced are put back. In a job each rank records its own part; nothing is communicated.

    Args:
        loader: called with (name, tensor) pairs, as engines' load_weights; or with a dict where it is called
            load_state_dict. To call it otherwise, wrap it: lambda pairs: model.load(dict(pairs), strict=True).
        source: what there is to load: a checkpoint of any format that reshard reads, a state dict or model, whose
            DTensors are whole tensors here, or {name: (shape, dtype)}.
        target: what the loader writes: a model or its state dict. By default the model that the loader is a method of,
            or that it returns.
        ignore: names of the source that the loader is not given.

    Raises:
        ValueError: there is no target; the loader needs the values of what it is given, and cannot do without it.
        Exception: whatever the loader raises.
    """
    given = {n: Source(shape, dtype, n) for n, (shape, dtype) in shapes_of(source).items() if n not in ignore}
    return record_made(loader, given, target=target)


def record_made(loader: Loader, given: Mapping[str, Expression], *, target: Tensors | None = None) -> Recording:
    """`record`, where what the loader is given is made of the source already."""
    owner = getattr(loader, "__self__", None)
    if target is None and isinstance(owner, torch.nn.Module):
        target = owner
    by_value: set[str] = set()
    for _ in range(_MOST_ATTEMPTS):
        try:
            without = {name: value for name, value in given.items() if not sources_of(value) & by_value}
            return _record_once(loader, without, target, sorted(by_value))
        except ValuesNeeded as error:
            if not error.reads or error.reads & by_value:
                raise
            by_value |= error.reads
    raise InputError(f"the loader needs the values of more than {_MOST_ATTEMPTS} tensors")


def exported(export: Export, source: Shapes) -> dict[str, Expression]:
    """What a function makes of a dict of the source's tensors: a dict, or (name, tensor) pairs.

    Raises:
        ValueError: it does more than move elements, or needs their values; with the operation, file and line.
        Exception: whatever it raises.
    """
    recorder = Recorder(torch.device("cpu"))
    given = {name: recorder.made(Source(shape, dtype, name)) for name, (shape, dtype) in source.items()}
    functions, dispatch = recorder.running()
    with torch.no_grad(), functions, dispatch:
        made = export(given)
        tensors = dict(made)
        values = {name: recorder.value(tensor) for name, tensor in tensors.items()}
    for name, value in values.items():
        if reasons := _reasons(value, name):
            raise InputError(f"export: {name} is not made by moving elements alone: {'; '.join(reasons)}")
    return values


def shapes_of(source: Tensors | Shapes | str | os.PathLike) -> Shapes:
    """Raises: as reshard.inspect, of a path."""
    if isinstance(source, (str, os.PathLike)):
        from ..stored import Stored

        return {n: (t.shape, t.dtype) for n, t in Stored(source).tensors.items() if t.dtype is not None}
    if isinstance(source, Mapping) and all(isinstance(value, tuple) for value in source.values()):
        return {name: (tuple(shape), dtype) for name, (shape, dtype) in source.items()}
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in named(source).items()}


def _record_once(
    loader: Loader, sources: Mapping[str, Expression], target: Tensors | None, by_value: list[str]
) -> Recording:
    before = {} if target is None else local_tensors(target)
    device = next((tensor.device for tensor in before.values()), torch.device("cpu"))
    recorder = Recorder(torch.device("cpu") if device.type == "meta" else device)
    for name, tensor in before.items():
        recorder.follow(tensor, name)
    functions, dispatch = recorder.running()
    owners = own_tensors(target) if isinstance(target, torch.nn.Module) else [target] if isinstance(target, dict) else []
    kept = [dict(tensors) for tensors in owners]
    given = {name: recorder.made(value) for name, value in sources.items()}
    try:
        with torch.no_grad(), functions, dispatch:
            result = call(loader, given)
            if target is None:
                if not isinstance(result, torch.nn.Module):
                    raise InputError("target: the loader is not a method of a model and returns none; give what it writes")
                target = result
            after = local_tensors(target)
            values = {name: (tensor, recorder.value(tensor)) for name, tensor in after.items()}
    finally:
        for tensors, old in zip(owners, kept):
            tensors.clear()
            tensors.update(old)
    return _recording(values, sources, recorder, by_value, result)


def call(loader: Loader, tensors: dict[str, torch.Tensor]) -> Any:
    """With a dict where that is what it takes, else with pairs."""
    return loader(tensors if getattr(loader, "__name__", "") == "load_state_dict" else iter(tensors.items()))


def local_tensors(target: Tensors) -> dict[str, torch.Tensor]:
    """A model's tensors, or those of its state dict; of DTensors this rank's shards."""
    tensors = named(target)
    return {n: local_of(t) if isinstance(t, DTensor) else t for n, t in tensors.items()}


def _recording(
    values: dict[str, tuple[torch.Tensor, Expression]],
    sources: Mapping[str, Expression],
    recorder: Recorder,
    by_value: list[str],
    result: Any,
) -> Recording:
    expressions: dict[str, Expression] = {}
    unrecorded: dict[str, list[str]] = {}
    unwritten: dict[str, int] = {}
    tied: dict[str, str] = {}
    first_of: dict[Any, str] = {}
    used: set[str] = set()
    for name, (tensor, value) in values.items():
        plain = tensor.meta if isinstance(tensor, StandIn) else tensor
        key = (storage_key(plain), view_of(plain), plain.dtype)
        if first_of.setdefault(key, name) != name:
            tied[name] = first_of[key]
            continue
        of_value = list(leaves(value))
        kept = sum(math.prod(leaf.shape) for leaf in of_value if isinstance(leaf, Before))
        if kept:
            unwritten[name] = kept
        if kept == math.prod(value.shape) and kept:
            continue
        expressions[name] = value
        used |= sources_of(value)
        if reasons := _reasons(value, name):
            unrecorded[name] = reasons
    all_leaves = (leaf for value in sources.values() for leaf in leaves(value) if isinstance(leaf, Source))
    given = list({leaf.name: leaf for leaf in all_leaves}.values())
    ignored = [source.name for source in given if source.name not in used]
    overwritten = list(dict.fromkeys(recorder.overwritten))
    return Recording(expressions, given, unrecorded, unwritten, ignored, overwritten, by_value, tied, result)


def _reasons(value: Expression, name: str) -> list[str]:
    """Why recipes cannot say it."""
    reasons = []
    for one in nodes(value):
        if isinstance(one, Unknown):
            reasons.append(f"{one.operation} at {one.where}")
        elif isinstance(one, Bits):
            reasons.append(f"{one.input.dtype} read as {one.dtype}")
        elif isinstance(one, Before) and one.name != name:
            reasons.append(f"read from {one.name} before it is written" if one.name != NEW else f"made of {NEW}")
        elif isinstance(one, (Cast, Fill)) and one.dtype not in NAMES_OF_DTYPES:
            reasons.append(f"{one.dtype}, which recipes do not have")
    return list(dict.fromkeys(reasons))


__all__ = ["Export", "Loader", "Recording", "Shapes", "call", "exported", "local_tensors", "record", "record_made", "shapes_of"]
