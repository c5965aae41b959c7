"""What a source is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["Source", "SourceTensor"]


class SourceTensor(NamedTuple):
    """One tensor of a source."""

    name: str  # unique among those of the source
    dtype: str  # "bf16", "float32", ...: as layouts and PyTorch call it; any other word where `read` cannot read it
    shape: tuple[int, ...]
    # The shape of the grid's cells, where a part of a cell costs as much as all of it: the chunks of Zarr and HDF5.
    chunk: tuple[int, ...] | None = None


@runtime_checkable
class Source(Protocol):
    """A checkpoint that a program of yours can read. Pass it wherever reshard.convert, inspect, verify, fingerprint and
    load take a path.

    Functions are called from any thread, `read` from many at once. What they raise ends the call to reshard, and is in
    the message of its error.
    """

    def tensors(self) -> Iterable[SourceTensor]:
        """All tensors, in a stable order. Called once, before anything is read."""

    def read(self, name: str, offset: Sequence[int], shape: Sequence[int], out: memoryview) -> None:
        """Writes the elements of a box of a tensor to `out`: dense, row-major, little-endian, exactly its bytes.

        The box begins at `offset` and lies within one cell of the grid, or begins and ends where cells do. Afterwards
        `out` belongs to the caller again.
        """

    def notes(self) -> Mapping[str, str]:
        """Facts about the whole checkpoint, for the metadata of a result."""

    def version(self) -> str:
        """A text of at most 200 bytes that changes when the contents do, such as times and sizes of files. May be empty;
        changes during reading then go unnoticed."""

    def close(self) -> None:
        """Called last: no other call follows."""
