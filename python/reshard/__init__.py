"""Moves sharded tensors from one layout to another.

    import reshard
    print(reshard.plan("{X:4,Y:4,Z:16}", "[32<X,Y>512, 128]", "[32<Y,X>512, 128]"))
    reshard.convert("step-1000", "exported", to="hf", weights_only=True)
    y = reshard.redistribute(x, mesh, [Shard(1)])      # a DTensor; needs PyTorch

Planning, checking, drawing, and converting and fingerprinting checkpoints need nothing beyond this package. Functions on
tensors (redistribute, bind, load, save, join, Refit, ...) are in reshard.torch, which is imported when one of its names
is first used; storage and planners for torch.distributed.checkpoint are in reshard.dcp.
"""

import importlib
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .stubs import Stub

if TYPE_CHECKING:
    from . import dcp, sources, stores
    from .checkpoints import Checkpoint, Comparison, Conversion, convert, inspect, verify
    from .errors import (
        ExistingFileError,
        FileError,
        InputError,
        LimitError,
        MissingFileError,
        PeerError,
        ReshardError,
        UndeterminedError,
        UnsupportedError,
    )
    from .experts import expert_layouts, expert_map
    from .fingerprints import fingerprint
    from .flat import flat_layouts, flat_ranges
    from .layouts import Layout, Picture, show
    from .models import plan_model
    from .planning import Batch, Plan, Verdict, check, plan, plan_batch
    from .sources import Source, SourceTensor
    from .torch import (
        BoundBatch,
        Fragment,
        Joined,
        PendingPublication,
        PendingSave,
        Published,
        Pulled,
        Puller,
        Recording,
        Refit,
        all_gather,
        all_gather_with_unpad,
        all_reduce,
        all_to_all_4d,
        all_to_all_single,
        all_to_all_v,
        bind,
        build_all_to_all_v_metadata,
        calibrate,
        compute_padding_for_sp,
        dtensor_redistribution,
        exchange_overlapping_regions,
        fsdp1_fragments,
        gather,
        install,
        join,
        last_timings,
        load,
        megatron_fragments,
        pad_sequence_tensor,
        publish,
        publish_async,
        pull,
        recent_operations,
        record,
        redistribute,
        redistribute_all,
        save,
        save_async,
        sequence_parallel,
        set_topology,
        shard,
        uninstall,
        unpad_sequence_tensor,
        warmup,
        zero3_fragments,
    )

    __version__: str

# The names of the package by module. Each module is imported on first use, so that no name costs what another needs.
_MODULES = {
    "checkpoints": "Checkpoint Comparison Conversion convert inspect verify",
    "errors": """
        ExistingFileError FileError InputError LimitError MissingFileError PeerError ReshardError UndeterminedError
        UnsupportedError
    """,
    "experts": "expert_layouts expert_map",
    "fingerprints": "fingerprint",
    "flat": "flat_layouts flat_ranges",
    "layouts": "Layout Picture show",
    "models": "plan_model",
    "planning": "Batch Plan Verdict check plan plan_batch",
    "torch": """
        BoundBatch Fragment Joined PendingPublication PendingSave Published Pulled Puller Recording Refit all_gather
        all_gather_with_unpad all_reduce all_to_all_4d all_to_all_v bind build_all_to_all_v_metadata calibrate
        compute_padding_for_sp dtensor_redistribution exchange_overlapping_regions fsdp1_fragments install join
        last_timings load megatron_fragments pad_sequence_tensor publish publish_async pull recent_operations record
        redistribute redistribute_all save save_async sequence_parallel set_topology shard uninstall unpad_sequence_tensor
        warmup zero3_fragments
    """,
    "dcp": "",  # its names are those of torch.distributed.checkpoint
    "sources": "Source SourceTensor",
    "stores": "",  # reshard.stores.register
}
# These belong to reshard.sequence_parallel: torch.distributed has the same names for something else.
_DEPRECATED = ("all_to_all_single", "gather")
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

# Without what needs PyTorch, so that `from reshard import *` does not import it.
__all__ = sorted(name for name, module in _MODULE_OF.items() if module not in ("torch", "dcp"))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f".{name}", __name__)


def _with_torch(module: str, name: str | None = None) -> Any:
    """The module, or a name in it; a Stub where it cannot be imported."""
    try:
        return _module(module) if name is None else getattr(_module(module), name)
    except ImportError as error:
        return Stub(name or module, error)


def __getattr__(name: str) -> Any:
    if name in ("torch", "dcp"):
        return _with_torch(name)
    if name in _MODULES:
        return _module(name)
    if name == "__version__":
        value: Any = _module("_core").version()
    elif name in _DEPRECATED:
        warnings.warn(
            f"reshard.{name} is reshard.sequence_parallel.{name}; the short name goes in 0.4", DeprecationWarning, 2
        )
        return getattr(_with_torch("torch").sequence_parallel, name)
    elif _MODULE_OF.get(name) == "torch":
        value = _with_torch("torch", name)
        if isinstance(value, Stub):
            return value  # what is missing may yet be installed
    elif name in _MODULE_OF:
        value = getattr(_module(_MODULE_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES, "__version__"})
