"""Loads all of a state dict at once, each byte read by one rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

from ..torch.entries import span_or_alone
from ..torch.groups import Group
from ..torch.load import Loading
from ..torch.progress import Progress
from ..torch.stored import Recipe, Stored


class Source(Protocol):
    """What LoadPlanner needs of a StorageReader."""

    recipe: Recipe
    progress: Progress

    def opened(self, recipe: Recipe) -> Stored: ...


class LoadPlanner(DefaultLoadPlanner):
    """Does what torch.distributed.checkpoint does not do by itself, with reshard.dcp.StorageReader:

        planner = reshard.dcp.LoadPlanner(cast=True)
        dcp.load(state, storage_reader=reshard.dcp.StorageReader("step-1000", recipe="fuse.json"), planner=planner)
        planner.report["converted"]

    Each byte is read by one rank and redistributed; DTensors may have a shard order; values that are not tensors are
    read with torch.load(weights_only=True). Renaming and making tensors from others is up to the reader's `recipe`.

    Args:
        strict: all of the state dict must be in the checkpoint; False leaves what is not there as it is.
        cast: floating-point tensors of another dtype are converted; without it they are an error.
        read: "once", or "own": every rank reads what it needs.
        rank_local: patterns of names that each rank has for itself, as in reshard.save and reshard.load.
        group: the process group that takes part: the one that `dcp.load` is called with; None means the
            default group. The load is collective over it, also with `no_dist`.
    """

    report: dict[str, Any]  # after a load: what reshard.load returns

    def __init__(
        self,
        *,
        strict: bool = True,
        cast: bool = False,
        read: str = "once",
        group: Group = None,
        rank_local: Iterable[str] = (),
    ) -> None:
        # Names are made by Loading, which finds values again under keys of any type.
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False, allow_partial_load=not strict)
        if read not in ("once", "own"):
            raise ValueError(f'read is "once" or "own", not {read!r}')
        self._strict = strict
        self._cast = cast
        self._read = read
        self._group = group
        self._rank_local = rank_local
        self.report = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        if metadata is not None:
            metadata.state_dict_metadata  # raises what kept it from being read

    def create_local_plan(self) -> LoadPlan:
        # All ranks load together, not item by item; another reader finds nothing of this name and says so.
        nothing = MetadataIndex("(reshard.dcp.LoadPlanner needs reshard.dcp.StorageReader)")
        none = [0]
        return LoadPlan([ReadItem(LoadItemType.BYTE_IO, nothing, none, nothing, none, none)])

    def load_with(self, reader: Source) -> None:
        """Loads what `set_up_planner` was given. Collective; raises what reshard.load raises."""
        span = span_or_alone(self._group)
        how = (self._read, self._strict, self._cast, span, reader.progress, self._rank_local)
        self.report = Loading(reader.opened, reader.recipe, *how).into(self.original_state_dict)
