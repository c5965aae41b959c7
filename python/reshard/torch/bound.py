"""Redistributions that are prepared once and run many times, into the same destinations."""

from collections.abc import Sequence

import torch

from .groups import Group, group_name


class BoundBatch:
    """A batch of redistributions that is prepared once, such as a trainer's weights into the memory of an inference
    engine.

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
        self._batch = torch.classes.reshard.BoundBatch(
            list(tensors), list(outs), mesh, target_mesh or "", list(sources), list(targets), group_name(group)
        )

    def run(self) -> None:
        """Moves the current contents of the tensors. Collective over the group.

        Raises:
            ValueError: the storage of a tensor was freed or has become too small.
            torch.distributed.DistBackendError: another rank failed, is gone or disagrees.
        """
        self._batch.run()


def bind(
    tensors: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor],
    mesh: str,
    sources: Sequence[str],
    targets: Sequence[str],
    group: Group = None,
    target_mesh: str | None = None,
) -> BoundBatch:
    """Prepares to move tensors[i], this rank's fragment under sources[i], into outs[i], its fragment under targets[i].

    Collective: every rank of the group makes the same call.

    Args:
        tensors: this rank's fragments, with any strides.
        outs: their destinations, with any strides, but without overlap with each other or with a tensor.
        mesh: the mesh of the sources, such as `"{X:4}"`; its device ids are ranks of the group.
        sources: the layouts of the tensors, one per tensor, such as `"[<X>1024, 64]"`.
        targets: the layouts of the outs.
        group: the process group; None means the default group.
        target_mesh: the mesh of the targets; None means `mesh`.

    Raises:
        ValueError: text that does not parse, tensors that do not fit it, outs that overlap or require gradients.
        torch.distributed.DistBackendError: another rank could not bind, or bound something else.
    """
    return BoundBatch(tensors, outs, mesh, sources, targets, group, target_mesh)
