"""What the library keeps for a process group, threads and sockets among it, ends with the group."""

import atexit
import functools
from typing import Any, Callable

import torch
from torch.distributed import distributed_c10d

from .private_pytorch import ENDS_OF_GROUPS


def follow_ends_of_groups() -> None:
    """From now on the library forgets a group when torch.distributed destroys it, and all when the interpreter ends.

    Destroying a group tells nobody, and does not end it where somebody still holds it, as a DeviceMesh does. But as its
    last step destroy_process_group takes the group's name from the registry in which the operators find groups, and
    this step is followed, whichever way destroy_process_group was imported. (A release of PyTorch that has no such step
    any more leaves it at the end of the interpreter, and at the use of the next group.)
    """
    for step in ENDS_OF_GROUPS:
        if hasattr(distributed_c10d, step):
            setattr(distributed_c10d, step, _then_forget(getattr(distributed_c10d, step)))
    atexit.register(torch.ops.reshard._forget_groups, None)


def _then_forget(unregister: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(unregister)
    def unregister_and_forget(*name: str) -> Any:
        try:
            return unregister(*name)
        finally:
            torch.ops.reshard._forget_groups(*name or (None,))

    return unregister_and_forget
