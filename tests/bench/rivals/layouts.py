"""The pairs of layouts on which planners are compared, and the lower bound of each.

A tensor of 8x8x8 elements on the mesh {A:2,B:2,C:2}. A box layout shards each dimension over some of the axes, major
first, and each axis is used at most once: 106 layouts. The pairs are all ordered ones in which an element must move:
10,755, of which 3,810 have the axes of every dimension in mesh order. The bound is counted here from the boxes of all
devices, so that it owes nothing to any planner.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

AXES = "ABC"  # of size 2 each, the first one major
DEVICES = 2 ** len(AXES)
RANK = 3
SIZE = DEVICES  # of every dimension, so that everything divides
PAIRS = 10755
DEFAULT_ORDER_PAIRS = 3810


class Layout(NamedTuple):
    """The axes that shard each dimension, major first."""

    dims: tuple[str, ...]

    @property
    def local_shape(self) -> tuple[int, ...]:
        return tuple(SIZE >> len(axes) for axes in self.dims)

    @property
    def local_elements(self) -> int:
        return math.prod(self.local_shape)

    @property
    def in_mesh_order(self) -> bool:
        """True if DTensor's placements express it without a shard order."""
        return all(list(axes) == sorted(axes) for axes in self.dims)

    def offsets(self, device: int) -> tuple[int, ...]:
        """Where the box of a device begins in each dimension."""
        bits = dict(zip(AXES, f"{device:0{len(AXES)}b}"))
        places = (int("".join(bits[axis] for axis in axes) or "0", 2) for axes in self.dims)
        return tuple(place * length for place, length in zip(places, self.local_shape))


class Pair(NamedTuple):
    source: Layout
    target: Layout

    @property
    def bound(self) -> int:
        """Elements that the worst device must receive, whatever the algorithm: those of its target that it lacks."""
        return self.target.local_elements - min(self._kept(device) for device in range(DEVICES))

    @property
    def larger_end(self) -> int:
        """Elements that a device holds in the source or the target, whichever is larger."""
        return max(self.source.local_elements, self.target.local_elements)

    @property
    def in_mesh_order(self) -> bool:
        return self.source.in_mesh_order and self.target.in_mesh_order

    def _kept(self, device: int) -> int:
        """Elements of a device's target that it holds in the source."""
        ends = zip(self.source.offsets(device), self.source.local_shape,
                   self.target.offsets(device), self.target.local_shape)
        return math.prod(max(0, min(a + n, b + m) - max(a, b)) for a, n, b, m in ends)


def _box_layouts() -> Iterator[Layout]:
    for used in range(len(AXES) + 1):
        for axes in itertools.permutations(AXES, used):
            for cuts in itertools.combinations_with_replacement(range(used + 1), RANK - 1):
                ends = (0, *cuts, used)
                yield Layout(tuple("".join(axes[a:b]) for a, b in itertools.pairwise(ends)))


def all_pairs() -> list[Pair]:
    """The 10,755 pairs."""
    pairs = [Pair(*ends) for ends in itertools.product(_box_layouts(), repeat=2)]
    return [pair for pair in pairs if pair.bound > 0]


class Moved(NamedTuple):
    """What a planner's sequence costs on one pair, in elements."""

    received: int  # by the worst device in each step, summed over the steps
    held: int  # by a device between two steps, at most; with the ends
