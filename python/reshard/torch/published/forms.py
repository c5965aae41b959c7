"""What jobs publish: a trainer its own tensors, an engine what it holds, for others of the same form."""

import hashlib
import json
from typing import Any, NamedTuple

import torch

from ..entries import gathered
from ..groups import Span
from ..record.engine import EngineParts, for_loader
from .given import Given
from .publications import SOURCE

State = dict[str, torch.Tensor]


class Shared(NamedTuple):
    """What a job publishes: tensors, and what others have to know of them."""

    state: State
    form: str  # engines whose copies have one form hold the same under the same names
    rank_local: list[str]  # patterns of what each rank has of its own
    given: Given | None  # where it is not what is in the copy


def of_trainer(state: State, given: Given | None) -> Shared:
    return Shared(state, SOURCE, [], given)


def of_names(state: State, recipe: Any, is_whole: bool, span: Span) -> Shared:
    """Of an engine whose tensors have the trainer's names, or those of a recipe. Collective.

    Args:
        recipe: as JSON, or None.
        is_whole: it has all that the trainer has, as it is there.
    """
    described = sorted([name, list(tensor.shape), str(tensor.dtype)] for name, tensor in state.items())
    told = {json.dumps(entry) for of_rank in gathered(described, span) for entry in of_rank}
    return Shared(state, SOURCE if is_whole else _form_of([recipe, sorted(told)]), [], None)


def of_engine(engine: EngineParts, given: Given, span: Span) -> Shared:
    """Of an engine as its loader says. Collective: each rank has parameters of its own."""
    state = engine.tensors | {for_loader(name): tensor for name, tensor in engine.given.items()}
    return Shared(state, _form_of(gathered([engine.described, engine.needed], span)), ["*"], given)


def _form_of(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
