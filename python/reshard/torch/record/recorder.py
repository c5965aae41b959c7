"""Runs a loader with stand-ins for the tensors of the source, and follows what becomes of them.

A stand-in has a shape and no values. Operations on it, and on all that was made of it, are not run but written down: as
what is in which memory. The tensors that a loader writes keep their values.
"""

import functools
import inspect
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from ...errors import InputError
from ..private_pytorch import DispatchMode, make_wrapper, pytree, schema_of, storage_key, straight_to_dispatch
from .expressions import Expression, Fill, Unknown, permute, reshape, sources_of
from .memory import Memory, constant, memory_of_tensor, view_of
from .operations import ASKING, FUNCTIONS, IN_PLACE, NEW, Call, unknown
from .strided import array_strides


class ValuesNeeded(InputError):
    """The loader looks at values of tensors, which are not there while it is recorded."""

    def __init__(self, operation: str, where: str, reads: frozenset[str]):
        self.reads = reads
        names = ", ".join(sorted(reads)) or "a tensor that it has not written"
        super().__init__(f"{where}: {operation} needs values of {names}, which are not there while a loader is recorded")


class StandIn(torch.Tensor):
    """A tensor without values."""

    meta: torch.Tensor
    recorder: "Recorder"

    @staticmethod
    def __new__(cls, meta: torch.Tensor, recorder: "Recorder") -> "StandIn":
        made = make_wrapper(cls, meta, recorder.device)
        made.meta, made.recorder = meta, recorder
        return made

    # Whatever is called comes to __torch_dispatch__ in the end.
    __torch_function__ = straight_to_dispatch

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        recorder = next(t.recorder for t in _tensors(arguments, keywords or {}) if isinstance(t, StandIn))
        return recorder.call(function, arguments, keywords or {})

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"<a {self.dtype} of {list(self.shape)} in a recording>"


class _Number(float):
    """What Tensor.item returns of a stand-in: a value that is only good for filling something."""

    tensor: StandIn


class Recorder:
    """What is in which memory."""

    def __init__(self, device: torch.device):
        self.device = device
        self.overwritten: list[str] = []  # where something that came from the source was written over, in words
        self._memories: dict[int, Memory] = {}

    def made(self, value: Expression) -> StandIn:
        """A tensor that is this."""
        return self._fresh(torch.empty(value.shape, dtype=value.dtype, device="meta"), value)

    def follow(self, tensor: torch.Tensor, name: str) -> None:
        """A tensor that the loader may write; it is called so in what is said."""
        key = storage_key(tensor)
        if key not in self._memories:
            self._memories[key] = memory_of_tensor(tensor, name)

    def value(self, of: Any) -> Expression:
        """What a tensor, or a number, is."""
        if not isinstance(of, torch.Tensor):
            return Fill((), torch.get_default_dtype() if isinstance(of, float) else torch.int64, of)
        plain = of.meta if isinstance(of, StandIn) else of
        memory = self._memories.get(storage_key(plain))
        if memory is not None:
            return memory.read(view_of(plain), of.dtype, _where())
        known = constant(of)
        return Unknown(tuple(of.shape), of.dtype, "values that the loader makes", _where()) if known is None else known

    def running(self) -> tuple[TorchFunctionMode, DispatchMode]:
        """Both are entered around the loader: stand-ins alone do not see what happens to memory that they were copied
        to."""
        return _Functions(self), _Dispatch(self)

    def call(self, operator: Any, arguments: tuple, keywords: dict[str, Any]) -> Any:
        tensors = _tensors(arguments, keywords)
        known = _known(operator)
        if not any(self._is_followed(tensor, bool(known.written)) for tensor in tensors):
            return operator(*arguments, **keywords)
        if known.name in ASKING:
            raise ValuesNeeded(known.name.removeprefix("aten::"), _where(), self._reads(tensors))
        if known.is_view:
            return self._view(operator, arguments, keywords)
        given = dict(zip(known.arguments, arguments)) | keywords
        call = Call(given, self.value, _where)
        if known.written:
            return self._write(known, call, tensors)
        if not known.makes_tensors:
            return operator(*_as_meta(arguments), **_as_meta(keywords))
        value = FUNCTIONS[known.name](call) if known.name in FUNCTIONS else None
        return self._made(operator, known.name, arguments, keywords, tensors, value)

    def has_values(self, tensor: torch.Tensor) -> bool:
        """Whether what is in its memory is what the loader expects there."""
        return not self._is_followed(tensor, False)

    def _is_followed(self, tensor: torch.Tensor, is_written: bool) -> bool:
        if isinstance(tensor, StandIn):
            return True
        memory = self._memories.get(storage_key(tensor))
        return memory is not None and (is_written or memory.written)

    def _view(self, operator: Any, arguments: tuple, keywords: dict[str, Any]) -> Any:
        viewed = arguments[0]
        if not isinstance(viewed, StandIn):
            return operator(*arguments, **keywords)
        made = operator(viewed.meta, *arguments[1:], **keywords)
        if isinstance(made, torch.Tensor):
            return StandIn(made, self)
        return [StandIn(meta, self) for meta in made]

    def _write(self, known: "_Operator", call: Call, tensors: list[torch.Tensor]) -> Any:
        value = IN_PLACE[known.name](call) if known.name in IN_PLACE else None
        targets = [call.arguments.get(name) for name in known.written]
        flat = [leaf for leaf in pytree.arg_tree_leaves(*targets) if isinstance(leaf, torch.Tensor)]
        inputs = [] if value is not None else [self.value(tensor) for tensor in tensors]
        for target in flat:
            becomes = value
            if becomes is None:
                becomes = unknown(known.name, _where(), inputs, target.shape, target.dtype)
            self._put(target, becomes)
        return targets[0] if known.results == 1 else tuple(flat) if known.results else None

    def _put(self, target: torch.Tensor, value: Expression) -> None:
        plain = target.meta if isinstance(target, StandIn) else target
        key = storage_key(plain)
        if key not in self._memories:
            self._memories[key] = _memory_of_loader(plain)
        were = self._memories[key].write(view_of(plain), value, _where())
        lost = frozenset().union(*(sources_of(was) for was in were)) - sources_of(value)
        if lost:
            self.overwritten.append(f"{_where()}: what came from {', '.join(sorted(lost))} is written over")

    def _made(
        self,
        operator: Any,
        name: str,
        arguments: tuple,
        keywords: dict[str, Any],
        tensors: list[torch.Tensor],
        value: Expression | None,
    ) -> Any:
        """New memory with a value, or with something unknown of the shape that the operator says."""
        try:
            made = operator(*_as_meta(arguments), **_as_meta(keywords))
        except (RuntimeError, NotImplementedError) as error:
            if value is None:
                raise ValuesNeeded(name, _where(), self._reads(tensors)) from error
            made = torch.empty(value.shape, dtype=value.dtype, device="meta")
        if value is not None and (not isinstance(made, torch.Tensor) or _described(made) != _described(value)):
            value = None  # a case of which its rule does not know
        inputs = [] if value is not None else [self.value(tensor) for tensor in tensors]

        def fresh(meta: torch.Tensor) -> torch.Tensor:
            return self._fresh(meta, value if value is not None else unknown(name, _where(), inputs, meta.shape, meta.dtype))

        return pytree.tree_map_only(torch.Tensor, fresh, made)

    def _fresh(self, meta: torch.Tensor, value: Expression) -> StandIn:
        """`meta` says the strides."""
        if tuple(meta.stride()) != tuple(array_strides(meta.shape)) or meta.storage_offset():
            order = sorted(range(meta.dim()), key=lambda dim: (-meta.stride(dim), dim))
            value = permute(value, order)
            meta = torch.empty([meta.shape[dim] for dim in order], dtype=value.dtype, device="meta").permute(
                [order.index(dim) for dim in range(meta.dim())]
            )
        self._memories[storage_key(meta)] = Memory(meta.untyped_storage(), value)
        return StandIn(meta, self)

    def _reads(self, tensors: list[torch.Tensor]) -> frozenset[str]:
        return frozenset().union(*(sources_of(self.value(tensor)) for tensor in tensors))


class _Operator(NamedTuple):
    """What the schema of an operator says."""

    name: str  # "aten::copy_"
    arguments: list[str]
    written: list[str]  # the arguments that it writes
    is_view: bool
    makes_tensors: bool
    results: int


@functools.cache
def _known(operator: Any) -> _Operator:
    schema = schema_of(operator)
    written = [argument.name for argument in schema.arguments if argument.is_write]
    return _Operator(
        schema.name,
        [argument.name for argument in schema.arguments],
        written,
        not written and any(result.alias_info is not None for result in schema.returns),
        any("Tensor" in str(result.type) for result in schema.returns),
        len(schema.returns),
    )


def _tensors(arguments: tuple, keywords: dict[str, Any]) -> list[torch.Tensor]:
    found = []
    for argument in (*arguments, *keywords.values()):
        if isinstance(argument, torch.Tensor):
            found.append(argument)
        elif isinstance(argument, (list, tuple, dict)):
            found += [leaf for leaf in pytree.tree_leaves(argument) if isinstance(leaf, torch.Tensor)]
    return found


def _described(of: torch.Tensor | Expression) -> tuple[tuple[int, ...], torch.dtype]:
    return tuple(of.shape), of.dtype


def _memory_of_loader(tensor: torch.Tensor) -> Memory:
    """Memory that the loader made for itself, with what is in it now."""
    memory = memory_of_tensor(tensor, NEW)
    storage = tensor.untyped_storage()
    if tensor.is_meta:
        return memory
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (memory.elements,), (1,))
    known = constant(flat)
    return memory if known is None else Memory(storage, reshape(known, memory.content().shape))


def _as_meta(arguments: Any) -> Any:
    """With tensors and devices that cost nothing."""

    def meta(leaf: Any) -> Any:
        if isinstance(leaf, StandIn):
            return leaf.meta
        if isinstance(leaf, torch.Tensor):
            return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    return pytree.tree_map(meta, arguments)


class _Dispatch(DispatchMode):
    def __init__(self, recorder: Recorder):
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        return self._recorder.call(function, arguments, keywords or {})


_ITEM, _FILL, _LISTED = torch.Tensor.item, torch.Tensor.fill_, (torch.Tensor.tolist, torch.Tensor.numpy)
_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]


class _Functions(TorchFunctionMode):
    """What never comes to __torch_dispatch__, or comes there as a bare number."""

    def __init__(self, recorder: Recorder):
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function is _ITEM and isinstance(arguments[0], StandIn) and arguments[0].numel() == 1:
            number = _Number("nan")
            number.tensor = arguments[0]
            return number
        if function is _FILL and len(arguments) == 2 and isinstance(arguments[1], _Number):
            return arguments[0].copy_(arguments[1].tensor.reshape(()))
        if function == _SET_DATA:
            parameter, value = arguments
            if _described(parameter) != _described(value):
                raise InputError(
                    f"{_where()}: the loader sets .data of {parameter.dtype} of {list(parameter.shape)} to {value.dtype} of "
                    f"{list(value.shape)}, which is not recorded; a new parameter would be"
                )
            with torch.no_grad():
                parameter.copy_(value)
            return None
        if function in _LISTED and not self._recorder.has_values(arguments[0]):
            raise ValuesNeeded(function.__name__, _where(), sources_of(self._recorder.value(arguments[0])))
        return function(*arguments, **(keywords or {}))


def _where() -> str:
    """The line of the loader that is at work."""
    frame = inspect.currentframe()
    assert frame is not None
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("torch.", "reshard.torch.record")) and module != "torch":
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


__all__ = ["Recorder", "StandIn", "ValuesNeeded"]
