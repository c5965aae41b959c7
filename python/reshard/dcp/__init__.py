"""Storage and planners for torch.distributed.checkpoint: programs that call it change one argument.

    dcp.load(state, storage_reader=reshard.dcp.StorageReader("step-1000"))
    dcp.save(state, storage_writer=reshard.dcp.StorageWriter("step-2000"))
    dcp.async_save(state, storage_writer=reshard.dcp.StorageWriter("step-3000"))
    dcp.load(state, storage_reader=reshard.dcp.StorageReader("model.safetensors"), planner=reshard.dcp.LoadPlanner())

Nothing that is read is ever run, whatever it is: PyTorch's own checkpoints, safetensors, files of torch.save, on disk or
https. Checkpoints are written so that one exists at any instant, the old or the new one.
"""

from .planner import LoadPlanner
from .reader import StorageReader
from .writer import StorageWriter

__all__ = ["LoadPlanner", "StorageReader", "StorageWriter"]
