"""What operations of PyTorch do to the elements of their inputs: those that only move them, in a table.

Views are not in it, see memory. Whatever else a loader calls makes something unknown, which says where it was called.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .expressions import Before, Expression, Fill, Unknown, cast, concatenate, narrow, permute, repeated, reshape, resized
from .expressions import sources_of, stack


class Call:
    """One call of an operator, as its rule sees it."""

    def __init__(self, arguments: dict[str, Any], value: Callable[[Any], Expression], where: Callable[[], str]):
        self.arguments = arguments  # by the names in the operator's schema
        self._value = value
        self._where = where

    def value(self, name: str) -> Expression:
        """Of a tensor, or of a number."""
        return self._value(self.arguments[name])

    def values(self, name: str) -> list[Expression]:
        return [self._value(tensor) for tensor in self.arguments[name]]

    def get(self, name: str, default: Any = None) -> Any:
        found = self.arguments.get(name)
        return default if found is None else found

    def where(self) -> str:
        return self._where()


Rule = Callable[[Call], Expression | None]  # None: not this time


def _clone(call: Call) -> Expression:
    return call.value("self")


def _to_copy(call: Call) -> Expression:
    value = call.value("self")
    return cast(value, call.get("dtype", value.dtype), call.where())


def _cat(call: Call) -> Expression:
    parts = [part for part in call.values("tensors") if part.shape != (0,)] or call.values("tensors")[:1]
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = torch.promote_types(dtype, part.dtype)
    dim = call.get("dim", 0) % max(1, len(parts[0].shape))
    return concatenate([cast(part, dtype, call.where()) for part in parts], dim)


def _stack(call: Call) -> Expression:
    parts = call.values("tensors")
    return stack(parts, call.get("dim", 0) % (len(parts[0].shape) + 1))


def taken(value: Expression, dim: int, indices: Sequence[int]) -> Expression:
    """These indices of a dimension, in that order."""
    size = value.shape[dim]
    wanted = [index % size if -size <= index < size else index for index in indices]
    if not wanted:
        return Fill(resized(value.shape, dim, 0), value.dtype)
    parts, begin = [], 0
    for place in range(1, len(wanted) + 1):
        if place < len(wanted) and wanted[place] == wanted[place - 1] + 1:
            continue
        parts.append(narrow(value, dim, wanted[begin], place - begin))
        begin = place
    return concatenate(parts, dim)


# More indices in any order than this are not a view of a tensor.
_MOST_INDICES = 1 << 12


def _indices(index: Any) -> list[int] | None:
    """The numbers in an index, where a loader knows them while it is recorded."""
    if not isinstance(index, torch.Tensor) or index.is_meta or index.dim() != 1:
        return None
    if index.dtype in (torch.bool, torch.uint8):
        index = index.nonzero().reshape(-1)
    numbers: list[int] = index.tolist()
    jumps = sum(after != before + 1 for before, after in zip(numbers, numbers[1:]))
    return numbers if jumps < _MOST_INDICES else None


def _index_select(call: Call) -> Expression | None:
    value, indices = call.value("self"), _indices(call.arguments["index"])
    return None if indices is None or not value.shape else taken(value, call.arguments["dim"] % len(value.shape), indices)


def _index(call: Call) -> Expression | None:
    value, by = call.value("self"), list(call.arguments["indices"])
    dims = [dim for dim, index in enumerate(by) if index is not None]
    if len(dims) != 1:
        return None
    indices = _indices(by[dims[0]])
    return None if indices is None else taken(value, dims[0], indices)


def _flip(call: Call) -> Expression | None:
    value = call.value("self")
    for dim in call.arguments["dims"]:
        if value.shape[dim] > _MOST_INDICES:
            return None
        value = taken(value, dim % len(value.shape), range(value.shape[dim])[::-1])
    return value


def _roll(call: Call) -> Expression | None:
    value, dims = call.value("self"), call.get("dims") or []
    if not dims:
        return None
    for shift, dim in zip(call.arguments["shifts"], dims):
        size = value.shape[dim]
        value = taken(value, dim % len(value.shape), [(i - shift) % size for i in range(size)]) if size else value
    return value


def _repeat(call: Call) -> Expression | None:
    value, repeats = call.value("self"), call.arguments["repeats"]
    value = reshape(value, (1,) * (len(repeats) - len(value.shape)) + value.shape)
    for dim, count in enumerate(repeats):
        if count > _MOST_INDICES:
            return None
        if count == 0:
            return Fill(tuple(size * n for size, n in zip(value.shape, repeats)), value.dtype)
        value = repeated(value, dim, count)
    return value


def _repeat_interleave(call: Call) -> Expression | None:
    value, count, dim = call.value("self"), call.arguments["repeats"], call.get("dim")
    if not isinstance(count, int) or not 0 < count <= _MOST_INDICES or dim is None:
        return None
    dim %= len(value.shape)
    shape = value.shape
    each = repeated(reshape(value, shape[: dim + 1] + (1,) + shape[dim + 1 :]), dim + 1, count)
    return reshape(each, resized(shape, dim, shape[dim] * count))


def _pad(call: Call) -> Expression | None:
    value, pad = call.value("self"), list(call.arguments["pad"])
    if any(size < 0 for size in pad):
        return None
    for place in range(len(pad) // 2):
        dim = len(value.shape) - 1 - place
        before, after = (
            Fill(resized(value.shape, dim, size), value.dtype, call.get("value", 0))
            for size in pad[2 * place : 2 * place + 2]
        )
        value = concatenate([before, value, after], dim)
    return value


def _unsafe_view(call: Call) -> Expression:
    value, sizes = call.value("self"), list(call.arguments["size"])
    if -1 in sizes:
        sizes[sizes.index(-1)] = math.prod(value.shape) // -math.prod(sizes)
    return reshape(value, sizes)


def _slice_scatter(call: Call) -> Expression | None:
    value, source = call.value("self"), call.value("src")
    dim = call.get("dim", 0) % len(value.shape)
    places = list(range(value.shape[dim]))[call.get("start") : call.get("end") : call.get("step", 1)]
    return _put(value, dim, places, cast(source, value.dtype, call.where()))


def _permute_copy(call: Call) -> Expression:
    value = call.value("self")
    return permute(value, [dim % len(value.shape) for dim in call.arguments["dims"]])


def _filled(value: Any) -> Rule:
    def rule(call: Call) -> Expression:
        reference = call.value("self")
        sizes = call.get("size", reference.shape)
        dtype = call.get("dtype", reference.dtype)
        number = call.arguments["fill_value"] if value is None else value
        return Fill(tuple(sizes), dtype, number)

    return rule


def _empty(call: Call) -> Expression:
    reference = call.value("self")
    return Before(tuple(call.get("size", reference.shape)), call.get("dtype", reference.dtype), NEW)


NEW = "memory that the loader has not written"

# Operators whose result is new memory.
FUNCTIONS: dict[str, Rule] = {
    "aten::clone": _clone,
    "aten::_to_copy": _to_copy,
    "aten::cat": _cat,
    "aten::stack": _stack,
    "aten::index_select": _index_select,
    "aten::index": _index,
    "aten::flip": _flip,
    "aten::roll": _roll,
    "aten::repeat": _repeat,
    "aten::repeat_interleave": _repeat_interleave,
    "aten::constant_pad_nd": _pad,
    "aten::_unsafe_view": _unsafe_view,
    "aten::_reshape_copy": _unsafe_view,
    "aten::slice_scatter": _slice_scatter,
    "aten::permute_copy": _permute_copy,
    "aten::lift_fresh_copy": _clone,
    "aten::new_empty": _empty,
    "aten::new_empty_strided": _empty,
    "aten::empty_like": _empty,
    "aten::new_zeros": _filled(0),
    "aten::zeros_like": _filled(0),
    "aten::new_ones": _filled(1),
    "aten::ones_like": _filled(1),
    "aten::new_full": _filled(None),
    "aten::full_like": _filled(None),
}


def copied(call: Call) -> Expression:
    target, value = call.arguments["self"], call.value("src")
    return _broadcast(cast(value, target.dtype, call.where()), target.shape)


def filled(call: Call) -> Expression:
    target, value = call.arguments["self"], call.arguments["value"]
    if isinstance(value, torch.Tensor):
        return _broadcast(cast(call.value("value"), target.dtype, call.where()), target.shape)
    return Fill(tuple(target.shape), target.dtype, value)


def zeroed(call: Call) -> Expression:
    target = call.arguments["self"]
    return Fill(tuple(target.shape), target.dtype)


def index_copied(call: Call) -> Expression | None:
    target, indices = call.value("self"), _indices(call.arguments["index"])
    dim = call.arguments["dim"] % max(1, len(target.shape))
    return _put(target, dim, indices, cast(call.value("source"), target.dtype, call.where()))


def index_put(call: Call) -> Expression | None:
    target, by = call.value("self"), list(call.arguments["indices"])
    dims = [dim for dim, index in enumerate(by) if index is not None]
    if len(dims) != 1 or call.get("accumulate"):
        return None
    indices = _indices(by[dims[0]])
    if indices is None:
        return None
    dim = dims[0]
    shape = resized(target.shape, dim, len(indices))
    return _put(target, dim, indices, _broadcast(cast(call.value("values"), target.dtype, call.where()), shape))


def _put(target: Expression, dim: int, indices: list[int] | None, value: Expression) -> Expression | None:
    if indices is None or not target.shape:
        return None
    size = target.shape[dim]
    # Of an index that appears twice the last one stays.
    places = {index % size: place for place, index in enumerate(indices)}
    both = concatenate([target, value], dim)
    return taken(both, dim, [size + places[i] if i in places else i for i in range(size)])


# Operators that write `self`: what is in it then.
IN_PLACE: dict[str, Rule] = {
    "aten::copy_": copied,
    "aten::fill_": filled,
    "aten::zero_": zeroed,
    "aten::index_copy_": index_copied,
    "aten::index_put_": index_put,
    "aten::_index_put_impl_": index_put,
}

# What asks for values, which are not there.
ASKING = {"aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::item"}


def _broadcast(value: Expression, shape: Sequence[int]) -> Expression:
    shape = tuple(shape)
    value = reshape(value, (1,) * (len(shape) - len(value.shape)) + value.shape)
    for dim, (size, wanted) in enumerate(zip(value.shape, shape)):
        if size != wanted:
            value = repeated(value, dim, wanted)
    return value


def unknown(operation: str, where: str, inputs: Sequence[Expression], shape: Sequence[int], dtype: torch.dtype) -> Unknown:
    reads = frozenset().union(*(sources_of(value) for value in inputs))
    return Unknown(tuple(shape), dtype, operation.removeprefix("aten::"), where, reads)
