"""How what is published comes into the tensors of a server: under its own names, by a recipe, or as its loader says."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...errors import InputError
from ..entries import ALONE, gathered, gathered_or_raised
from ..groups import Span
from ..load import Loading
from ..problems import Tensors, flat
from ..record import Loader
from ..record.engine import for_loader, recorded
from ..record.recipes import to_json
from ..stored import Recipe, Stored, recipe_text
from .forms import Shared, State, of_engine, of_names
from .given import Given, given_at, recipe_of
from .publications import SOURCE, Publications, Version

class OtherForm(OSError):
    """A copy in the form of another engine."""


class Taker(Protocol):
    """Calls are collective."""

    def take(self, version: Version, staged: bool) -> tuple[Callable[[], None], dict[str, Any]]:
        """Reads a copy; what brings it into the target, on this rank alone, and what `load` reports.

        Raises:
            OSError, RuntimeError: it cannot be read.
            ValueError: it does not fit.
        """

    def shared(self) -> Shared:
        """What was taken last."""


def taker_of(place: Publications, target: Tensors, recipe: Recipe, loader: Loader | None, cast: bool, span: Span) -> Taker:
    if loader is None:
        return _ByNames(place, flat(target), recipe, cast, span)
    if recipe is not None:
        raise InputError("loader: no recipe is given beside it")
    return _ByLoader(place, target, loader, span)


class _ByNames:
    """The target's names are those that are published, or those of a recipe."""

    def __init__(self, place: Publications, state: State, recipe: Recipe, cast: bool, span: Span):
        self._place, self._state, self._cast, self._span = place, state, cast, span
        self._recipe = json.loads(recipe_text(recipe)) if recipe is not None else None
        self._form = of_names(state, self._recipe, False, span).form
        self._is_whole = False  # what was taken last is all that the trainer has published, as it is there

    def take(self, version: Version, staged: bool) -> tuple[Callable[[], None], dict[str, Any]]:
        _check_form(version, self._form)
        url = self._place.url(version)
        recipe = self._recipe_of(url) if version.form == SOURCE else None
        cast = self._cast and version.form == SOURCE
        install, facts = _loaded(url, self._state, recipe, "once", cast, self._span, staged)
        self._is_whole = version.form == SOURCE and not (recipe or facts["unexpected"] or facts["converted"])
        return install, facts

    def shared(self) -> Shared:
        return of_names(self._state, self._recipe, self._is_whole, self._span)

    def _recipe_of(self, url: str) -> Recipe:
        if self._recipe is not None:
            return self._recipe
        given, error = None, None
        try:
            given = given_at(url, SOURCE)
        except Exception as failure:
            error = failure
        gathered_or_raised(None, error, self._span)
        if given is None or given.made is None:
            return None
        wanted = {name for names in gathered(list(self._state), self._span) for name in names}
        return recipe_of(given, [(name, made) for name, made in given.made.items() if name in wanted])


class _ByLoader:
    """What the target's loader makes of what is published: each rank reads what its own parameters are made of."""

    def __init__(self, place: Publications, target: Tensors, loader: Loader, span: Span):
        self._place, self._target, self._loader, self._span = place, target, loader, span
        self._given: Given | None = None

    def take(self, version: Version, staged: bool) -> tuple[Callable[[], None], dict[str, Any]]:
        url = self._place.url(version)
        error = None
        try:
            self._record(given_at(url, version.form))
        except Exception as failure:
            error = failure
        gathered_or_raised(None, error, self._span)
        shared = self.shared()
        _check_form(version, shared.form)
        if version.form == SOURCE:
            install, facts = _loaded(url, shared.state, self._recipe, "own", False, ALONE, staged)
        else:
            install, facts = _loaded(url, shared.state, None, "own", False, self._span, staged, shared.rank_local)

        def finish() -> None:
            install()
            self._engine.finish(shared.state)

        return finish, facts

    def shared(self) -> Shared:
        assert self._given is not None
        return of_engine(self._engine, self._given, self._span)

    def _record(self, given: Given) -> None:
        if given == self._given:
            return
        expressions = given.expressions()
        engine = recorded(self._target, self._loader, expressions)
        rules = [(where, json.loads(made_of)) for where, _, _, made_of in engine.described]
        for name in engine.needed:
            engine.give(name, expressions[name])
            rules.append((for_loader(name), to_json(expressions[name])))
        self._given, self._engine, self._recipe = given, engine, recipe_of(given, rules)


def _loaded(
    url: str,
    state: State,
    recipe: Recipe,
    read: str,
    cast: bool,
    span: Span,
    staged: bool,
    rank_local: Sequence[str] = (),
) -> tuple[Callable[[], None], dict[str, Any]]:
    loading = Loading(lambda made: Stored(url, recipe=made), recipe, read, True, cast, span, None, rank_local)
    if staged:
        return loading.held(dict(state))
    return (lambda: None), loading.into(dict(state))


def _check_form(version: Version, own: str) -> None:
    if version.form not in (SOURCE, own):
        raise OtherForm(f"version {version.number}: this copy has the form of another engine")
