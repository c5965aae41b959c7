"""Redistributions that are prepared once and run many times, into the same destinations."""

from collections.abc import Sequence

import torch

from .groups import Group, group_name, span_of_group
from .problems import Problem, Tensors, problems_of


class BoundBatch:
    """A batch of redistributions that is prepared once, such as a trainer's weights into the memory of an inference
    engine.

        refit = reshard.bind(model, engine)                  # of DTensors
        refit = reshard.bind(weights, engine_weights, "{X:8}", sources, targets, group)
        refit.run()                                          # after every update

    run() only moves data: it looks up no text and allocates no tensor. The batch keeps the tensors alive; their
    contents are read and written at every run. Gradients do not flow.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        outs: Sequence[torch.Tensor],
        mesh: str,
        sources: Sequence[str],
        targets: Sequence[str],
        group: Group = None,
        target_mesh: str | None = None,
    ):
        name = group_name(group)
        self._batches = [_batch(tensors, outs, mesh, sources, targets, name, target_mesh)]

    @classmethod
    def of_dtensors(cls, tensors: Tensors, outs: Tensors, group: Group = None) -> "BoundBatch":
        """See `bind`. Tensors between the same two meshes share exchanges."""
        span = span_of_group(group)
        pairs: dict[tuple[str, str], list[Problem]] = {}
        for problem in problems_of(tensors, outs, span):
            pairs.setdefault((problem.mesh, problem.target_mesh), []).append(problem)
        bound = cls.__new__(cls)
        bound._batches = [
            _batch(
                [problem.source._local_tensor.detach() for problem in batch],
                [problem.target._local_tensor.detach() for problem in batch],
                mesh,
                [problem.source_layout for problem in batch],
                [problem.target_layout for problem in batch],
                span.name,
                target_mesh,
            )
            for (mesh, target_mesh), batch in pairs.items()
        ]
        return bound

    def run(self) -> None:
        """Moves the current contents of the tensors. Collective over the group.

        Raises:
            ValueError: the storage of a tensor was freed or has become too small.
            torch.distributed.DistBackendError: another rank failed, is gone or disagrees.
        """
        for batch in self._batches:
            batch.run()


def _batch(
    tensors: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor],
    mesh: str,
    sources: Sequence[str],
    targets: Sequence[str],
    group: str,
    target_mesh: str | None,
) -> torch.ScriptObject:
    return torch.classes.reshard.BoundBatch(
        list(tensors), list(outs), mesh, target_mesh or "", list(sources), list(targets), group
    )


def bind(
    tensors: Tensors,
    outs: Tensors,
    mesh: str | None = None,
    sources: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    group: Group = None,
    target_mesh: str | None = None,
) -> BoundBatch:
    """Prepares to move each tensor into the one of outs that has its name or place.

        refit = reshard.bind(model, engine)                          # or state dicts, or lists, of DTensors
        refit = reshard.bind([rows], [columns], "{X:4}", ["[<X>64, 64]"], ["[64, <X>64]"])

    Collective: every rank of the group makes the same call.

    Args:
        tensors: DTensors, in any layouts and on any meshes: a model, a dict or a list. With `mesh`, a list of this rank's
            fragments, tensors[i] under the layout sources[i], with any strides.
        outs: their destinations, without overlap with each other or with a tensor: of DTensors as many, with the same
            names, shapes and dtypes. With `mesh`, this rank's fragments under targets[i].
        mesh: the mesh of the sources, such as `"{X:4}"`; its device ids are ranks of the group.
        sources: the layouts of the tensors, one per tensor, such as `"[<X>1024, 64]"`.
        targets: the layouts of the outs.
        group: the process group; None means the default group. It contains all meshes.
        target_mesh: the mesh of the targets; None means `mesh`.

    Raises:
        TypeError: some of mesh, sources and targets, but not all.
        ValueError: text that does not parse, tensors that do not fit it, outs that overlap or (as fragments) require
            gradients; of DTensors names that only one side has, other shapes or dtypes. Those of a model, or that
            require gradients, are written as `load` writes them.
        torch.distributed.DistBackendError: another rank could not bind, or bound something else.
    """
    if mesh is None and sources is None and targets is None:
        if target_mesh is not None:
            raise TypeError("target_mesh without mesh, sources and targets; DTensors have meshes of their own")
        return BoundBatch.of_dtensors(tensors, outs, group)
    if mesh is None or sources is None or targets is None:
        raise TypeError("mesh, sources and targets are given together; without them, tensors and outs are DTensors")
    return BoundBatch(tensors, outs, mesh, sources, targets, group, target_mesh)
