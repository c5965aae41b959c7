"""What the trainers of a serving engine have in common, whichever engine it is: where they meet its workers, and how
one of them asks the engine to take part in what all of them do."""

import datetime
import socket
import threading
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from ..errors import InputError
from .record import Export


def store_of_trainers(
    rank: int, trainers: int, host: str, port: int, store: tuple[str, int] | None
) -> tuple[dist.TCPStore, str, int]:
    """The store in which trainers and workers meet, connected, and its address for the workers. Rank 0 serves it, by
    default at this host's name and a port of its choice, which the other trainers learn over their default group.

    Args:
        store: host and port of one that already runs.

    Raises:
        ValueError: no port is given, and there is no default group over which it could be learned.
    """
    timeout = datetime.timedelta(seconds=60)
    served: dist.TCPStore | None = None
    where, at = store or (host or socket.gethostname(), port)
    if store is None and rank == 0:
        served = dist.TCPStore(where, at, is_master=True, wait_for_workers=False, timeout=timeout)
        at = served.port
    if not at or (trainers > 1 and not port and store is None):
        if not dist.is_initialized():
            raise InputError("port: trainers of several processes without a default group need one")
        ports: list[int] = [0] * dist.get_world_size()
        dist.all_gather_object(ports, at)
        at = max(ports)
    if served is None:
        served = dist.TCPStore(where, at, is_master=False, wait_for_workers=False, timeout=timeout)
    return served, where, at


def export_of_transformers(model: Any) -> Export | None:
    """What save_pretrained does, if it is a transformers model; else None."""
    if not hasattr(model, "save_pretrained"):
        return None
    try:
        from transformers import PreTrainedModel
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        return None
    return (lambda state: revert_weight_conversion(model, state)) if isinstance(model, PreTrainedModel) else None


class Asking:
    """Wraps what this rank does while the workers do their part, at rank 0's request."""

    def __init__(self, call: Callable[[], None] | None):
        self._call = call
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if self._call is not None:
            self._thread = threading.Thread(target=self._run, name="reshard engine", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            assert self._call is not None
            self._call()
        except BaseException as error:
            self._error = error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._thread is None:
            return
        self._thread.join()
        if self._error is None:
            return
        if error is None:
            raise self._error
        error.add_note(f"the workers: {self._error}") if hasattr(error, "add_note") else None
