"""An open checkpoint of any format that reshard reads: what is in it, and any box of any of its tensors."""

import contextlib
import json
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..checkpoints import json_text
from ..errors import ExistingFileError, FileError, MissingFileError
from ..sources.interface import Source
from ..sources.places import at_place

Recipe = str | os.PathLike | Mapping[str, Any] | None


class StoredTensor(NamedTuple):
    """One tensor of a checkpoint, or of what a recipe makes of it."""

    index: int  # among the tensors
    dtype: torch.dtype | None  # None: one that this PyTorch does not have
    shape: tuple[int, ...]
    requires_grad: bool
    chunks: list[tuple[tuple[int, ...], tuple[int, ...]]]  # offset and size of each


class Stored:
    """Opens a checkpoint. Nothing in it is run.

    Raises:
        FileNotFoundError, OSError: there is none; it cannot be read.
        ValueError: text that is not a recipe, or one that does not fit.
        RuntimeError: the checkpoint is damaged.
    """

    def __init__(
        self, path: str | os.PathLike | Source, *, check: bool = True, ignore_sidecar: bool = False, recipe: Recipe = None
    ):
        stack = contextlib.ExitStack()
        weakref.finalize(self, stack.close)  # a Source is open for as long as this is
        place = stack.enter_context(at_place(path))
        self.handle = torch.classes.reshard.StoredCheckpoint(place, check, ignore_sidecar, recipe_text(recipe))
        raise_reported(self.handle.error())
        text, numbers = self.handle.describe()
        described = json.loads(text)
        self.tensors = _tensors(described["tensors"], numbers.tolist())
        self.items: dict[str, int] = {name: index for index, (name, _) in enumerate(described["items"])}
        self.paths: dict[str, tuple] = {name: tuple(path) for name, path in described["paths"].items()}

    def read(self, boxes: Iterable[tuple[str, Sequence[int], torch.Tensor]], threads: int = 0) -> None:
        """Reads a box of a tensor, from an offset on, into each of these host tensors of its dtype, with any strides."""
        indices, offsets, outs = [], [], []
        for name, offset, out in boxes:
            indices.append(self.tensors[name].index)
            offsets.extend(offset)
            outs.append(out)
        raise_reported(self.handle.read(outs, indices, offsets, threads))

    def read_item(self, name: str) -> bytes:
        """The bytes of a value that is not a tensor."""
        bytes_, reported = self.handle.read_item(self.items[name])
        raise_reported(reported)
        return bytes_.numpy().tobytes()

    def pickled_attributes(self) -> dict[str, bytes]:
        """What the metadata says beside tensors and values, where that is plain data."""
        names, pickles = self.handle.attributes()
        return {name: pickle.numpy().tobytes() for name, pickle in zip(names, pickles)}

    def names(self) -> list[str]:
        return [*self.tensors, *self.items]


def _tensors(described: list[list], numbers: list[int]) -> dict[str, StoredTensor]:
    tensors = {}
    at = 0
    for index, (name, dtype, shape, requires_grad, count) in enumerate(described):
        dims = len(shape)
        chunks = []
        for _ in range(count):
            chunks.append((tuple(numbers[at : at + dims]), tuple(numbers[at + dims : at + 2 * dims])))
            at += 2 * dims
        known = getattr(torch, dtype.removeprefix("torch."), None)
        known = known if isinstance(known, torch.dtype) else None
        tensors[name] = StoredTensor(index, known, tuple(shape), requires_grad, chunks)
    return tensors


def raise_reported(reported: str) -> None:
    """Raises the error of the system that the library reports as JSON; does nothing for an empty text."""
    if reported:
        facts_of(reported)


def facts_of(summary: str) -> dict[str, Any]:
    """What the library reports; raises it if it is an error of the system."""
    facts = json.loads(summary)
    if "error" in facts:
        raise {"missing": MissingFileError, "existing": ExistingFileError, "file": FileError}[facts["error"]](facts["message"])
    return facts


def recipe_text(recipe: Recipe) -> str:
    """The text of a recipe, given as a file, at a path or URL, or as the contents of one; empty for None."""
    return json_text(recipe) or ""


def bytes_tensor(content: bytes | memoryview) -> torch.Tensor:
    """A copy, in the form in which the library takes bytes."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if len(content) else torch.empty(0, dtype=torch.uint8)
