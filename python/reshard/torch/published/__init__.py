"""Weights that a job leaves for whoever comes later: a server takes the newest version while the trainer trains on."""

import contextlib
import functools
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch.distributed as dist

from ...errors import InputError, LimitError, MissingFileError, PeerError, UndeterminedError
from ..behind import Behind, wait_for_last
from ..entries import gathered, gathered_or_raised, rank_in, span_or_alone
from ..groups import Group, Span
from ..problems import Tensors, flat
from ..record import Export, Loader, shapes_of
from ..save import How, Staged, write
from ..shared_store import default_timeout
from ..stored import Recipe
from . import by_nixl
from .forms import Shared, of_trainer
from .given import Given, given_by, put_given, remove_given
from .publications import InFolder, InMemory, Publications, Version, place_of
from .takers import OtherForm, Taker, taker_of

__all__ = ["PendingPublication", "Published", "Pulled", "Puller", "publish", "publish_async", "pull"]

_LOOKS_PER_SECOND = 10


class Published(NamedTuple):
    """What `publish` did."""

    version: int
    bytes: int  # that this rank wrote
    seconds: float


class Pulled(NamedTuple):
    """What `pull` did."""

    version: int
    form: str  # "source", or what tells the form of a server's copy
    bytes: int  # of this rank's tensors
    read_bytes: int  # that this rank read
    seconds: float


def publish(
    place: "dist.Store | str | os.PathLike",
    state: Tensors,
    *,
    version: int | None = None,
    name: str = "weights",
    keep: int = 1,
    export: Export | None = None,
    transport: str = "http",
    address: str | None = None,
    group: Group = None,
) -> Published:
    """Keeps the weights as they are now for servers that come later, and for those that have lost theirs.

        reshard.publish(store, model)                  # in the trainer, after an update
        reshard.pull(store, engine, loader=...)        # in a server, whenever it wants to: nobody waits for it

    With a c10d store every rank copies what it alone has to give into shared memory of its host, where a process of its
    own serves it: servers on the same host read the memory, others ask over HTTP, and this process is not asked for
    anything. It is there until this process ends. With a directory, or a URL of a bucket, each version is a checkpoint
    in a folder of it, which `load` reads, too.

    Collective over the group. Complete or not there: nobody sees a version before all of its ranks have written it.

    Args:
        place: a c10d store that both jobs reach, such as the one of reshard.join; a directory; or a URL of a bucket.
        state: a model, a dict (also a nested one) or a list: DTensors in any layouts, and plain tensors.
        version: its number. None: one more than the newest.
        name: of what is published, where a c10d store is for several things.
        keep: versions that are kept, this one included. An older one goes when a newer one is complete; in memory not
            before those who are reading it are done, or RESHARD_TIMEOUT_MS have passed.
        export: where servers expect other names or forms: what makes them of a dict of whole tensors, as for Refit. It is
            recorded, and goes with the weights; nothing is made of them here.
        transport: how other hosts read this one's memory. "http": a process of its own sends it. "nixl": they read it by
            themselves, over InfiniBand where there is one; both sides need NIXL, and others read by HTTP.
        address: at which other hosts reach this one; None: the address at which it reaches the store's server. Whoever
            reaches it and reads the store may read the weights.
        group: the process group that has the state; None means the default group.

    Raises:
        ValueError: a newer version is there; partial values; ranks that pass different things under one name.
        OSError: not enough shared memory; a place that cannot be written.
        RuntimeError: another rank failed.
        reshard.PeerError: the store is lost.
    """
    return Publishing(place, version, name, keep, transport, address).now(lambda _: _of_state(state, export), group)


class PendingPublication(Behind[Published]):
    """A version that is published behind; see `publish_async`."""


def publish_async(
    place: "dist.Store | str | os.PathLike",
    state: Tensors,
    *,
    version: int | None = None,
    name: str = "weights",
    keep: int = 1,
    export: Export | None = None,
    transport: str = "http",
    address: str | None = None,
    group: Group = None,
) -> PendingPublication:
    """`publish`, of the weights as they are now, while the job goes on.

        pending = reshard.publish_async("s3://bucket/weights", model)
        ...                                                     # the next steps
        pending.wait()

    Copies the weights into host memory, then publishes the copy on a thread of its own, over process groups of its own.
    What is begun later on the same group, such as the next version or a `save_async`, comes after it. A program that
    ends waits for it; an error that nobody waits for is a warning.

    Collective; arguments and errors are those of `publish`. What is wrong with the weights is raised here, the rest
    where somebody waits.

    Returns:
        The publication, to wait for.
    """
    return Publishing(place, version, name, keep, transport, address).behind(lambda _: _of_state(state, export), group)


def _of_state(state: Tensors, export: Export | None) -> Shared:
    state_dict = flat(state)
    return of_trainer(state_dict, given_by(shapes_of(state_dict), export) if export is not None else None)


class Publishing(NamedTuple):
    """`publish` of what a function makes on all ranks together; the arguments are those of `publish`."""

    place: "dist.Store | str | os.PathLike"
    version: int | None
    name: str
    keep: int
    transport: str
    address: str | None

    def now(self, made: Callable[[Span], Shared], group: Group) -> Published:
        begun = time.perf_counter()
        span = span_or_alone(group)
        wait_for_last(span)  # what is published behind is older
        work = self._prepared(made, span, False)
        return work(span)._replace(seconds=time.perf_counter() - begun)

    def behind(self, made: Callable[[Span], Shared], group: Group) -> PendingPublication:
        begun = time.perf_counter()
        span = span_or_alone(group)
        work = self._prepared(made, span, True)
        text = f"the weights are not published at {self.place}"
        return PendingPublication(
            span, lambda side: work(side)._replace(seconds=time.perf_counter() - begun), f"{text} yet", text
        )

    def _prepared(self, made: Callable[[Span], Shared], span: Span, copies: bool) -> Callable[[Span], Published]:
        """What is to be done on a group of these ranks."""
        where, what, error = None, None, None
        try:
            if self.keep < 1:
                raise InputError(f"keep: {self.keep} versions; at least the new one is kept")
            where = place_of(self.place, self.name, self.address)
            _use(where, self.transport)
            what = made(span)
        except Exception as failure:
            error = failure
        gathered_or_raised(None, error, span)
        assert where is not None and what is not None
        copy = _copy_of(what, span, copies)
        return functools.partial(_published_at, where, copy, self.version, self.keep)


class _Copy(NamedTuple):
    """What is published, as it is written."""

    staged: Staged
    form: str
    given: Given | None


def _copy_of(what: Shared, span: Span, copies: bool) -> _Copy:
    """Collective. `copies`: the tensors may change before they are written."""
    return _Copy(Staged.of(what.state, span, How("none", what.rank_local, copies)), what.form, what.given)


def _published_at(place: Publications, what: _Copy, number: int | None, keep: int, span: Span) -> Published:
    new, error = None, None
    try:
        if rank_in(span) == 0:
            place.prepare()
            newest = max((version.number for version in place.versions()), default=0)
            if number is not None and number < newest:
                raise InputError(f"version {number}: a newer one, {newest}, is published at {place.base}")
            new = Version.new(newest + 1 if number is None else number, what.form)
            if what.given is not None:
                put_given(place.url(new), what.given)
    except Exception as failure:
        error = failure
    new = Version(*gathered_or_raised(new, error, span)[0])
    try:
        facts = write(place.url(new), what.staged, span, False, None)
    except BaseException:
        place.free(new)
        raise
    old, error = [], None
    try:
        if rank_in(span) == 0:
            place.announce(new)
            old = _retired(place, new, keep)
    except Exception as failure:
        error = failure
    for version in gathered_or_raised(old, error, span)[0]:
        place.free(Version(*version))
    return Published(new.number, facts["written_bytes"], 0.0)


def _use(place: Publications, transport: str) -> None:
    if transport not in ("http", "nixl"):
        raise InputError(f'transport is "http" or "nixl", not {transport!r}')
    if transport == "nixl" and not by_nixl.is_there():
        raise InputError('transport: "nixl" needs its package: pip install nixl-cu13')
    if isinstance(place, InMemory):
        place.files.by_nixl = transport == "nixl"


# Of this process, as the first of a job: what it has published, by place and form, and since when nobody finds it.
_own: dict[tuple[str, str], dict[Version, float | None]] = {}
os.register_at_fork(after_in_child=_own.clear)


def _retired(place: Publications, new: Version, keep: int) -> list[Version]:
    """Those of this job that are gone, after nobody has found them for so long as somebody read them."""
    own = _own.setdefault((place.base, new.form), {})
    if isinstance(place, InFolder):  # what an earlier job has left is nobody's
        own.update((version, None) for version in place.versions() if version not in own)
    own[new] = None
    gone = []
    for version in sorted(own, key=lambda version: version.number, reverse=True)[keep:]:
        since = own[version]
        if since is None:
            place.hide(version)
            since = own[version] = time.monotonic()
        if not place.is_read(version) or time.monotonic() > since + default_timeout():
            place.remove(version)
            remove_given(place.url(version))
            gone.append(version)
            del own[version]
    return gone


def pull(
    place: "dist.Store | str | os.PathLike",
    target: Tensors,
    *,
    recipe: Recipe = None,
    loader: Loader | None = None,
    newer_than: int | None = None,
    wait: float = 0.0,
    staged: bool = True,
    share: bool = False,
    name: str = "weights",
    address: str | None = None,
    cast: bool = False,
    group: Group = None,
) -> Pulled | None:
    """Takes the newest weights that are published, without the time of those who have them.

        pulled = reshard.pull(store, engine, loader=engine.load_weights)
        pulled = reshard.pull(store, engine, loader=engine.load_weights, newer_than=pulled.version, wait=60)

    Where several jobs have the version, one is chosen that few read; where it has gone, or is damaged, another one. With
    `share` this job has it, too, from then on: the first server reads from the trainer, and hundreds from each other.

    Collective over the group. The tensors keep their memory.

    Args:
        place, name: as `publish` was given them.
        target: a model, a dict (also a nested one) or a list, of which every tensor is to be published: DTensors in any
            layouts, and plain tensors, which are replicated.
        recipe: what the target's tensors are made of (reshard.recipe/1), where they have other names or forms.
        loader: what writes the target's tensors from (name, tensor) pairs instead, as for Refit: recorded on each rank,
            which reads what its own part is made of and no more.
        newer_than: a version; only a newer one is taken.
        wait: seconds to wait for one.
        staged: read all of it into host memory first. An error then leaves the old weights in place on all ranks.
            Without it the tensors are written as it comes, and after an error nothing is to be served from them.
        share: publish what has come, in the form that this job has it, for others of the same form. In memory alone.
        address: as of `publish`, for `share`.
        cast: floating-point tensors of another dtype are converted.
        group: the process group of the target; None means the default group.

    Returns:
        What came; None: there is no version newer than `newer_than`.

    Raises:
        FileNotFoundError: nothing is published, and no `newer_than` is given.
        ValueError: names that are not published, other shapes or dtypes; a recipe that does not fit.
        OSError, RuntimeError: no copy of the newest version can be read; another rank failed.
        reshard.PeerError: the store is lost.
        reshard.UndeterminedError: all of it was read, and could not be installed here: by the loader, or for want of memory.
    """
    options: dict[str, Any] = {"recipe": recipe, "loader": loader, "staged": staged, "share": share, "name": name}
    puller = Puller(place, target, **options, address=address, cast=cast, group=group)
    puller.version = newer_than
    return puller(wait=wait)


class Puller:
    """`pull`, again and again into the same tensors: what their loader makes of the weights is recorded once.

        puller = reshard.Puller(store, engine, loader=engine.load_weights)
        while pulled := puller(wait=600):
            serve()
    """

    version: int | None = None  # that was taken last: only a newer one is taken

    def __init__(
        self,
        place: "dist.Store | str | os.PathLike",
        target: Tensors,
        *,
        recipe: Recipe = None,
        loader: Loader | None = None,
        staged: bool = True,
        share: bool = False,
        name: str = "weights",
        address: str | None = None,
        cast: bool = False,
        group: Group = None,
    ):
        """Collective over the group. Everything as in `pull`.

        Raises:
            ValueError: a recipe that does not fit, or beside a loader; `share` with a directory or a bucket.
            reshard.PeerError: the store is lost.
        """
        self._span, self._staged, self._share = span_or_alone(group), staged, share
        where, taker, error = None, None, None
        try:
            where = place_of(place, name, address)
            if share and isinstance(where, InFolder):
                raise InputError("share: a directory or bucket has it already; what servers share is in a c10d store")
            taker = taker_of(where, target, recipe, loader, cast, self._span)
        except Exception as failure:
            error = failure
        gathered_or_raised(None, error, self._span)
        assert where is not None and taker is not None
        self._where, self._taker = where, taker

    def __call__(self, *, wait: float = 0.0) -> Pulled | None:
        """Takes a newer version. Collective over the group.

        Args:
            wait: seconds to wait for one.

        Returns:
            What came; None: there is nothing newer than what was taken last.

        Raises:
            FileNotFoundError: nothing is published, and nothing was taken yet.
            ValueError, OSError, RuntimeError, reshard.PeerError, reshard.UndeterminedError: as `pull`.
        """
        begun = time.perf_counter()
        where, span = self._where, self._span
        until = time.monotonic() + wait
        tried: list[Version] = []
        failed: Exception | None = None
        while True:
            with contextlib.ExitStack() as reading:
                version = _chosen(where, self.version, until, tried, reading, span)
                if version is None and failed is not None:
                    raise failed
                if version is None and self.version is None:
                    raise MissingFileError(f"nothing is published at {where.base} yet")
                if version is None:
                    return None
                taken, failed = _taken(where, version, self._taker, self._staged, span)
            if taken is not None:
                break
            tried.append(version)
        self.version = version.number
        if self._share:
            _share(where, self._taker, version, span)
        return Pulled(version.number, version.form, taken["bytes"], taken["read_bytes"], time.perf_counter() - begun)


def _share(place: Publications, taker: Taker, version: Version, span: Span) -> None:
    """Publishes what was taken, unless a newer version is there by now."""
    what = taker.shared()
    newest, error = 0, None
    try:
        if rank_in(span) == 0:
            newest = max((other.number for other in place.versions()), default=0)
    except Exception as failure:
        error = failure
    if gathered_or_raised(newest, error, span)[0] <= version.number:
        with contextlib.suppress(InputError):  # it came just now, which all ranks are told alike
            _published_at(place, _copy_of(what, span, False), version.number, 1, span)


def _chosen(
    place: Publications,
    newer_than: int | None,
    until: float,
    tried: list[Version],
    reading: contextlib.ExitStack,
    span: Span,
) -> Version | None:
    """A copy of the newest version, by the first rank, which says in `reading` that it is read; the same on all ranks.
    None: there is nothing newer, nor does it come within the time; or all copies have been tried."""
    chosen, error = None, None
    try:
        while rank_in(span) == 0 and chosen is None:
            there = [version for version in place.versions() if newer_than is None or version.number > newer_than]
            newest = max((version.number for version in there), default=None)
            left = [version for version in there if version.number == newest and version not in tried]
            if left:
                reading.enter_context(place.reading(left[0]))
                # What is removed after that was said waits for it.
                chosen = left[0] if left[0] in place.versions() else None
            elif tried or time.monotonic() >= until:
                break
            else:
                time.sleep(1 / _LOOKS_PER_SECOND)
    except Exception as failure:
        error = failure
    answer = gathered_or_raised(chosen, error, span)[0]
    return Version(*answer) if answer else None


def _taken(
    place: Publications, version: Version, taker: Taker, staged: bool, span: Span
) -> tuple[dict[str, Any] | None, Exception | None]:
    """What was read, on all ranks; or why this copy cannot be read, where another one may be."""
    install, facts, error = None, None, None
    try:
        install, facts = taker.take(version, staged)
    except PeerError:
        raise
    except Exception as failure:
        error = failure
    is_final = error is not None and not _may_be_the_copy(error)
    everybody = gathered([is_final, str(error) if error else ""], span)
    if error is None and not any(text for _, text in everybody):
        assert install is not None
        try:
            install()
        except BaseException as failure:
            raise UndeterminedError(
                f"rank {rank_in(span)}: version {version.number} is here, but only a part of it is installed: {failure}. Do not "
                "serve from this rank"
            ) from failure
        return facts, None
    if any(is_final for is_final, _ in everybody):
        rank, text = next((rank, text) for rank, (is_final, text) in enumerate(everybody) if is_final)
        raise error if is_final and error else RuntimeError(f"rank {rank}: {text}")
    if rank_in(span) == 0 and not isinstance(error, OtherForm):
        place.failed(version)
    return None, error or RuntimeError(next(f"rank {rank}: {text}" for rank, (_, text) in enumerate(everybody) if text))


def _may_be_the_copy(error: Exception) -> bool:
    return isinstance(error, (OSError, RuntimeError)) and not isinstance(error, (InputError, LimitError))
