"""Expressions as the JSON of a recipe, and many rules of one form as one rule with placeholders."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..entries import RECIPE_DTYPES
from .expressions import Cast, Concatenate, Expression, Fill, Permute, Reshape, Shape, Source, Window
from .expressions import cast, concatenate, leaves, narrow, permute, reshape, resized, stack

Json = Any

NAMES_OF_DTYPES = {getattr(torch, name): short for short, name in RECIPE_DTYPES.items()}


class NotInRecipes(Exception):
    """Something that a recipe cannot say."""


def escaped(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")


def to_json(expression: Expression, anchor: Source | None = None) -> Json:
    """
    Args:
        anchor: some tensor of the source. A recipe has values of its own only behind others; what has nothing before them
            is made of no elements of this one.

    Raises:
        NotInRecipes: what is unknown; a dtype that recipes do not have; values without any source.
    """
    first = next((leaf for leaf in leaves(expression) if isinstance(leaf, Source)), anchor)
    return _json(expression, first)


def _json(of: Expression, anchor: Source | None) -> Json:
    if isinstance(of, Source):
        return escaped(of.name)
    if isinstance(of, Fill):
        return _filled(of, anchor)
    if isinstance(of, Window):
        made = _json(of.input, anchor)
        for dim, (begin, size, whole) in enumerate(zip(of.begin, of.shape, of.input.shape)):
            if size != whole:
                made = {"slice": made, "dim": dim, "begin": begin, "end": begin + size}
        return made
    if isinstance(of, Permute):
        moved = [dim for dim, inner in enumerate(of.dims) if dim != inner]
        if len(moved) == 2:
            return {"transpose": _json(of.input, anchor), "dims": moved}
        return {"permute": _json(of.input, anchor), "dims": list(of.dims)}
    if isinstance(of, Reshape):
        return {"reshape": _json(of.input, anchor), "shape": list(of.shape), **_from(of.input.shape)}
    if isinstance(of, Cast):
        return {"cast": _json(of.input, anchor), "dtype": _dtype(of.dtype), "from": _dtype(of.input.dtype)}
    if isinstance(of, Concatenate):
        return _concatenated(of, anchor)
    raise NotInRecipes(type(of).__name__)


def _from(shape: Shape) -> dict[str, list[int]]:
    return {"from": list(shape)} if shape else {}


def _dtype(dtype: torch.dtype) -> str:
    if dtype not in NAMES_OF_DTYPES:
        raise NotInRecipes(f"{dtype} has no name in recipes")
    return NAMES_OF_DTYPES[dtype]


def _concatenated(of: Concatenate, anchor: Source | None) -> Json:
    dim = of.dim
    parts = list(of.parts)
    stacked = [_squeezed(part, dim) for part in parts]
    if all(stacked):
        return {"stack": [_json(part, anchor) for part in stacked if part], "dim": dim}
    last = parts.pop() if isinstance(parts[-1], Fill) else None
    inputs = [_json(part, anchor) for part in parts]
    sizes = [part.shape[dim] for part in parts]
    made = inputs[0] if len(inputs) == 1 else {"concatenate": inputs, "dim": dim, "sizes": sizes}
    if last is None:
        return made
    return {"pad": made, "dim": dim, "to": of.shape[dim], "value": last.value, "from": sum(sizes)}


def _squeezed(part: Expression, dim: int) -> Expression | None:
    """The same without a dimension of one element, where it was made with it."""
    if part.shape[dim] != 1:
        return None
    without = part.shape[:dim] + part.shape[dim + 1 :]
    if isinstance(part, Fill):
        return reshape(part, without)
    if isinstance(part, Reshape) and part.input.shape == without:
        return part.input
    if isinstance(part, Cast):
        inner = _squeezed(part.input, dim)
        return inner and cast(inner, part.dtype)
    if isinstance(part, Concatenate) and part.dim != dim:
        parts = [_squeezed(each, dim) for each in part.parts]
        return concatenate([each for each in parts if each], part.dim - (dim < part.dim)) if all(parts) else None
    return None


def _filled(of: Fill, anchor: Source | None) -> Json:
    if anchor is None:
        raise NotInRecipes("values that come from no tensor")
    nothing: Json = escaped(anchor.name)
    if not anchor.shape:
        nothing = {"reshape": nothing, "shape": [1]}
    nothing = {"slice": nothing, "dim": 0, "begin": 0, "end": 0}
    if anchor.dtype != of.dtype:
        nothing = {"cast": nothing, "dtype": _dtype(of.dtype), "from": _dtype(anchor.dtype)}
    shape = of.shape or (1,)
    padded = {"pad": {"reshape": nothing, "shape": [0, *shape[1:]]}, "dim": 0, "to": shape[0], "value": of.value}
    return padded if of.shape else {"reshape": padded, "shape": []}


def from_json(made: Json, sources: Mapping[str, Source]) -> Expression:
    """The inverse of to_json."""
    if isinstance(made, str):
        return sources[made.replace("{{", "{").replace("}}", "}")]
    operation = next(iter(made))
    if operation in ("concatenate", "stack"):
        parts = [from_json(part, sources) for part in made[operation]]
        return (concatenate if operation == "concatenate" else stack)(parts, made["dim"])
    value = from_json(made[operation], sources)
    dims = list(range(len(value.shape)))
    if operation == "slice":
        return narrow(value, made["dim"], made["begin"], made["end"] - made["begin"])
    if operation == "transpose":
        first, second = made["dims"]
        dims[first], dims[second] = second, first
        return permute(value, dims)
    if operation == "permute":
        return permute(value, made["dims"])
    if operation == "reshape":
        return reshape(value, made["shape"])
    if operation == "cast":
        return cast(value, getattr(torch, RECIPE_DTYPES[made["dtype"]]))
    assert operation == "pad", operation
    dim = made["dim"]
    rest = made["to"] - value.shape[dim]
    return concatenate([value, Fill(resized(value.shape, dim, rest), value.dtype, made["value"])], dim)


_NUMBER = re.compile(r"(?<![^.])(0|[1-9][0-9]*)(?![^.])")  # that is a whole part between dots
_PLACEHOLDERS = "lekmnpqr"


def compressed(rules: list[tuple[str, Json]], sources: Sequence[str]) -> list[dict[str, Json]]:
    """Rules (name and expression) that differ in numbers within names alone, as one rule with placeholders, where it
    makes exactly these of such sources. In the order of the first of each.

    Example: to layers.0.qkv from [layers.0.q, layers.0.k] and to layers.1.qkv from [layers.1.q, layers.1.k] become
        to layers.{l}.qkv from [layers.{l}.q, layers.{l}.k].
    """
    by_form: dict[str, list[str]] = {}
    for name in sources:
        by_form.setdefault(_NUMBER.sub("{}", escaped(name)), []).append(escaped(name))
    groups: dict[str, list[tuple[str, Json]]] = {}
    for name, made in rules:
        made = _over(made, by_form)
        form = _NUMBER.sub("{}", escaped(name)) + "\n" + repr(_mapped(made, lambda text: _NUMBER.sub("{}", text)))
        groups.setdefault(form, []).append((escaped(name), made))
    out: list[dict[str, Json]] = []
    for group in groups.values():
        together = _together(group, by_form) if len(group) > 1 else None
        out += [together] if together else [{"to": name, "from": made} for name, made in group]
    return out


def _together(group: list[tuple[str, Json]], by_form: dict[str, list[str]]) -> dict[str, Json] | None:
    to_numbers = [_NUMBER.findall(name) for name, _ in group]
    names = [list(_names(made)) for _, made in group]
    varying = [i for i in range(len(to_numbers[0])) if len({numbers[i] for numbers in to_numbers}) > 1]
    if len(varying) > len(_PLACEHOLDERS):
        return None
    letters = {place: "{" + _PLACEHOLDERS[i] + "}" for i, place in enumerate(varying)}
    to = _placed(group[0][0], [letters.get(i) for i in range(len(to_numbers[0]))])
    made_names: list[str] = []
    for place in range(len(names[0])):
        numbers = [_NUMBER.findall(of[place]) for of in names]
        fill: list[str | None] = []
        for i in range(len(numbers[0])):
            if len({row[i] for row in numbers}) == 1:
                fill.append(None)
                continue
            same = [letters[v] for v in varying if all(row[i] == other[v] for row, other in zip(numbers, to_numbers))]
            if not same:
                return None
            fill.append(same[0])
        made_names.append(_placed(names[0][place], fill))
    key = next((name for name in made_names if all(letter in name for letter in letters.values())), None)
    if key is None:
        return None
    pattern = re.escape(key).replace(r"\{o\}", "[0-9]+")
    for letter in letters.values():
        first, again = f"(?P<{letter[1]}>0|[1-9][0-9]*)", f"(?P={letter[1]})"
        pattern = pattern.replace(re.escape(letter), first, 1).replace(re.escape(letter), again)
    form = _NUMBER.sub("{}", re.sub(r"\{[a-z]\}", "0", key))
    matches = [re.fullmatch(pattern, name) for name in by_form.get(form, [])]
    found = {tuple(match.group(letter[1]) for letter in letters.values()) for match in matches if match}
    if found != {tuple(numbers[v] for v in varying) for numbers in to_numbers}:
        return None  # the source has more such tensors than these rules use
    fresh = iter(made_names)
    return {"to": to, "from": _mapped(group[0][1], lambda _: next(fresh))}


def _placed(name: str, letters: list[str | None]) -> str:
    place = iter(letters)
    return _NUMBER.sub(lambda match: next(place) or match.group(), name)


def _over(made: Json, by_form: dict[str, list[str]]) -> Json:
    """With "over" for lists that go over all numbers 0, 1, 2, ... of one place in names."""
    if not isinstance(made, dict):
        return made
    made = {key: _over(value, by_form) if key != "dims" else value for key, value in made.items()}
    for operation in ("stack", "concatenate"):
        parts = made.get(operation)
        if isinstance(parts, list):
            parts = [_over(part, by_form) for part in parts]
            made[operation] = parts
            one = _one_over(parts, by_form) if len(parts) > 1 and len(set(made.get("sizes", [0]))) == 1 else None
            if one is not None:
                made.pop("sizes", None)
                made |= {operation: one, "over": "o"}
    return made


def _one_over(parts: list[Json], by_form: dict[str, list[str]]) -> Json | None:
    if len({repr(_mapped(part, lambda text: _NUMBER.sub("{}", text))) for part in parts}) > 1 or "{o}" in repr(parts):
        return None
    names = [list(_names(part)) for part in parts]
    made: list[str] = []
    for place in range(len(names[0])):
        numbers = [_NUMBER.findall(of[place]) for of in names]
        differ = [i for i in range(len(numbers[0])) if len({row[i] for row in numbers}) > 1]
        if len(differ) != 1 or [row[differ[0]] for row in numbers] != [str(i) for i in range(len(parts))]:
            return None
        name = _placed(names[0][place], ["{o}" if i == differ[0] else None for i in range(len(numbers[0]))])
        pattern = re.compile(re.escape(name).replace(r"\{o\}", "[0-9]+"))
        form = _NUMBER.sub("{}", names[0][place])
        if sum(pattern.fullmatch(other) is not None for other in by_form.get(form, [])) != len(parts):
            return None
        made.append(name)
    fresh = iter(made)
    return _mapped(parts[0], lambda _: next(fresh))


_TEXTS = {"dtype", "from", "over"}  # members that are not names


def _names(made: Json) -> Iterator[str]:
    if isinstance(made, str):
        yield made
    elif isinstance(made, dict):
        for key, value in made.items():
            if key not in _TEXTS:
                yield from _names(value)
    elif isinstance(made, list):
        for value in made:
            yield from _names(value)


def _mapped(made: Json, change: Any) -> Json:
    if isinstance(made, str):
        return change(made)
    if isinstance(made, dict):
        return {key: value if key in _TEXTS else _mapped(value, change) for key, value in made.items()}
    if isinstance(made, list):
        return [_mapped(value, change) for value in made]
    return made
