"""What is nested in a state dict, by name, and the place of each value, so that another can be put there."""

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

import torch

from ...errors import InputError

Path = tuple[str | int, ...]


class Leaf(NamedTuple):
    """A value of a state dict."""

    value: Any
    path: Path  # as torch.distributed.checkpoint writes it: keys as text, and indices of lists
    container: Any  # the mapping or list that has the value, the caller's own
    key: Any  # where in the container; of any type

    def put(self, value: Any) -> None:
        """Replaces the value in the caller's state dict."""
        self.container[self.key] = value


def leaves_of(state: Mapping[Any, Any]) -> dict[str, Leaf]:
    """The values by the names that torch.distributed.checkpoint gives them: the texts of their keys, joined by dots.

    Mappings are taken apart, whatever their keys are, and lists that contain tensors or mappings. Everything else,
    tuples too, is one value.

    Raises:
        ValueError: two values would have one name; a key without a text of its own; a container that contains itself.
    """
    walk = _Walk()
    walk.enter(state, Leaf(state, (), None, None), ())
    return walk.leaves


class _Walk:
    """What of a state dict has been seen. Not functions that call each other: those are a cycle, which would keep the
    tensors, and with them process groups, until the collector runs."""

    def __init__(self) -> None:
        self.leaves: dict[str, Leaf] = {}
        self._ways: dict[str, tuple[Any, ...]] = {}
        self._inside: list[int] = []  # ids of the containers on the way

    def enter(self, value: Any, leaf: Leaf, way: tuple[Any, ...]) -> None:
        """Adds what is in the value, to which these keys lead."""
        if not _is_taken_apart(value):
            self._add(leaf, way)
            return
        if id(value) in self._inside:
            raise InputError(f"{_shown(way)} contains itself; a checkpoint has no place for that")
        self._inside.append(id(value))
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, member in items:
            step = _text_of(key, way) if isinstance(value, Mapping) else key
            self.enter(member, Leaf(member, (*leaf.path, step), value, key), (*way, key))
        self._inside.pop()

    def _add(self, leaf: Leaf, way: tuple[Any, ...]) -> None:
        name = ".".join(map(str, leaf.path))
        if name in self.leaves:
            raise InputError(
                f"{_shown(self._ways[name])} and {_shown(way)} would both be called {name!r} in a checkpoint; "
                "rename one of the keys"
            )
        self.leaves[name] = leaf
        self._ways[name] = way


def flat(state: Mapping[Any, Any]) -> dict[str, Any]:
    """The values alone, as `leaves_of` names them."""
    return {name: leaf.value for name, leaf in leaves_of(state).items()}


def check_replaceable(name: str, leaf: Leaf) -> None:
    """
    Raises:
        ValueError: the container of a value that is to be replaced takes none.
    """
    if not isinstance(leaf.container, (MutableMapping, list)):
        kind = type(leaf.container).__name__
        raise InputError(f"{name}: it is in a {kind}, in which nothing can be replaced; pass a dict or leave it out")


def _is_taken_apart(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and any(isinstance(entry, torch.Tensor) or _is_taken_apart(entry) for entry in value)


def _text_of(key: Any, way: tuple[Any, ...]) -> str:
    kind = type(key)
    has_text = kind.__str__ is not object.__str__ or kind.__repr__ is not object.__repr__
    if isinstance(key, torch.Tensor) or not has_text:
        hint = "; of an optimizer, pass its state_dict()" if isinstance(key, torch.Tensor) else ""
        raise InputError(
            f"{_shown(way)} has a key of type {kind.__name__}, which has no text by which it would be found again{hint}"
        )
    return str(key)


def _shown(way: tuple[Any, ...]) -> str:
    """As Python writes it."""
    return "state_dict" + "".join(f"[{key!r}]" for key in way)
