"""Moves sharded tensors from one layout to another.

    import reshard
    print(reshard.plan("{X:4,Y:4,Z:16}", "[32<X,Y>512, 128]", "[32<Y,X>512, 128]"))
    reshard.convert("step-1000", "exported", to="hf", weights_only=True)
    y = reshard.redistribute(x, mesh, [Shard(1)])      # a DTensor; needs PyTorch

Planning, checking, drawing, converting, and fingerprints of checkpoints need nothing beside this package. What works on tensors (redistribute, bind,
load, save, join, Refit, ...) is in reshard.torch, which is imported when one of its names is first used; what
torch.distributed.checkpoint takes is in reshard.dcp.
"""

import importlib
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import dcp
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
    from .fingerprints import fingerprint
    from .planning import Batch, Picture, Plan, Verdict, check, plan, plan_batch, show
    from .torch import (
        BoundBatch,
        Joined,
        PendingSave,
        Refit,
        all_gather,
        all_gather_with_unpad,
        all_reduce,
        all_to_all_4d,
        all_to_all_single,
        all_to_all_v,
        bind,
        build_all_to_all_v_metadata,
        compute_padding_for_sp,
        dtensor_redistribution,
        exchange_overlapping_regions,
        gather,
        install,
        join,
        last_timings,
        load,
        pad_sequence_tensor,
        recent_operations,
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
    )

    __version__: str

# Imported on first use: the names below are the package, and none costs what another needs.
_MODULES = {
    "checkpoints": "Checkpoint Comparison Conversion convert inspect verify",
    "errors": """
        ExistingFileError FileError InputError LimitError MissingFileError PeerError ReshardError UndeterminedError
        UnsupportedError
    """,
    "fingerprints": "fingerprint",
    "planning": "Batch Picture Plan Verdict check plan plan_batch show",
    "torch": """
        BoundBatch Joined PendingSave Refit all_gather all_gather_with_unpad all_reduce all_to_all_4d
        all_to_all_v bind build_all_to_all_v_metadata compute_padding_for_sp dtensor_redistribution
        exchange_overlapping_regions install join last_timings load pad_sequence_tensor
        recent_operations redistribute redistribute_all save save_async sequence_parallel set_topology shard
        uninstall unpad_sequence_tensor warmup
    """,
    "dcp": "",  # its names are those of torch.distributed.checkpoint
}
# These have their names in reshard.sequence_parallel: torch.distributed has the same ones for something else.
_DEPRECATED = ("all_to_all_single", "gather")
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

# Without what needs PyTorch, so that `from reshard import *` does not.
__all__ = sorted(name for name, module in _MODULE_OF.items() if module not in ("torch", "dcp"))


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:
        if name in ("torch", "dcp") and error.name == "torch":
            raise ImportError(
                "this needs PyTorch, which is not installed here; what needs none is reshard."
                + ", reshard.".join(name for name in __all__ if name.islower())
            ) from None
        raise


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _module(name)
    if name == "__version__":
        value: Any = _module("_core").version()
    elif name in _DEPRECATED:
        warnings.warn(
            f"reshard.{name} is reshard.sequence_parallel.{name}; the short name goes in 0.4", DeprecationWarning, 2
        )
        return getattr(_module("torch").sequence_parallel, name)
    elif name in _MODULE_OF:
        value = getattr(_module(_MODULE_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES, "__version__"})
