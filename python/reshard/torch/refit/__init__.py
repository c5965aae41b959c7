"""The weights of one job in the tensors of another: a trainer's in those of an engine that serves them."""

import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from ...errors import InputError, PeerError, UndeterminedError
from ...arguments import byte_count
from ..diagnostics import last_timings
from ..entries import dtype_of, gathered
from ..groups import Group, Span
from ..joined import Joined
from ..problems import Tensors, flat
from ..published import PendingPublication, Published, Publishing
from ..published.forms import Shared, of_engine, of_names, of_trainer
from ..published.given import Given
from ..record import Export, Loader, Recording, Shapes, exported
from ..record.engine import EngineParts, recorded
from ..record.expressions import Expression, Source
from ..record.recipes import from_json, to_json
from ..shared_store import default_timeout, ranks_text
from ..stored import recipe_text
from .changes import Changes
from .commit import Committer
from .exchanges import Exchanges
from .explain import Explanation, Timings
from .garbage import without_collections
from .loaded import joined, parts_of
from .schedule import Move, Rounds, Schedule
from .specs import Agreed, Side, describe, merge
from .stage import Stage

class Refit:
    """Moves a trainer's weights into an engine's, all or nothing, again and again.

        refit = reshard.Refit(source=model, group=joined)                      # in the job that trains
        refit = reshard.Refit(target=engine, group=joined)                     # in the job that serves
        refit = reshard.Refit(target=engine, loader=engine.load_weights, group=joined)   # the same, without a recipe
        refit()                                                                # in both, after every update
        refit(changed_only=True)                                               # the same, without what has not changed

    Every rank passes what it has: its part of the source, of the target, or of both. The tensors of both sides are
    matched by name, or by what a recipe makes of the source: fused, split, stacked, renamed or cast. An engine whose
    loader knows all that needs no recipe: the loader is recorded once (reshard.record), in each process of the engine with
    its own part of the parameters, whatever the engine's parallelism is. All is planned once; a call only moves.

    A call stages everything in buffers of its own. When all ranks have acknowledged, one compare-and-set in the store
    commits the version, and each rank copies what it has staged into its tensors, which keep their memory. An error
    before that leaves the old weights everywhere, one after it names who has not finished. The tensors are kept alive;
    nothing else may write them during a call.
    """

    version: int | None  # that this object has installed here last

    def __init__(
        self,
        source: Tensors | None = None,
        target: Tensors | None = None,
        *,
        recipe: str | os.PathLike | Mapping[str, Any] | None = None,
        loader: Loader | None = None,
        export: Export | None = None,
        installed: Callable[[], None] | None = None,
        group: Joined,
        memory_limit: int | str | None = None,
    ):
        """Collective: every rank of the group makes one.

        Args:
            source: a model, a dict (nested as in torch.distributed.checkpoint) or a list; DTensors and Fragments
                (reshard.fsdp1_fragments) in any layouts, and plain tensors, which are replicated over the ranks that pass
                them. None on ranks that have nothing.
            target: the same of what is written.
            recipe: what the target's tensors are made of (reshard.recipe/1): a file, or what is in one. Any rank may
                give it, and no other gives another. Without one, both sides have the same names.
            loader: what writes the target's tensors from (name, tensor) pairs under the source's names, in place of a
                recipe: an engine's load_weights, or a model's load_state_dict. It is called once with tensors that have
                no values. What a recording cannot say (`refit.recording`) is left to the loader: it is called on these
                tensors alone, after every update, when all others are installed. All ranks with a target give one, or none.
            export: where the loader expects other names or forms than the trainer's: what makes them of a dict of whole
                tensors, as a dict or (name, tensor) pairs. It is recorded too, and nothing is made whole: for a model of
                transformers, lambda state: revert_weight_conversion(model, state). Any ranks may give it.
            installed: called on this rank when a version is in its tensors, before the others hear of it: for what an
                engine makes of its weights. What it raises is an UndeterminedError: the version is committed.
            group: of reshard.join. One refit is in use over it at a time: making another ends this one.
            memory_limit: most bytes that a rank may take beside its tensors: staged, cast, and in messages; or text such
                as "2GiB". The least that a rank gives counts for all. More rounds are made where that is needed.

        Raises:
            ValueError: names that only one side has (with the nearest ones), other shapes, dtypes that are not cast, a
                malformed recipe or one that does not fit; ranks that have different things under one name.
            Exception: whatever the loader raises while it is recorded.
            NotImplementedError: placements that are not a layout; what a recipe makes that is not boxes of the source.
            reshard.LimitError: nothing fits the memory limit; with the rank, and what it needs.
            torch.distributed.DistBackendError: another rank could not make it, is gone or is late, by number.
        """
        self.version = None
        self._group = group
        self._ended: str = ""
        if group._store is None:
            raise RuntimeError("the group has been left; join again")
        group._instances += 1
        label = f"{group.generation}.{group._instances}"
        self._committer = Committer(
            group._store, label, group.rank, group.world, default_timeout(),
            lambda ranks: torch.ops.reshard._gone_ranks(group.span.name, ranks),
        )  # fmt: skip
        self._timings = Timings()
        begun = time.perf_counter()
        self._engine: EngineParts | None = None
        self._tensors = flat(source), flat(target)
        self._given: Given | None = None  # where the trainer's tensors are not what loaders are given
        self._installed = installed
        self._agreed = self._discover(source, target, recipe, loader, export, memory_limit)
        self._timings.discovery = time.perf_counter() - begun
        begun = time.perf_counter()
        self._plan()
        self._timings.planning = time.perf_counter() - begun

    def __call__(self, *, changed_only: bool = False) -> int:
        """Moves the source's current weights into the target. Collective over the group.

        Args:
            changed_only: leaves out moves (explain() counts them) of which no shard has changed since the last call,
                neither the source's nor the target's, so that the outcome is that of a call that moves all of them. Each
                rank reads its shards once for that, and compares 128-bit fingerprints; on GPUs it copies them to the
                host, one at a time. The first such call, and the first one after one without it, moves everything. The
                same on all ranks.

        Returns:
            The version, counted over all refits in the store.

        Raises:
            torch.distributed.DistBackendError, ValueError: a rank was lost, is late, says another `changed_only`, or has
                lost its tensors' memory, before anything was decided: the old weights are in place everywhere.
            reshard.PeerError: the same, while ranks acknowledged; or the version is committed and installed here, and
                ranks that are named have not finished.
            reshard.UndeterminedError: the store was lost before this rank knew what was decided.
            After any of these the refit has ended: join again, and make a new one.
        """
        if self._ended:
            raise RuntimeError(f"this refit has ended ({self._ended}); join again, and make a new one")
        try:
            begun = time.perf_counter()
            moves = self._compare(changed_only)
            compared = time.perf_counter()
            moves = self._wire(moves)
            wired = time.perf_counter()
            self._acknowledge()
            version = self._commit()
            committed = time.perf_counter()
            self._install(moves)
            self.version = version
            installed = time.perf_counter()
            self._finish()
            finished = time.perf_counter()
            self._remember(moves, changed_only)
        except BaseException as error:
            self._ended = f"{type(error).__name__}: {error}"
            raise
        self._timings.compare = compared - begun + time.perf_counter() - finished
        self._timings.wire = wired - compared
        self._timings.commit = committed - wired
        self._timings.install = installed - committed
        self._timings.finish = finished - installed
        return version

    def explain(self) -> Explanation:
        """What a call moves that leaves out nothing: tensors, bytes and their bound for each rank, bytes by link (sender
        and receiver), memory, rounds. str() is a text, to_dict() the same as a dict. Local."""
        return Explanation(self._schedule, self._agreed, self._group)

    def timings(self) -> dict[str, Any]:
        """Of this rank: seconds of discovery and planning and, of the last call, of compare (checks, what has changed),
        wire (exchanges, casts before them), commit, install and finish (until all have installed); bytes received, and
        the least that any algorithm could do with; bytes sent, by the plan; moves, and how many were skipped."""
        return self._timings.to_dict()

    def publish(
        self,
        place: "dist.Store | str | os.PathLike | None" = None,
        *,
        name: str = "weights",
        keep: int = 1,
        transport: str = "http",
        address: str | None = None,
        group: Group = None,
    ) -> Published:
        """Keeps the version that is installed, for servers that come later: they take it by reshard.pull, and nobody here
        waits for them.

        Collective over the ranks of one of the jobs, of the source or of the target, or of each: what trainers publish
        is for all servers, what an engine publishes is for others of its form.

        Args:
            place: None: the store in which the jobs meet. Otherwise, and everything else, as reshard.publish.
            group: the ranks of this job that have the source, or the target; None means the default group.

        Raises:
            RuntimeError: no version is installed yet.
            OSError: it cannot be written; and what else reshard.publish raises.
        """
        return self._publishing(place, name, keep, transport, address).now(self._shared, group)

    def publish_async(
        self,
        place: "dist.Store | str | os.PathLike | None" = None,
        *,
        name: str = "weights",
        keep: int = 1,
        transport: str = "http",
        address: str | None = None,
        group: Group = None,
    ) -> PendingPublication:
        """`publish` while this job goes on, of a copy in host memory; see reshard.publish_async."""
        return self._publishing(place, name, keep, transport, address).behind(self._shared, group)

    def _publishing(
        self, place: "dist.Store | str | os.PathLike | None", name: str, keep: int, transport: str, address: str | None
    ) -> Publishing:
        if self.version is None:
            raise RuntimeError("no version is installed yet: publish after the first call")
        where = self._group.store if place is None else place
        return Publishing(where, self.version, name, keep, transport, address)

    def _shared(self, span: Span) -> Shared:
        """What this job publishes. Collective over it."""
        source, target = self._tensors
        if source:
            return of_trainer(source, self._given)
        if self._engine is not None:
            return of_engine(self._engine, self._given or Given(_shapes(self._agreed), None), span)
        mine, theirs = self._agreed.target.specs, self._agreed.source.specs
        is_whole = not self._agreed.recipe and all(spec.dtype == theirs[name].dtype for name, spec in mine.items())
        return of_names(target, json.loads(self._agreed.recipe or "null"), is_whole, span)

    def _discover(
        self,
        source: Tensors | None,
        target: Tensors | None,
        recipe: str | os.PathLike | Mapping[str, Any] | None,
        loader: Loader | None,
        export: Export | None,
        memory_limit: int | str | None,
    ) -> Agreed:
        span = self._group.span
        own: dict[str, Any] = {"error": ""}
        tensors: list[dict[str, torch.Tensor]] = [{}, {}]
        failed: Exception | None = None
        try:
            described = []
            if loader is not None and (target is None or recipe is not None):
                raise InputError("loader: it writes a target, and no recipe is given beside it")
            for place, state in enumerate((source, None if loader is not None else target)):
                tensors[place], texts = describe(flat(state), span)
                described.append(texts)
            own |= {"loads": loader is not None, "exports": export is not None}
            own |= {"source": described[0], "target": described[1]}
            own |= {"recipe": recipe_text(recipe), "memory_limit": byte_count(memory_limit)}
            own["on_gpus"] = any(tensor.is_cuda for side in tensors for tensor in side.values())
            if self._group.rank == 0:
                own["begun"] = self._committer.begin()
        except Exception as error:  # the others hear of it in place of what they wait for
            failed, own = error, {"error": f"{type(error).__name__}: {error}"}
        everybody = gathered(own, span)
        self._raise(failed, [other["error"] for other in everybody])
        recipes = {other["recipe"] for other in everybody} - {""}
        if len(recipes) > 1:
            with_one = [rank for rank, other in enumerate(everybody) if other["recipe"]]
            raise ValueError(f"ranks {with_one} give different recipes")
        limits = [other["memory_limit"] for other in everybody if other["memory_limit"] is not None]
        self._committer.follow(everybody[0]["begun"])
        agreed = Agreed(
            Side(tensors[0], merge([other["source"] for other in everybody], "the source's")),
            Side(tensors[1], merge([other["target"] for other in everybody], "the target's")),
            next(iter(recipes), ""),
            min(limits, default=None),
            any(other["on_gpus"] for other in everybody),
        )
        if not any(other["loads"] for other in everybody):
            if any(other["exports"] for other in everybody):
                raise InputError("export: it makes what a loader is given, and no rank gives a loader")
            return agreed
        if recipes:
            raise InputError("some ranks give a loader, and others a recipe")
        without = [rank for rank, other in enumerate(everybody) if other["target"]]
        if without:
            raise InputError(f"{ranks_text(without)} have a target without a loader, and other ranks have loaders")
        exports = any(other["exports"] for other in everybody)
        given = self._exported(agreed, export) if exports else _sources(agreed)
        if exports:
            self._given = Given(_shapes(agreed), {name: to_json(value) for name, value in given.items()})
        return self._record(agreed, target, loader, given)

    def _exported(self, agreed: Agreed, export: Export | None) -> dict[str, Expression]:
        """What loaders are given, made of the source by what some ranks gave."""
        sources = _sources(agreed)
        failed: Exception | None = None
        made: dict[str, Any] | None = None
        try:
            if export is not None:
                made = {name: to_json(value) for name, value in exported(export, _shapes(agreed)).items()}
        except Exception as error:
            failed = error
        error_text = f"{type(failed).__name__}: {failed}" if failed else ""
        everybody = gathered([error_text, made], self._group.span)
        self._raise(failed, [other[0] for other in everybody])
        with_one = {rank: other[1] for rank, other in enumerate(everybody) if other[1] is not None}
        first = min(with_one)
        differ = [rank for rank, one in with_one.items() if one != with_one[first]]
        if differ:
            raise InputError(f"export: it makes something else on {ranks_text(differ)} than on rank {first}")
        return {name: from_json(value, sources) for name, value in with_one[first].items()}

    def _record(
        self, agreed: Agreed, target: Tensors | None, loader: Loader | None, given: Mapping[str, Expression]
    ) -> Agreed:
        """With a target as loaders say it."""
        failed: Exception | None = None
        engine = EngineParts.none()
        parts: list[list[Any]] = []
        try:
            if loader is not None and target is not None:
                engine = self._engine = recorded(target, loader, given)
                parts = parts_of(agreed.source.specs, engine)
        except Exception as error:
            failed = error
        said: dict[str, Any] = {"parts": parts, "reads": engine.needed}
        said["on_gpus"] = any(tensor.is_cuda for tensor in engine.tensors.values())
        said["error"] = f"{type(failed).__name__}: {failed}" if failed else ""
        everybody = gathered(said, self._group.span)
        self._raise(failed, [other["error"] for other in everybody])
        everything = [[other[key] for other in everybody] for key in ("parts", "reads")]
        loaded = joined(agreed.source.specs, given, *everything, engine, self._group.rank)
        on_gpus = agreed.on_gpus or any(other["on_gpus"] for other in everybody)
        return agreed._replace(target=loaded.side, rows=loaded.rows, kept=loaded.kept, on_gpus=on_gpus)

    @property
    def recording(self) -> Recording | None:
        """What the loader of this rank does with the source's tensors: what it leaves as it is, what it ignores, and what
        is left to it. None where there is no loader."""
        return self._engine.recording if self._engine else None

    def _plan(self) -> None:
        span, rank = self._group.span, self._group.rank
        failed: Exception | None = None
        try:
            with without_collections():
                # The same on all ranks, errors included.
                self._schedule = Schedule(self._agreed, self._group.world)
                self._stage = Stage(self._schedule, self._agreed.source, self._agreed.target, rank)
        except Exception as error:
            failed = error
        self._raise(failed, gathered(f"{type(failed).__name__}: {failed}" if failed else "", span))
        self._changes = Changes(self._schedule, self._agreed.source, self._agreed.target, rank)
        self._exchanges = Exchanges(self._schedule, self._stage, span.name)
        self._count(self._schedule.all)

    def _count(self, rounds: Rounds) -> None:
        total = functools.partial(rounds.total, self._group.rank)
        self._timings.received_bytes_bound, self._timings.sent_bytes = total("recv_bytes_bound"), total("send_bytes")
        self._timings.moves = sum(map(len, rounds.moves))
        self._timings.skipped_moves = len(self._schedule.moves) - self._timings.moves

    def _raise(self, failed: Exception | None, errors: list[str]) -> None:
        if failed is not None:
            raise failed
        for rank, error in enumerate(errors):
            if error:
                raise PeerError(f"rank {self._group.rank}: rank {rank} failed: {error}")

    def _compare(self, changed_only: bool) -> list[Move]:
        """What this call moves. Where a rank cannot take part in what follows, the others hear of it here, and find why
        in the store."""
        needed: int | None = None
        failed: Exception | None = None
        try:
            self._stage.check()
            needed = self._changes.look() if changed_only else 0
        except Exception as error:
            failed = error
        moves: list[Move] | None = None
        try:
            moves = self._changes.agree(bool(changed_only), needed, self._group.span.name)
        except Exception as error:
            failed = failed or error
        if failed is not None:
            self._give_up(failed)
        return moves or []

    def _wire(self, moves: list[Move]) -> list[Move]:
        """Exchanges; returns what was moved. Where this rank cannot take part in what follows, it still takes part in
        this, and gives up the version for all."""
        self._timings.received_bytes = 0
        failed: Exception | None = None
        try:
            rounds, batches = self._exchanges.of(moves)
            moves = [move for round_ in rounds.moves for move in round_]
            self._count(rounds)
            try:
                self._stage.cast(moves)
            except Exception as error:
                failed = error
            for batch in batches:
                batch.run()
                self._timings.received_bytes += int(last_timings(self._group.span.name)["received_bytes"])
            self._stage.wait()
        except Exception as error:
            failed = failed or error
        if failed is not None:
            self._give_up(failed)
        return moves

    def _give_up(self, failed: Exception) -> NoReturn:
        decided = ""
        try:
            decided = self._committer.abort(f"rank {self._group.rank}: {failed}").partition(" aborted: ")[2]
        except PeerError:
            pass  # nothing is committed without this rank
        raise failed from (PeerError(decided) if decided else None)

    def _acknowledge(self) -> None:
        self._committer.acknowledge()

    def _commit(self) -> int:
        return self._committer.decide()

    def _install(self, moves: list[Move]) -> None:
        try:
            self._stage.install(moves)
            if self._engine is not None:
                self._engine.finish({move.view.target for move in moves})
            if self._installed is not None:
                self._installed()
        except BaseException as error:
            raise UndeterminedError(
                f"rank {self._group.rank}: version {self._committer.version} is committed, but only a part of it is "
                f"installed here: {error}. Do not serve from this rank"
            ) from error

    def _finish(self) -> None:
        self._committer.finish()

    def _remember(self, moves: list[Move], changed_only: bool) -> None:
        if changed_only:
            self._changes.installed(moves)
        else:
            self._changes.forget()


def _sources(agreed: Agreed) -> dict[str, Source]:
    return {name: Source(spec.shape, dtype_of(spec.dtype), name) for name, spec in agreed.source.specs.items()}


def _shapes(agreed: Agreed) -> Shapes:
    return {name: (source.shape, source.dtype) for name, source in _sources(agreed).items()}
