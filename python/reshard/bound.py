"""Tensors that move into the same destinations again and again."""

from collections.abc import Sequence

import torch

from .groups import Group, group_name


class BoundBatch:
    """A batch of redistributions that is prepared once: a trainer's weights into the memory of an inference engine.

        refit = reshard.bind(weights, engine_weights, "{X:8}", sources, targets, group)
        refit.run()                                          # after every update

    A call moves, and does nothing else: no text is looked up, no tensor is made. The tensors are kept; what they
    contain is read and written at every run. Gradients do not flow.
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
        """Moves. Collective over the group.

        Raises:
            ValueError: the storage of a tensor was freed or made smaller.
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
    """Prepares moving tensors[i], this rank's fragment under sources[i], into outs[i], the one under targets[i].

    Collective: every rank of the group makes the same call.

    Args:
        tensors: fragments of this rank; any strides.
        outs: where they go; any strides, but no overlap with each other or with a tensor.
        mesh: the mesh of the sources, `"{X:4}"`.
        sources: their layouts, one a tensor: `"[<X>1024, 64]"`.
        targets: the layouts of the outs.
        group: whose ranks the mesh numbers; None is the default group.
        target_mesh: the mesh of the targets; None is `mesh`.

    Raises:
        ValueError: texts that do not parse, tensors that do not fit them, outs that overlap or require gradients.
        torch.distributed.DistBackendError: another rank could not bind, or bound something else.
    """
    return BoundBatch(tensors, outs, mesh, sources, targets, group, target_mesh)
