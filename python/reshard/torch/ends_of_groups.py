"""What the library keeps for a process group, including threads and sockets, ends with the group."""

import atexit
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed.nn.functional
from torch.distributed import ProcessGroup, distributed_c10d

from .private_pytorch import ENDS_OF_GROUPS


def follow_ends_of_groups() -> None:
    """From now on the library forgets a group when torch.distributed destroys it, and all when the interpreter ends.

    Destroying a group notifies nobody, and does not end it while something still holds it, as a DeviceMesh does. But as
    its last step destroy_process_group removes the group's name from the registry in which the operators find groups.
    This function wraps that step, which works however destroy_process_group was imported. (Under a release of PyTorch
    without such a step, groups are forgotten at the end of the interpreter, and at the use of the next group.)
    """
    for step in ENDS_OF_GROUPS:
        if hasattr(distributed_c10d, step):
            setattr(distributed_c10d, step, _then_forget(getattr(distributed_c10d, step)))
    atexit.register(torch.ops.reshard._forget_groups, None)


def let_go_of_default_group() -> None:
    """Makes the default group end when it is destroyed, where these modules were imported after it was made.

    torch.distributed.nn.functional, which PyTorch's checkpoints import, takes the default group at import time as the
    default of its arguments: None before there is one, and the group itself after, which then lives as long as the
    interpreter. So do its threads, and one of them may abort the process at its end. None means the default group in
    every call.
    """
    for function in vars(torch.distributed.nn.functional).values():
        if inspect.isfunction(function) and function.__defaults__:
            function.__defaults__ = tuple(None if isinstance(d, ProcessGroup) else d for d in function.__defaults__)


def _then_forget(unregister: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(unregister)
    def unregister_and_forget(*name: str) -> Any:
        try:
            return unregister(*name)
        finally:
            torch.ops.reshard._forget_groups(*name or (None,))

    return unregister_and_forget
