"""Checkpoints of other kinds, read where they lie, box by box: wherever a path stands, one of Orbax or Zarr, GGUF, HDF5
or NumPy may stand, or a Source of your own.

    pip install 'reshard[orbax]'      # tensorstore; likewise reshard[gguf], reshard[hdf5], reshard[numpy]
    reshard convert /runs/7/items model --to hf

    reshard.convert(MySource("weights.bin"), "model", to="hf")
"""

from .interface import Source, SourceTensor

__all__ = ["Source", "SourceTensor"]
