"""The tensors of a running job as a checkpoint, at once or behind what the job does next."""

import io
import json
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from .entries import ALONE, Entry, agreed, dtype_of, entries_of, gathered_or_raised, rank_in, span_or_alone, states_of
from .groups import Group, Span, side_group
from .private_pytorch import flatten_state_dict
from .progress import Progress, Told, told, told_of
from .stored import bytes_tensor, facts_of


def save(
    path: str | os.PathLike,
    state_dict: Mapping[str, Any],
    *,
    overwrite: bool = False,
    group: Group = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Saves a state dict as a distributed checkpoint, which torch.distributed.checkpoint.load reads too.

    Each rank writes what it holds; of replicas one is written, and all ranks write about as much. The checkpoint
    appears atomically and complete, or not at all, with a sidecar, reshard.json, that has meshes, layouts and hashes.
    DTensors with a shard order are saved as they are, which torch.distributed.checkpoint.save does not support.

    Collective: every rank of the group calls it. Ranks may pass different names, such as those of their pipeline
        stages. Without torch.distributed the process is alone.

    Args:
        path: the directory to create, on a filesystem that every rank sees.
        state_dict: nested as in torch.distributed.checkpoint. A plain tensor is taken from the first rank that has it;
            values that are not tensors are pickled with torch.save, by the first rank that has them. A model, an
            optimizer or another `Stateful` object is asked for its state.
        overwrite: atomically replace what is at the path, once the new checkpoint is complete.
        group: the process group that takes part; None means the default group.
        progress: called with (bytes done, bytes in total) that this rank writes, on this thread: before anything is
            written, a few times a second, and when all is, just before the checkpoint appears. What it raises, such as
            KeyboardInterrupt, ends the save on all ranks, and is raised here. True prints a line every 5 seconds on
            stderr, on rank 0. Ranks may differ.

    Returns:
        What this rank did: tensors, written_bytes, seconds.

    Raises:
        ValueError: a placement that no layout can express, a partial tensor, or ranks that pass different things under
            one name.
        FileExistsError, OSError: there is something at the path; the disk is full or cannot be written.
        RuntimeError: another rank failed, is gone or disagrees.
        What was at the path is still there after any of them.
    """
    span = span_or_alone(group)
    tell = told_of(progress, rank_in(span))
    return _write(path, _Staged.of(state_dict, span, copies=False), span, overwrite, tell)


class PendingSave:
    """A save that is written behind; see `save_async`."""

    def __init__(self, path: str | os.PathLike, work: Callable[[], dict[str, Any]]) -> None:
        self._path = os.fspath(path)
        self._result: dict[str, Any] | None = None
        self._error: BaseException | None = None
        self._seen = False

        def run() -> None:
            try:
                self._result = work()
            except BaseException as error:  # kept for whoever waits
                self._error = error

        # No daemon: a program that ends waits for its checkpoint.
        self._thread = threading.Thread(target=run, name=f"reshard.save {self._path}")
        self._thread.start()

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """What `save` returns, once the checkpoint is complete; raises what `save` raises.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it is not done; wait again.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._path} is not written yet, after {timeout} s")
        self._seen = True
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def __del__(self) -> None:
        if not self._seen and self._error is not None:
            warnings.warn(f"{self._path} was not saved, and nobody waited: {self._error}", RuntimeWarning, 1)


def save_async(
    path: str | os.PathLike,
    state_dict: Mapping[str, Any],
    *,
    overwrite: bool = False,
    group: Group = None,
    progress: Progress = None,
) -> PendingSave:
    """`save`, of the state as it is now, while the job goes on.

        pending = reshard.save_async("step-1000", {"model": model})
        ...                                                     # the next steps
        pending.wait()

    Copies the state into host memory, then writes it on a thread of its own, over process groups of its own, so that
    what the job communicates meanwhile is not in its way. One that is not done delays the next one on the same group.
    A program that ends waits for it; an error that nobody waits for is a warning.

    Collective; arguments and errors are those of `save`, but `progress` is called on the thread that writes. What is
    wrong with the state is raised here, the rest where somebody waits.

    Returns:
        The save, to wait for.
    """
    span = span_or_alone(group)
    tell = told_of(progress, rank_in(span))
    staged = _Staged.of(state_dict, span, copies=True)
    side = side_group(span) if span != ALONE else span
    before = _pending.get(side.name, lambda: None)()

    def work() -> dict[str, Any]:
        if before is not None:
            before._thread.join()
        return _write(path, staged, side, overwrite, tell)

    pending = PendingSave(path, work)
    _pending[side.name] = weakref.ref(pending)
    return pending


# The last one on each group. Not kept: one that is dropped says what went wrong.
_pending: dict[str, Callable[[], PendingSave | None]] = {}


class _Staged(NamedTuple):
    """What a rank saves."""

    own: dict[str, Entry]
    items: dict[str, bytes]
    entries: list[tuple]  # the tensors of all ranks
    item_facts: dict[str, tuple[int, int]]  # of all ranks; name: rank, length
    paths: dict[str, tuple]

    @classmethod
    def of(cls, state_dict: Mapping[str, Any], span: Span, copies: bool) -> "_Staged":
        own: dict[str, Entry] = {}
        items: dict[str, bytes] = {}
        paths: dict[str, tuple] = {}
        error = None
        try:
            flat, paths = flatten_state_dict(states_of(dict(state_dict)))
            own = entries_of(flat, span)
            items = {name: _pickled(value) for name, value in flat.items() if name not in own}
            own = {name: entry._replace(local=_on_host(entry.local, copies)) for name, entry in own.items()}
        except Exception as failure:  # the others wait for what this rank says
            error = failure
        lengths = {name: len(bytes_) for name, bytes_ in items.items()}
        described = [[entry.described for entry in own.values()], lengths, paths]
        answers = gathered_or_raised(described, error, span)
        entries = agreed([answer[0] for answer in answers])
        item_facts: dict[str, tuple[int, int]] = {}
        all_paths: dict[str, tuple] = {}
        for holder, (_, rank_lengths, rank_paths) in enumerate(answers):
            for name, length in rank_lengths.items():
                item_facts.setdefault(name, (holder, length))
            for name, rank_path in rank_paths.items():
                all_paths.setdefault(name, tuple(rank_path))
        return cls(own, items, entries, item_facts, all_paths)


def _write(path: str | os.PathLike, staged: _Staged, span: Span, overwrite: bool, tell: Told | None) -> dict[str, Any]:
    rank = rank_in(span)
    names = [entry[0] for entry in staged.entries]
    item_names = sorted(staged.item_facts)
    facts = staged.item_facts
    locals_ = [
        staged.own[name].local if name in staged.own else torch.empty([0], dtype=dtype_of(dtype))
        for name, _, _, dtype, _ in staged.entries
    ]
    arguments = (
        locals_,
        os.fspath(path),
        names,
        [entry[1] for entry in staged.entries],
        [entry[2] for entry in staged.entries],
        [int(entry[4]) for entry in staged.entries],
        [bytes_tensor(staged.items[name] if facts[name][0] == rank else b"") for name in item_names],
        item_names,
        [facts[name][0] for name in item_names],
        [facts[name][1] for name in item_names],
        json.dumps([list(staged.paths[name]) for name in names + item_names]),
        span.name,
        overwrite,
    )
    return facts_of(told(lambda progress: torch.ops.reshard._save(*arguments, progress), tell))


def _on_host(local: torch.Tensor, copies: bool) -> torch.Tensor:
    resolved = local.resolve_conj().resolve_neg()
    host = resolved.cpu()
    return host.clone() if copies and host.data_ptr() == local.data_ptr() else host


def _pickled(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
