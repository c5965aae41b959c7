"""Checkpoints on disk, in object stores or on https servers: listed, rewritten, compared. Nothing in a file is ever executed."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _core
from .arguments import Mesh, byte_count, dtype_name, mesh_text
from .errors import InputError
from .planning import _Result
from .sources.interface import Source
from .sources.places import at_place
from .stores.calls import take_over

__all__ = ["Checkpoint", "Comparison", "Conversion", "convert", "inspect", "verify"]

take_over(_core.use_stores)

Path = str | os.PathLike[str]
SourcePath = Path | Source
# Called with the bytes done, the bytes to do, and the seconds since the start.
Progress = Callable[[int, int, float], object]
# {"*norm*": "f32", "*": "bf16"}, pairs of these, or one dtype for all.
DTypes = Mapping[str, object] | Iterable[tuple[str, object]] | object


class _Report(_Result):
    def __init__(self, text: str):
        self._json = text
        self._dict: dict[str, Any] = json.loads(text)

    def to_json(self) -> str:
        """One line of JSON, as the command prints it with --json."""
        return self._json

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict."""
        return self._dict


class Checkpoint(_Report):
    """What is in a checkpoint; keys are those of docs/inspect.schema.json."""

    @property
    def format(self) -> str:
        """ "dcp", "safetensors", ... """
        return self["format"]

    @property
    def tensors(self) -> dict[str, dict[str, Any]]:
        """By name: {"shape": [512, 128], "dtype": "bf16", "bytes": ..., "layout": ..., ...}."""
        return {tensor["name"]: tensor for tensor in self["tensors"]}

    def __str__(self) -> str:
        lines = [f"{t['name']}  {t['dtype']}  {t['shape']}  {t['layout'] or ''}".rstrip() for t in self["tensors"]]
        return "\n".join([*lines, repr(self)[1:-1].removeprefix("reshard.Checkpoint: ")])

    def __repr__(self) -> str:
        totals = self["totals"]
        return (
            f"<reshard.Checkpoint: {self.format}, {totals['tensors']} tensors, {totals['bytes']} bytes, "
            f"{totals['files']} files>"
        )


class Conversion(_Report):
    """What a conversion did, or would do; keys are those of docs/checkpoint.schema.json."""

    @property
    def tensors(self) -> int:
        """The number of tensors."""
        return self["tensors"]

    @property
    def bytes(self) -> int:
        """Bytes of contents."""
        return self["bytes"]

    @property
    def left_out(self) -> list[str]:
        """Byte items and others that the target format has no place for; everything left out is listed here."""
        return [*self["left_out"], *self["left_out_items"]]

    @property
    def side_files(self) -> list[str]:
        """Files copied from beside the source."""
        return [file["path"] for file in self["side_files"]]

    @property
    def taken_off(self) -> list[str]:
        """With to="hf", what was taken off the names of the weights: ["_orig_mod.", "model."]."""
        return [wrapper["text"] for wrapper in self["taken_off"]]

    def __repr__(self) -> str:
        left_out = f", {len(self.left_out)} left out" if self.left_out else ""
        dry_run = "dry run, " if self["dry_run"] else ""
        return f"<reshard.Conversion: {dry_run}{self.tensors} tensors, {self.bytes} bytes, {self['files']} files{left_out}>"


class Comparison(_Report):
    """How two checkpoints differ: bool(comparison) is whether they are equal; keys are those of
    docs/verify.schema.json."""

    @property
    def equal(self) -> bool:
        return self["equal"]

    @property
    def differences(self) -> dict[str, str]:
        """By name, what differs: "only in A", "dtype f32 in A, bf16 in B", ..."""
        return {one["name"]: one["what"] for one in self["differences"]}

    def __bool__(self) -> bool:
        return self.equal

    def __repr__(self) -> str:
        found = "equal" if self.equal else f"{len(self.differences)} differ"
        return f"<reshard.Comparison: {self['tensors']} tensors, {self['bytes']} bytes: {found}>"


def inspect(path: SourcePath, *, tensor: str = "", chunks: bool = False) -> Checkpoint:
    """Lists a checkpoint: a directory (DCP, safetensors, .bin sets, files of ranks, ...), a file, a URL of either, or a
    Source.

    Args:
        path: where it is.
        tensor: lists only names that match (* is any text, ? one character).
        chunks: also lists the chunks of every tensor.

    Raises:
        InputError: not a checkpoint, or a damaged one.  FileError: the system or a server refused.
    """
    with at_place(path) as place:
        return Checkpoint(_core.inspect(place, tensor, chunks))


def convert(
    source: SourcePath,
    destination: Path,
    *,
    to: str = "dcp",
    rules: Mapping[str, Any] | Path | None = None,
    mesh: Mesh | None = None,
    layout: str | None = None,
    recipe: Mapping[str, Any] | Path | None = None,
    invert: bool = False,
    dtype: DTypes | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    weights_only: bool = False,
    byte_items: bool = True,
    strip_prefix: str = "",
    rename: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    add_prefix: str = "",
    allow_unmatched: bool = False,
    partial: bool = False,
    rank_local: str | None = None,
    with_training_state: bool = False,
    keep_names: bool = False,
    side_files: bool | Sequence[str] = True,
    memory_limit: int | str = "1GiB",
    file_size: int | str | None = None,
    threads: int = 0,
    workers: int = 1,
    worker: int = 0,
    dry_run: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    resume: bool = False,
    clean: bool = False,
    verify: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Rewrites a checkpoint in another layout or format, in bounded memory. The result appears complete, or not at all.

        reshard.convert("step-1000", "exported", to="hf")
        reshard.convert("step-1000", "serving", mesh="{tp:8}", layout="[<tp>, ...]")

    Args:
        source: a checkpoint of any kind that inspect() lists.
        destination: the directory to create, or the URL of a place in a store (docs/tasks/stores.md).
        to: "dcp", "safetensors", "orbax" (what JAX programs restore), or "hf": what from_pretrained loads, the weights
            alone as safetensors with an index, under the names of the bare model, without what wrappers add to them
            (module., _orig_mod., ...).
        rules: which tensors get which layout ({"mesh": ..., "layouts": [...]}), or the path of a file with them.
        mesh, layout: in place of rules, one layout rule for all tensors.
        recipe, invert: which tensors to make from those of the source (docs/recipes.md), or the path of a file; invert
            applies the recipe backwards.
        dtype: what floats are cast to: one dtype, or one for each pattern of names in the result.
        include, exclude: patterns of names in the source.
        weights_only: no byte items, and no training state.  byte_items=False: no byte items.
        strip_prefix, rename, add_prefix: how names change, in this order; {"h.*.w": "layers.$1.weight"}. With to="hf"
            they match names with or without what wrappers add.
        allow_unmatched: a pattern or prefix of these, of dtype or of side_files may match nothing; otherwise that is an
            error, which gives the nearest name.
        partial: continues although files of the source are missing.
        rank_local: "keep": what differs between the files of ranks is taken from each, as NAME.rank_0, ...; otherwise
            that is an error.
        with_training_state: with to="hf", also the tensors of optimizers and the like.
        keep_names: with to="hf", keeps what wrappers add to names.
        side_files: patterns of further files to copy from beside the source; False copies none.
        memory_limit, file_size: bytes, or text such as "4GiB". By default, safetensors files have at most 5 GiB, objects
            in a store 1 GiB, and chunks of Orbax 64 MiB.
        threads: 0 is one per core.
        workers, worker: several processes share the job, each with the same arguments except its number.
        dry_run: writes nothing, and reports what would be written.
        overwrite: atomically replaces what is at the destination.
        restart: starts over; otherwise the same call continues an interrupted run.
        resume: succeeds where this same job has already completed the destination, as a requeued job needs it.
        clean: first removes what interrupted runs left behind, this job's and others'.
        verify: reads the result back and compares it before it appears.
        progress: called with (bytes done, bytes to do, seconds); an exception from it ends the run.

    Ctrl-C ends the run with KeyboardInterrupt; the same call then continues.

    Raises:
        InputError: arguments that make no sense, a source that is not a checkpoint or is damaged, a tensor that the
            format cannot hold.
        LimitError: the memory limit is too small; the message has the bytes needed.
        FileError: files, disk space, a server, something at the destination.
        PeerError: other workers did not finish.
    """
    if (mesh is None) != (layout is None):
        raise InputError("mesh and layout go together")
    if rules is not None and mesh is not None:
        raise InputError("rules, or mesh and layout, but not both")
    if resume and (clean or restart):
        raise InputError("resume continues what clean and restart throw away")
    if to != "hf" and (with_training_state or keep_names):
        raise InputError('with_training_state and keep_names are for to="hf": otherwise nothing is left out or renamed')
    terms = terms_of(recipe, invert, dtype, include, exclude, weights_only, byte_items, strip_prefix, rename, add_prefix)
    terms |= _side_files(side_files) | dict(allow_unmatched=allow_unmatched) | _wholeness(partial, rank_local)
    terms |= dict(with_training_state=with_training_state, keep_names=keep_names)
    terms |= dict(to=to, rules=json_text(rules), mesh=mesh_text(mesh), layout=layout)
    terms |= dict(threads=threads, workers=workers, worker=worker)
    terms |= dict(memory_limit=byte_count(memory_limit), file_size=0 if file_size is None else byte_count(file_size))
    terms |= dict(dry_run=dry_run, overwrite=overwrite, restart=restart, resume=resume, clean=clean, verify=verify)
    with at_place(source) as place:
        return Conversion(_core.convert(place, os.fspath(destination), terms, progress))


def verify(
    a: SourcePath,
    b: SourcePath,
    *,
    recipe: Mapping[str, Any] | Path | None = None,
    invert: bool = False,
    dtype: DTypes | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    weights_only: bool = False,
    byte_items: bool = True,
    strip_prefix: str = "",
    rename: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    add_prefix: str = "",
    allow_unmatched: bool = False,
    partial: bool = False,
    rank_local: str | None = None,
    side_files: bool | Sequence[str] = True,
    threads: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Compares the contents of two checkpoints, whatever their layouts and formats.

    The arguments are those of convert(): what is compared of `a`, and what `b` has made of it. What to="hf" did to `a` on
    its own is done again, as the reshard.json of `b` records it.

    Raises what convert() raises. Differences are not errors.
    """
    terms = terms_of(recipe, invert, dtype, include, exclude, weights_only, byte_items, strip_prefix, rename, add_prefix)
    terms |= _side_files(side_files) | dict(threads=threads, allow_unmatched=allow_unmatched)
    terms |= _wholeness(partial, rank_local)
    with at_place(a) as at_a, at_place(b) as at_b:
        return Comparison(_core.verify(at_a, at_b, terms, progress))


class StoredFingerprints(NamedTuple):
    """Fingerprints of a part of a checkpoint; see FingerprintCheckpoint."""

    by_name: dict[str, tuple[int, int]]  # low and high, in the order of names
    described: list[list[Any]]  # name, dtype and shape of each


def stored_fingerprints(
    path: str, terms: dict[str, Any], part: int, parts: int, threads: int, progress: Progress | None
) -> StoredFingerprints:
    """What part `part` of `parts` adds to the fingerprint of each tensor of a checkpoint; `terms` are those of
    terms_of()."""
    tensors = json.loads(_core.fingerprint(path, terms | _side_files(False), part, parts, threads, progress))["tensors"]
    return StoredFingerprints(
        {one["name"]: (int(one["fingerprint"][16:], 16), int(one["fingerprint"][:16], 16)) for one in tensors},
        [[one["name"], one["dtype"], one["shape"]] for one in tensors],
    )


def _wholeness(partial: bool, rank_local: str | None) -> dict[str, Any]:
    if rank_local not in (None, "keep"):
        raise InputError(f'rank_local is None or "keep", not {rank_local!r}')
    return {"partial": partial, "keep_rank_local": rank_local == "keep"}


def json_text(value: Mapping[str, Any] | Path | None) -> str | None:
    """The text of rules or a recipe: of what they are, or of the file at a path or URL."""
    if value is None or isinstance(value, Mapping):
        return None if value is None else json.dumps(value)
    if "://" in os.fspath(value):
        return _core.read_bytes(os.fspath(value)).decode()
    with open(value, encoding="utf-8") as file:
        return file.read()


def _side_files(side_files: bool | Sequence[str]) -> dict[str, Any]:
    if isinstance(side_files, str):
        side_files = [side_files]
    patterns = [] if isinstance(side_files, bool) else list(side_files)
    return {"side_files": patterns, "no_side_files": side_files is False}


def terms_of(
    recipe: Mapping[str, Any] | Path | None,
    invert: bool,
    dtype: DTypes | None,
    include: Iterable[str],
    exclude: Iterable[str],
    weights_only: bool,
    byte_items: bool,
    strip_prefix: str,
    rename: Mapping[str, str] | Iterable[tuple[str, str]],
    add_prefix: str,
) -> dict[str, Any]:
    """What to take of a checkpoint and what to make of it, in the form that the library takes."""
    if invert and recipe is None:
        raise InputError("invert needs a recipe")
    if dtype is None:
        casts = []
    elif isinstance(dtype, Mapping):
        casts = [(pattern, dtype_name(one)) for pattern, one in dtype.items()]
    elif isinstance(dtype, (list, tuple)):
        casts = [(pattern, dtype_name(one)) for pattern, one in dtype]
    else:
        casts = [("*", dtype_name(dtype))]
    return {
        "recipe": json_text(recipe),
        "invert": invert,
        "dtype": casts,
        "include": [include] if isinstance(include, str) else list(include),
        "exclude": [exclude] if isinstance(exclude, str) else list(exclude),
        "weights_only": weights_only,
        "byte_items": byte_items,
        "strip_prefix": strip_prefix,
        "rename": list(rename.items() if isinstance(rename, Mapping) else rename),
        "add_prefix": add_prefix,
        "allow_unmatched": False,
        "partial": False,
        "keep_rank_local": False,
    }
