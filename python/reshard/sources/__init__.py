"""Checkpoints of other kinds, read in place, box by box: any path may be that of an Orbax, Zarr, GGUF, HDF5 or NumPy
checkpoint, and a Source of your own may take its place.

    pip install 'reshard[orbax]'      # tensorstore; likewise reshard[gguf], reshard[hdf5], reshard[numpy]
    reshard convert /runs/7/items model --to hf

    reshard.convert(MySource("weights.bin"), "model", to="hf")
"""

from .interface import Source, SourceTensor

__all__ = ["Source", "SourceTensor"]
