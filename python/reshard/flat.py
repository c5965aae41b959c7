"""Tensors that lie back to back in a buffer that ranks share, as frameworks write them, and as layouts."""

import itertools
import math
import re
from collections.abc import Sequence

from .errors import InputError

__all__ = ["flat_layouts", "flat_ranges"]


def flat_layouts(
    shapes: Sequence[Sequence[int]],
    ranks: int,
    *,
    offsets: Sequence[int] | None = None,
    shard: int | None = None,
    axis: str = "dp",
    dims: Sequence[str] | None = None,
) -> list[str]:
    """The layout of each tensor of a flat buffer that is cut into a shard per rank, wherever the cuts fall.

        flat_layouts([(3, 4), (5,)], 2)      # ["[<dp=[9,3]>(3, 4)]", "[<dp=[0,5]>(5)]"]

    This is how FSDP1 cuts its flat parameters, Megatron's distributed optimizer its gradient buffers, and ZeRO its
    partitions.

    Args:
        shapes: of the tensors as the ranks share them, in the order of the buffer.
        ranks: how many ranks the buffer is cut over.
        offsets: where each tensor begins in the buffer, in elements. None: back to back.
        shard: elements of each rank's shard; rank r has those from r * shard on. None: the length of the buffer
            divided by the number of ranks, rounded up.
        axis: the mesh axis of the ranks.
        dims: the dimensions of each layout as text, where other axes cut a tensor before it is flattened, such as
            "512, <tp>128" for a shape of (512, 64). None: those of the shapes.

    Returns:
        One layout per tensor.

    Raises:
        InputError: lists of different lengths, or a tensor that reaches beyond the last shard.
    """
    if ranks < 1:
        raise InputError(f"{ranks} ranks")
    numels = [math.prod(shape) for shape in shapes]
    if offsets is None:
        offsets = list(itertools.accumulate(numels, initial=0))[:-1]
    if dims is None:
        dims = [", ".join(map(str, shape)) for shape in shapes]
    if not len(shapes) == len(offsets) == len(dims):
        raise InputError(f"{len(shapes)} shapes, {len(offsets)} offsets and {len(dims)} dims")
    end = max((offset + numel for offset, numel in zip(offsets, numels)), default=0)
    if shard is None:
        shard = -(-end // ranks)
    if end > ranks * shard:
        raise InputError(f"the tensors reach to element {end}, but {ranks} shards of {shard} end at {ranks * shard}")
    layouts = []
    for text, offset, numel in zip(dims, offsets, numels):
        if not text:  # a tensor without dimensions is whole on the rank that has it
            raise InputError("a tensor without dimensions cannot be cut; give it the shape (1,)")
        cuts = [min(max(rank * shard - offset, 0), numel) for rank in range(ranks + 1)]
        sizes = ",".join(str(after - before) for before, after in zip(cuts, cuts[1:]))
        layouts.append(f"[<{axis}=[{sizes}]>({text})]")
    return layouts


def flat_ranges(layouts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Which elements of each flattened tensor each rank has: the inverse of flat_layouts.

    Args:
        layouts: each flattens its first dimensions and cuts them by explicit sizes, as flat_layouts returns them.

    Returns:
        For each layout, per rank: (number of elements, index of the first one in the flattened tensor).

    Raises:
        InputError: a layout of any other form.
    """
    ranges = []
    for layout in layouts:
        found = re.match(r"\s*\[\s*\d*\s*<[A-Za-z_][\w.]*=\[([\d,\s]+)\](?:\s*\*\s*(\d+))?>\s*\(", layout)
        if not found:
            raise InputError(f"{layout} does not cut flattened dimensions by explicit sizes along one axis")
        numels = [int(size) * int(found[2] or 1) for size in found[1].split(",")]
        ranges.append(list(zip(numels, itertools.accumulate(numels, initial=0))))
    return ranges
