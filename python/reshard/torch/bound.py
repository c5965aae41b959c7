"""Redistributions that are prepared once and run many times, into the same destinations."""

from collections.abc import Sequence

import torch
from torch.distributed.tensor import DTensor

from ..arguments import byte_count
from .fragments import Fragment
from .groups import Group, group_name, span_of_group
from .private_pytorch import local_of
from .problems import Tensors, problems_of


class BoundBatch:
    """A batch of redistributions that is prepared once, such as a trainer's weights into the memory of an inference
    engine.

        refit = reshard.bind(model, engine)                  # of DTensors, and Fragments
        refit = reshard.bind(weights, engine_weights, "{X:8}", sources, targets, group)
        refit.run()                                          # after every update

    run() only moves data: it looks up no text and allocates no tensor. The batch keeps the tensors alive; their
    contents are read and written at every run. Gradients do not flow.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        outs: Sequence[torch.Tensor],
        mesh: str | Sequence[str],
        sources: Sequence[str],
        targets: Sequence[str],
        group: Group = None,
        target_mesh: str | Sequence[str] | None = None,
        memory_limit: int | str | None = None,
    ):
        meshes = _for_each(mesh, len(sources))
        target_meshes = meshes if target_mesh is None else _for_each(target_mesh, len(sources))
        self._batch = torch.classes.reshard.BoundBatch.over_meshes(
            list(tensors),
            list(outs),
            meshes,
            target_meshes,
            list(sources),
            list(targets),
            group_name(group),
            byte_count(memory_limit),
        )

    @classmethod
    def of_dtensors(
        cls, tensors: Tensors, outs: Tensors, group: Group = None, memory_limit: int | str | None = None
    ) -> "BoundBatch":
        """See `bind`."""
        span = span_of_group(group)
        problems = problems_of(tensors, outs, span)
        return cls(
            [_local(problem.source) for problem in problems],
            [_local(problem.target) for problem in problems],
            [problem.mesh for problem in problems],
            [problem.source_layout for problem in problems],
            [problem.target_layout for problem in problems],
            span.name,
            [problem.target_mesh for problem in problems],
            memory_limit,
        )

    def run(self) -> None:
        """Moves the current contents of the tensors. Collective over the group.

        Raises:
            ValueError: the storage of a tensor was freed or has become too small.
            torch.distributed.DistBackendError: another rank failed, is gone or disagrees.
        """
        self._batch.run()


def _local(tensor: DTensor | Fragment) -> torch.Tensor:
    return (tensor.local if isinstance(tensor, Fragment) else local_of(tensor)).detach()


def _for_each(mesh: str | Sequence[str], count: int) -> list[str]:
    return [mesh] * count if isinstance(mesh, str) else list(mesh)


def bind(
    tensors: Tensors,
    outs: Tensors,
    mesh: str | Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    group: Group = None,
    target_mesh: str | Sequence[str] | None = None,
    *,
    memory_limit: int | str | None = None,
) -> BoundBatch:
    """Prepares to move each tensor into the one of outs with the same name or index.

        refit = reshard.bind(model, engine)                          # or state dicts, or lists, of DTensors and Fragments
        refit = reshard.bind([rows], [columns], "{X:4}", ["[<X>64, 64]"], ["[64, <X>64]"])

    Collective: every rank of the group makes the same call. All tensors share exchanges, whatever meshes they are on
    and go to.

    Args:
        tensors: DTensors or Fragments, in any layouts and on any meshes: a model, a dict or a list. With `mesh`, a list of this rank's
            fragments, tensors[i] under the layout sources[i], with any strides.
        outs: their destinations, which overlap neither each other nor a tensor. For DTensors and Fragments equally many,
            with the same names, shapes and dtypes. With `mesh`, this rank's fragments under targets[i].
        mesh: the mesh of the sources, such as `"{X:4}"`, or a list with one per tensor; its device ids are ranks of the
            group. A rank that is not in it passes an empty tensor.
        sources: the layouts of the tensors, one per tensor, such as `"[<X>1024, 64]"`.
        targets: the layouts of the outs.
        group: the process group; None means the default group. It contains all meshes.
        target_mesh: the mesh of the targets, or a list with one per tensor; None means `mesh`.
        memory_limit: the most that a device may need at once for the sources, outs and staging of the tensors of one
            exchange: bytes, or text such as "256MiB". A batch that needs more takes several exchanges. The same on all
            ranks. None: exchanges of at most 256 MiB per rank.

    Raises:
        TypeError: only some of mesh, sources and targets are given.
        ValueError: text that does not parse, tensors that do not fit it, outs that overlap or (as fragments) require
            gradients; for DTensors, names that only one side has, other shapes or dtypes. DTensors of a model, or that
            require gradients, are written as `load` writes them.
        torch.OutOfMemoryError: a single tensor needs more than the limit.
        torch.distributed.DistBackendError: another rank could not bind, or bound something else.
    """
    if mesh is None and sources is None and targets is None:
        if target_mesh is not None:
            raise TypeError("target_mesh without mesh, sources and targets; DTensors have meshes of their own")
        return BoundBatch.of_dtensors(tensors, outs, group, memory_limit)
    if mesh is None or sources is None or targets is None:
        raise TypeError("mesh, sources and targets are given together; without them, tensors and outs are DTensors or Fragments")
    return BoundBatch(tensors, outs, mesh, sources, targets, group, target_mesh, memory_limit)
