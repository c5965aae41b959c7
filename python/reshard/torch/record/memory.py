"""Memory that a loader reads and writes: what is in it, as expressions over the source.

Views need no rules of their own: PyTorch says of each where it begins in its memory, and with which strides.
"""

import math

import torch

from .expressions import Before, Expression, Fill, Unknown, bits, reshape, sources_of
from .strided import View, array_strides, dense_shape, read, write
from .tiles import Tiles


def view_of(tensor: torch.Tensor) -> View:
    return View(tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))


class Memory:
    """One storage."""

    def __init__(self, storage: torch.UntypedStorage | None, content: Expression):
        """`content`: of all elements, dense and row-major."""
        self._storage = storage  # kept alive, so that its address stays its own
        self._content = content
        self._tiles: Tiles | None = None  # once a part of it was written
        self.written = not isinstance(content, Before)  # or made by an operation: it does not have its values
        self.dtype = content.dtype
        self.elements = math.prod(content.shape)

    def content(self) -> Expression:
        return self._tiles.whole() if self._tiles else self._content

    def read(self, view: View, dtype: torch.dtype, where: str) -> Expression:
        content = self.content()
        if dtype.itemsize != self.dtype.itemsize:
            return Unknown(view.sizes, dtype, f"bytes of {self.dtype} as {dtype}", where, sources_of(content))
        taken = read(content, view)
        if taken is None:
            return Unknown(view.sizes, dtype, f"a view with strides {list(view.strides)}", where, sources_of(content))
        return bits(taken, dtype)

    def write(self, view: View, value: Expression, where: str) -> list[Expression]:
        """Returns what was there. Where the view is not boxes, it is unknown what all of the memory becomes."""
        self.written = True
        boxes = None
        if value.dtype.itemsize == self.dtype.itemsize:
            value = bits(value, self.dtype)
            boxes = write(self._content.shape, view, value)
            if boxes is None:
                self._content, self._tiles = reshape(self.content(), dense_shape(view, self.elements)), None
                boxes = write(self._content.shape, view, value)
        shape = self._content.shape
        if boxes is None:
            what = f"a write to a view with strides {list(view.strides)}"
            reads = sources_of(value) | sources_of(self.content())
            boxes = [((0,) * len(shape), Unknown(shape, self.dtype, what, where, reads))]
        if self._tiles is None:
            self._tiles = Tiles(self._content)
        were = []
        for begin, part in boxes:
            were += self._tiles.put(begin, part)
        return were


def memory_of_tensor(tensor: torch.Tensor, name: str) -> Memory:
    """The memory of a tensor that exists; `name` says what it was before."""
    storage = tensor.untyped_storage()
    elements = storage.nbytes() // tensor.dtype.itemsize
    view = view_of(tensor)
    shape = tuple(tensor.shape) if _is_whole(view, elements) else dense_shape(view, elements)
    return Memory(storage, Before(shape, tensor.dtype, name))


def _is_whole(view: View, elements: int) -> bool:
    return math.prod(view.sizes) == elements and list(view.strides) == array_strides(view.sizes)


def constant(tensor: torch.Tensor) -> Expression | None:
    """The values of a tensor that exists, where all are the same."""
    if tensor.numel() == 0:
        return Fill(tuple(tensor.shape), tensor.dtype)
    if tensor.is_meta or tensor.dtype.is_complex:
        return None
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        try:
            first = flat[0].item()
            if not math.isfinite(first) or not bool((flat == flat[0]).all()):
                return None
        except (RuntimeError, NotImplementedError):  # types that have no comparison
            return None
    return Fill(tuple(tensor.shape), tensor.dtype, first)
