"""What a version gives to loaders: the trainer's tensors, or what the trainer makes of them for others."""

import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...errors import MissingFileError
from ...stores.interface import StoreError
from ...stores.schemes import scheme_of, store_of
from ..entries import dtype_of
from ..record import Export, Shapes, exported, shapes_of
from ..record.expressions import Expression, Source, sources_of
from ..record.recipes import Json, escaped, from_json, to_json
from .publications import SOURCE

_SUFFIX = ".given.json"


class Given(NamedTuple):
    """Tensors by name, as a loader is given them."""

    shapes: Shapes  # of the trainer's tensors
    made: dict[str, Json] | None  # what is made of these; None: they themselves

    def sources(self) -> dict[str, Source]:
        return {name: Source(shape, dtype, name) for name, (shape, dtype) in self.shapes.items()}

    def expressions(self) -> Mapping[str, Expression]:
        sources = self.sources()
        if self.made is None:
            return sources
        return {name: from_json(made, sources) for name, made in self.made.items()}


def given_by(shapes: Shapes, export: Export | None) -> Given:
    """
    Raises:
        ValueError: the function does more than move elements.
    """
    return Given(shapes, None if export is None else {n: to_json(v) for n, v in exported(export, shapes).items()})


def recipe_of(given: Given, rules: list[tuple[str, Json]]) -> dict[str, Any]:
    """That makes these of the trainer's tensors, and drops the others."""
    sources = given.sources()
    used = frozenset().union(*(sources_of(from_json(made, sources)) for _, made in rules))
    return {
        "schema": "reshard.recipe/1",
        "tensors": [{"to": escaped(name), "from": made} for name, made in rules],
        "drop": [name for name in given.shapes if name not in used],
    }


def put_given(url: str, given: Given) -> None:
    """Beside the folder of a copy, before there is one."""
    shapes = {name: [list(shape), str(dtype)] for name, (shape, dtype) in given.shapes.items()}
    text = json.dumps({"shapes": shapes, "made": given.made})
    if not scheme_of(url):
        pathlib.Path(url + _SUFFIX).write_text(text, encoding="utf-8")
        return
    with _as_os_errors():
        store_of(url).put(url + _SUFFIX, memoryview(text.encode()), False)


def remove_given(url: str) -> None:
    """Does nothing where there is none."""
    if not scheme_of(url):
        pathlib.Path(url + _SUFFIX).unlink(missing_ok=True)
        return
    with _as_os_errors():
        store_of(url).remove(url + _SUFFIX)


def given_at(url: str, form: str) -> Given:
    """
    Raises:
        OSError: it cannot be read.
    """
    try:
        said: dict[str, Any] = json.loads(_read(url + _SUFFIX))
    except MissingFileError:
        if form != SOURCE:
            raise
        return Given(shapes_of(url), None)
    return Given({name: (tuple(shape), dtype_of(dtype)) for name, (shape, dtype) in said["shapes"].items()}, said["made"])


def _read(url: str) -> bytes:
    if not scheme_of(url):
        try:
            return pathlib.Path(url).read_bytes()
        except FileNotFoundError as error:
            raise MissingFileError(str(error)) from error
    with _as_os_errors():
        found = store_of(url).find(url)
        data = bytearray(found.bytes)
        store_of(url).read(url, found, 0, memoryview(data))
        return bytes(data)


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise (MissingFileError if error.code == "not_found" else OSError)(str(error)) from error
