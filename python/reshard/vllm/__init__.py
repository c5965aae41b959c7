"""vLLM's weight transfer through reshard: backend "reshard" of its `weight_transfer_config`.

    llm = LLM(model, weight_transfer_config={"backend": "reshard"})         # in the job that serves

    from reshard.vllm import Source, TrainerInfo                            # in the job that trains, on every rank
    info = TrainerInfo(rank=dist.get_rank(), trainers=dist.get_world_size(), workers=2, host=address, port=29600)
    trainer = WeightTransferTrainerFactory.trainer_init(info, client=client, source=Source(model))
    trainer.send_weights()                                                  # after every update

or, where servers pull what a trainer publishes (reshard.publish), load_format "reshard" and `PullingWorker`:

    vllm serve MODEL --load-format reshard --model-loader-extra-config '{"place": "s3://bucket/policy"}'

Importing reshard registers nothing: vLLM loads `register` through the entry point vllm.general_plugins of an installed
reshard, in each of its own processes; a trainer's process that uses vLLM's factory calls it itself. Tested with vLLM
0.32, and with 0.25, which has no factory for trainers: there `Transfer.trainer_init(info, client=client,
source=Source(model))` takes its place.
"""

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loader import Loader
    from .pull import PullingWorker
    from .trainer import Source, TrainerInfo, Transfer
    from .worker import Engine

_MODULE_OF = {
    "Source": "trainer", "TrainerInfo": "trainer", "Transfer": "trainer",
    "Engine": "worker",
    "Loader": "loader",
    "PullingWorker": "pull",
}  # fmt: skip

__all__ = ["register", *_MODULE_OF]


def register() -> None:
    """Adds the backend "reshard" to both of vLLM's factories, and the load_format. May be called again."""
    from vllm.distributed import weight_transfer

    for kind, module in (("WeightTransferEngineFactory", "worker"), ("WeightTransferTrainerFactory", "trainer")):
        factory = getattr(weight_transfer, kind, None)
        if factory is None:
            continue  # vLLM 0.25 has none for trainers
        name = next(name for name, where in reversed(_MODULE_OF.items()) if where == module)
        try:
            factory.register_engine("reshard", f"{__name__}.{module}", name)
        except ValueError:
            pass  # it is there
    _register_loader()


@functools.cache  # vLLM warns where one is registered twice
def _register_loader() -> None:
    from vllm.model_executor.model_loader import register_model_loader

    register_model_loader("reshard")(__getattr__("Loader"))


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
