"""A folder that the ranks of a test share."""

import shutil
import tempfile

import torch.distributed as dist


def shared_folder(c):
    """A new one, the same on all ranks."""
    names = [tempfile.mkdtemp(prefix="reshard-ranks-") if c.rank == 0 else None]
    dist.broadcast_object_list(names, 0)
    return names[0]


def remove(c, path):
    """Once no rank needs it any more."""
    dist.barrier()
    if c.rank == 0:
        shutil.rmtree(path, ignore_errors=True)
