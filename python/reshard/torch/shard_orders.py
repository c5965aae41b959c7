"""What DTensor's operators make of tensors whose shards are in an order other than left to right."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .dtensors import redistribute
from .private_pytorch import DTensorSpec, ShardOrder, pytree, schema_of, spec_of

Schema = Any  # PyTorch's OpSchema: an operator, and the specs among its arguments
_aten = torch.ops.aten
# Element for element, too, though PyTorch does not tag them as such.
_ELEMENTWISE = {
    _aten.clone.default,
    _aten.contiguous.default,
    _aten.detach.default,
    _aten.alias.default,
    _aten._to_copy.default,
    _aten.copy_.default,
    _aten.fill_.Scalar,
    _aten.zero_.default,
    _aten.uniform_.default,
    _aten.normal_.default,
    _aten.empty_like.default,
    _aten.zeros_like.default,
    _aten.ones_like.default,
    _aten.full_like.default,
}


def propagate(own: Callable[[Schema], Any], schema: Schema) -> Any:
    """PyTorch's decision on an operator, own(schema), made right for shard orders: inputs are moved where they have to
    be, and outputs say their order.

    Raises:
        RuntimeError: the operator would write into an ordered tensor other than element for element, or takes one as a
            keyword argument.
    """
    by_name = [spec for spec in _specs(schema.kwargs_schema) if _is_ordered(spec)]
    if by_name:
        raise RuntimeError(f"{schema.op}: {by_name[0]} is in another shard order; redistribute it first")
    if not any(_is_ordered(spec) for spec in _specs(schema.args_schema)):
        return own(schema)
    sharding = own(_with(schema, [_map(_usual, argument) for argument in schema.args_schema]))
    written = _specs(_written(schema, schema.args_schema))
    if _is_elementwise(schema.op) and _follow(schema, sharding, written):
        return sharding
    ordered = [spec for spec in written if _is_ordered(spec)]
    if ordered:
        raise RuntimeError(
            f"{schema.op} writes into {ordered[0]}, which is in another shard order, and it does not work element for "
            "element there; redistribute it first"
        )
    if not sharding.needs_redistribute:
        sharding.needs_redistribute = True
        sharding.redistribute_schema = _with(schema, [_map(_usual, argument) for argument in schema.args_schema])
    return sharding


def in_usual_order(argument: object) -> object:
    """A DTensor in another shard order moved to the usual one; everything else as it is."""
    if not isinstance(argument, DTensor) or not _is_ordered(spec_of(argument)):
        return argument
    with torch.no_grad():
        return redistribute(argument, placements=argument.placements)


def _specs(arguments: object) -> list[DTensorSpec]:
    return [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, DTensorSpec)]


def _matters(spec: DTensorSpec) -> bool:
    return bool(spec.shard_order) and any(len(entry.mesh_dims) > 1 for entry in spec.shard_order)


def _is_ordered(spec: DTensorSpec) -> bool:
    return _matters(spec) and not DTensorSpec.is_default_device_order(spec.shard_order)


def _with_order(spec: DTensorSpec, order: ShardOrder | None) -> DTensorSpec:
    return DTensorSpec(spec.mesh, spec.placements, tensor_meta=spec.tensor_meta, shard_order=order)


def _usual(spec: DTensorSpec) -> DTensorSpec:
    return _with_order(spec, None) if _is_ordered(spec) else spec


def _map(function: Callable[[DTensorSpec], DTensorSpec], argument: object) -> object:
    return pytree.tree_map(lambda leaf: function(leaf) if isinstance(leaf, DTensorSpec) else leaf, argument)


def _with(schema: Schema, arguments: Sequence[object]) -> Schema:
    return type(schema)(schema.op, tuple(arguments), schema.kwargs_schema, schema_info=schema.schema_info)


def _written(schema: Schema, arguments: Sequence[object]) -> list[object]:
    declared = schema_of(schema.op).arguments
    return [value for one, value in zip(declared, arguments) if one.alias_info is not None and one.alias_info.is_write]


def _is_elementwise(op: Any) -> bool:
    return op in _ELEMENTWISE or torch.Tag.pointwise in op.tags or _is_of_lists(op)


def _is_of_lists(op: Any) -> bool:
    return schema_of(op).name.startswith(("aten::_foreach_", "aten::_fused_"))


def _follow(schema: Schema, sharding: Any, written: list[DTensorSpec]) -> bool:
    """Whether all inputs and outputs can have the order of one of the inputs, which they are then given. For an operator
    on lists, this applies to the i-th of every list, each i for itself."""
    of_lists = _is_of_lists(schema.op)

    def column(argument: object) -> list[object]:
        is_list = isinstance(argument, (list, tuple))
        return list(argument) if is_list and of_lists else [] if of_lists else pytree.tree_leaves(argument)

    def alike(spec: object, leader: DTensorSpec) -> bool:
        return isinstance(spec, DTensorSpec) and spec.placements == leader.placements and spec.shape == leader.shape

    # Per place, the input that says the order: the one that is written, else the first that has one of its own.
    columns = [column(argument) for argument in schema.args_schema]
    rows = [*zip(*(each for each in columns if each))] if of_lists else [tuple(itertools.chain(*columns))]
    rows = [[spec for spec in row if isinstance(spec, DTensorSpec)] for row in rows]
    leaders = [row[0] if written else next(filter(_is_ordered, row), row[0]) for row in rows]

    def followed(specs: Sequence[object]) -> list[object] | None:
        """With the leaders' orders; None if one cannot follow."""
        after: list[object] = []
        for spec, leader in zip(specs, leaders if of_lists else itertools.repeat(leaders[0])):
            if alike(spec, leader):
                after.append(_with_order(spec, leader.shard_order))
            elif isinstance(spec, DTensorSpec) and _matters(spec):
                return None  # it is broadcast, say, and cut in an order of its own
            else:
                after.append(spec)
        return after

    wanted = sharding.redistribute_schema if sharding.needs_redistribute else schema
    arguments = []
    for argument in wanted.args_schema:
        specs = column(argument)
        if not any(isinstance(spec, DTensorSpec) for spec in specs):
            arguments.append(argument)
            continue
        after = followed(specs)
        if after is None:
            return False
        arguments.append(type(argument)(after) if isinstance(argument, (list, tuple)) else after[0])
    if any(before != after for before, after in zip(written, _specs(_written(schema, arguments)))):
        return False
    several = isinstance(sharding.output_spec, (list, tuple))
    outputs = list(sharding.output_spec) if several else [sharding.output_spec]
    if sharding.output_spec is not None:
        if not all(alike(*pair) for pair in zip(outputs, leaders if of_lists else itertools.repeat(leaders[0]))):
            return False
        after = followed(outputs)
        assert after is not None
        sharding.output_spec = tuple(after) if several else after[0]
    sharding.redistribute_schema = _with(schema, arguments)
    before, after = (pytree.tree_leaves(each) for each in (schema.args_schema, tuple(arguments)))
    sharding.needs_redistribute = sharding.use_val_from_redistribute_schema or before != after
    return True
