"""What each rank has a value of its own of, such as the state of its random numbers: NAME.rank_0, NAME.rank_1, ..."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ...errors import InputError
from ..fragments import Fragment
from .nested import Leaf


class RankLocal:
    """The names of one rank's state dict that rank-local patterns match."""

    def __init__(self, patterns: Iterable[str], leaves: dict[str, Leaf], rank: int) -> None:
        """
        Raises:
            ValueError: a pattern that matches something which ranks hold together.
        """
        self._patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        self._rank = rank
        names = list(leaves)
        matching = [torch.ops.reshard._matching(pattern, names) for pattern in self._patterns]
        self._used = [bool(indices) for indices in matching]
        self.names = [names[index] for index in sorted(set().union(*matching))]
        for name in self.names:
            if isinstance(leaves[name].value, (DTensor, Fragment)):
                raise InputError(
                    f"{name} is a {type(leaves[name].value).__name__}, which its ranks hold together; rank_local is for plain tensors and values"
                )

    @property
    def described(self) -> list[Any]:
        """What the other ranks must know."""
        return [self.names, self._patterns, self._used]

    def renamed(self, leaves: dict[str, Leaf]) -> dict[str, Leaf]:
        """The same with this rank's names for what is its own.

        Raises:
            ValueError: something else has such a name.
        """
        renamed = dict(leaves)
        for name in self.names:
            leaf = renamed.pop(name)
            own = name_of(name, self._rank)
            if own in leaves:
                raise InputError(f"{own} has the name that the rank-local {name} gets; rename one of them")
            renamed[own] = leaf._replace(path=(*leaf.path, f"rank_{self._rank}"))
        return renamed

    def check_stored(self, names: Iterable[str], there: set[str], ranks: int) -> None:
        """
        Args:
            names: those that this rank loads, as `renamed` has them.
            there: the names in the checkpoint.
            ranks: how many there are.

        Raises:
            ValueError: the checkpoint has what is rank-local for other ranks only, or for all together; it has what is
                not rank-local here for each rank.
        """
        for name in self.names:
            own = name_of(name, self._rank)
            if own in there:
                continue
            if name in there:
                raise InputError(f"{own} is not in the checkpoint, but {name} is, for all ranks: load it without rank_local")
            stored = sum(1 for other in there if _is_of_a_rank(other, name))
            if stored:
                raise InputError(
                    f"{own} is not in the checkpoint, which was saved by {stored} ranks, and here are {ranks}; leave {name} "
                    "out of the state dict, or as it is by strict=False"
                )
        if not all(self._used):
            return  # that is told first
        for name in names:
            if name not in there and name_of(name, 0) in there:
                raise InputError(
                    f"the checkpoint has {name} for each rank ({name_of(name, 0)}, ...): rank_local=[{name!r}] gives each "
                    "its own"
                )


def name_of(name: str, rank: int) -> str:
    """In the checkpoint; ranks are counted in the group."""
    return f"{name}.rank_{rank}"


def check(described: list[list[Any]], passed: Sequence[Iterable[str]]) -> None:
    """
    Args:
        described: of each rank.
        passed: the names of each rank, under which it saves or loads.

    Raises:
        ValueError: patterns that match nothing on any rank; a name that is rank-local on one rank and not on another, or
            that another value has already. Raised on every rank.
    """
    unused: dict[str, bool] = {}
    for _, patterns, used in described:
        for pattern, is_used in zip(patterns, used):
            unused[pattern] = unused.get(pattern, True) and not is_used
    for pattern, is_unused in unused.items():
        if is_unused:
            raise InputError(f"rank_local: {pattern!r} matches no name in the state dict of any rank")
    made = {name_of(name, rank): name for rank, (names, *_) in enumerate(described) for name in names}
    if not made:
        return
    locals_ = set(made.values())
    for rank, names in enumerate(passed):
        own = {name_of(name, rank) for name in described[rank][0]}
        for name in names:
            if name in locals_:
                raise InputError(f"{name} is rank-local on another rank, but not on rank {rank}: pass the same rank_local")
            if name in made and name not in own:
                raise InputError(
                    f"{name} on rank {rank} has the name that the rank-local {made[name]} gets; rename one of them"
                )


def _is_of_a_rank(other: str, name: str) -> bool:
    prefix = f"{name}.rank_"
    return other.startswith(prefix) and other[len(prefix) :].isdecimal()
