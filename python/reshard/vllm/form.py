"""The parameters of a vLLM model in the form in which its loaders fill them.

After loading, vLLM rearranges many of them for its kernels: packed, transposed, quantized, or gone where a kernel keeps a
copy of its own. It remembers the form that they had before, for reloading (vllm/model_executor/model_loader/reload). A
refit writes this rank's part of that form: in place for parameters that kernels use as they are, into buffers for the
others. From the buffers vLLM makes what its kernels need, layer by layer.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from vllm.model_executor.layers import attention
from vllm.model_executor.model_loader.reload import layerwise
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs
from vllm.model_executor.model_loader.weight_utils import default_weight_loader
from vllm.platforms import current_platform

from ..torch.private_pytorch import own_tensors, storage_key

# vLLM 0.25 has no such function.
is_deferred_attention_layer: Callable[[torch.nn.Module], bool] = getattr(
    attention, "is_deferred_attention_layer", lambda layer: isinstance(layer, (attention.Attention, attention.MLAAttention))
)

# Methods whose parameters kernels use as they were loaded, except kernels of CPUs.
_AS_LOADED = {"NoneType", "UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}


class _Layer(NamedTuple):
    module: torch.nn.Module
    tensors: dict[str, torch.Tensor]  # by their names in the module, in the form of the loaders
    made: bool  # vLLM makes the kernels' parameters from them


class LoadedForm:
    """`tensors` are those that the model's loaders write, by the names of its state dict."""

    def __init__(self, model: torch.nn.Module, model_config: Any):
        self._model = model
        self._model_config = model_config
        self._layers: list[_Layer] = []
        self.tensors: dict[str, torch.Tensor] = {}
        shared: dict[int, torch.Tensor] = {}  # buffers, by the memory of the parameter that they stand for
        for prefix, module in model.named_modules():
            layer = self._of_layer(module, shared)
            if layer.tensors:
                self._layers.append(layer)
                self.tensors |= {f"{prefix}.{name}".lstrip("."): tensor for name, tensor in layer.tensors.items()}

    def load(self, pairs: Any) -> Any:
        """The model's own load_weights, into these tensors."""
        with self._in_place():
            return self._model.load_weights(pairs)

    def finish(self) -> None:
        """Makes what kernels use from what is in the buffers now. What they use keeps its memory."""
        made = [layer for layer in self._layers if layer.made]
        kept: list[tuple[torch.Tensor, Any]] = []
        for layer in made:
            layerwise.initialize_layerwise_reload(layer.module)
            for name, tensor in layer.tensors.items():
                parameter = getattr(layer.module, name)
                kept.append((parameter, getattr(parameter, "weight_loader", default_weight_loader)))
                # Its own loader takes a part of a whole tensor; this is that part.
                parameter.weight_loader = default_weight_loader
                parameter.weight_loader = layerwise.make_online_process_loader(layer.module, name)
                parameter.weight_loader(parameter, tensor)
        for module in self._model.modules():
            if is_deferred_attention_layer(module):  # these keep what they compute from others' parameters
                layerwise.initialize_layerwise_reload(module)
        layerwise.finalize_layerwise_processing(self._model, self._model_config)
        for parameter, loader in kept:
            parameter.weight_loader = loader

    def _of_layer(self, module: torch.nn.Module, shared: dict[int, torch.Tensor]) -> _Layer:
        parameters, buffers = layerwise.get_layerwise_info(module).restore_metadata
        before = {**parameters, **buffers}
        live = _persistent(module)
        as_loaded = _is_used_as_loaded(module) and all(_is_alike(live.get(name), form) for name, form in before.items())
        if is_deferred_attention_layer(module):
            return _Layer(module, {}, False)
        tensors: dict[str, torch.Tensor] = {}
        for name in dict.fromkeys([*before, *live]):
            if name not in live:
                continue  # not part of the state
            form = before.get(name)
            if form is None or as_loaded:
                tensors[name] = live[name]
                continue
            memory = storage_key(live[name]) if live[name].numel() else None
            buffer = shared.get(memory) if memory is not None else None
            if buffer is None or not _is_alike(buffer, form):
                buffer = torch.zeros_like(form, device=layerwise.get_layerwise_info(module).restore_device)
                if memory is not None:
                    shared[memory] = buffer
            # The loaders of a parameter are its attributes.
            alias = buffer.detach()
            alias.__class__ = form.__class__
            alias.__dict__ = dict(form.__dict__)
            tensors[name] = restore_layer_refs(alias, module)
        return _Layer(module, tensors, not as_loaded and bool(before.keys() & tensors.keys()))

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """The model with these tensors as its parameters."""
        kept = [(of_kind, dict(of_kind)) for layer in self._layers for of_kind in own_tensors(layer.module, recurse=False)]
        try:
            for layer in self._layers:
                parameters, buffers = own_tensors(layer.module, recurse=False)
                for name, tensor in layer.tensors.items():
                    (buffers if name in buffers else parameters)[name] = tensor
            yield
        finally:
            for of_kind, before in kept:
                of_kind.clear()
                of_kind.update(before)


def _persistent(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A module's own parameters and buffers, but for what is not in its state dict."""
    state = module.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if "." not in name and isinstance(tensor, torch.Tensor)}


def _is_used_as_loaded(module: torch.nn.Module) -> bool:
    method = type(getattr(module, "quant_method", None)).__name__
    return method in _AS_LOADED and (method == "NoneType" or not current_platform.is_cpu())


def _is_alike(tensor: torch.Tensor | None, form: torch.Tensor) -> bool:
    return (
        tensor is not None
        and tensor.shape == form.shape
        and tensor.dtype == form.dtype
        and tensor.stride() == form.stride()
    )
