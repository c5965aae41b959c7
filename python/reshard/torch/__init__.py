"""reshard inside PyTorch: tensors, DTensors and process groups.

    import reshard
    y = reshard.redistribute(x, mesh, [Shard(1)])      # a DTensor in, a DTensor out, differentiable

    import reshard.torch                               # registers torch.ops.reshard.*
    torch.ops.reshard.redistribute(local, "{X:4}", "[<X>1024, 64]", "[1024, <X>64]", group_name)

Importing it loads the library, which registers the operators. They do all the work; this package only translates
DTensors and process groups into the texts and names that they take.
"""

from .library import load_library

load_library()  # before the modules below, which look the operators up

from .bound import BoundBatch, bind  # noqa: E402
from .calibration import calibrate  # noqa: E402
from .diagnostics import last_timings, recent_operations  # noqa: E402
from .dtensors import redistribute, redistribute_all  # noqa: E402
from .exchange_by_counts import all_to_all_v, build_all_to_all_v_metadata  # noqa: E402
from .fragments import Fragment, fsdp1_fragments, zero3_fragments  # noqa: E402
from .load import load  # noqa: E402
from .megatron import megatron_fragments  # noqa: E402
from .inside_dtensor import dtensor_redistribution, install, uninstall  # noqa: E402
from .padding import compute_padding_for_sp, pad_sequence_tensor, unpad_sequence_tensor  # noqa: E402
from .save import PendingSave, save, save_async  # noqa: E402
from .joined import Joined, join  # noqa: E402
from .published import PendingPublication, Published, Pulled, Puller, publish, publish_async, pull  # noqa: E402
from .record import Recording, record  # noqa: E402
from .refit import Refit  # noqa: E402
from .sequence_parallel import (  # noqa: E402
    all_gather,
    all_gather_with_unpad,
    all_reduce,
    all_to_all_4d,
    all_to_all_single,
    exchange_overlapping_regions,
    gather,
    shard,
    warmup,
)
from .topology import set_topology  # noqa: E402
from .ends_of_groups import follow_ends_of_groups, let_go_of_default_group  # noqa: E402

follow_ends_of_groups()
let_go_of_default_group()

__all__ = [
    "BoundBatch",
    "Fragment",
    "Joined",
    "PendingPublication",
    "PendingSave",
    "Published",
    "Pulled",
    "Puller",
    "Recording",
    "Refit",
    "all_gather",
    "all_gather_with_unpad",
    "all_reduce",
    "all_to_all_4d",
    "all_to_all_single",
    "all_to_all_v",
    "bind",
    "build_all_to_all_v_metadata",
    "calibrate",
    "compute_padding_for_sp",
    "dtensor_redistribution",
    "exchange_overlapping_regions",
    "fsdp1_fragments",
    "gather",
    "install",
    "join",
    "last_timings",
    "load",
    "megatron_fragments",
    "pad_sequence_tensor",
    "publish",
    "publish_async",
    "pull",
    "recent_operations",
    "record",
    "redistribute",
    "redistribute_all",
    "save",
    "save_async",
    "set_topology",
    "shard",
    "uninstall",
    "unpad_sequence_tensor",
    "warmup",
    "zero3_fragments",
]
