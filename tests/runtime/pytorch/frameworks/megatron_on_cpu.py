"""What tests replace in Megatron-core where no GPU is."""

import contextlib
import types

import torch


def without_a_gpu():
    """What Megatron asks of CUDA although its model is on the CPU."""
    from megatron.core import tensor_parallel

    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.set_device = lambda *_: None
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    tracker = lambda *_: types.SimpleNamespace(fork=lambda *_, **__: contextlib.nullcontext())
    tensor_parallel.get_cuda_rng_tracker = tensor_parallel.layers.get_cuda_rng_tracker = tracker
