"""vLLM's weight transfer through reshard: backend "reshard" of its `weight_transfer_config`.

    llm = LLM(model, weight_transfer_config={"backend": "reshard"})         # in the job that serves

    from reshard.vllm import Source, TrainerInfo                            # in the job that trains, on every rank
    info = TrainerInfo(rank=dist.get_rank(), trainers=dist.get_world_size(), workers=2, host=address, port=29600)
    trainer = WeightTransferTrainerFactory.trainer_init(info, client=client, source=Source(model))
    trainer.send_weights()                                                  # after every update

Importing reshard registers nothing: vLLM loads `register` by the entry point vllm.general_plugins of an installed
reshard, in every process of its own; a trainer's process that uses vLLM's factory calls it. Tried with vLLM 0.32.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainer import Source, TrainerInfo, Transfer
    from .worker import Engine

_MODULE_OF = {"Source": "trainer", "TrainerInfo": "trainer", "Transfer": "trainer", "Engine": "worker"}

__all__ = ["register", *_MODULE_OF]


def register() -> None:
    """Adds the backend "reshard" to both of vLLM's factories. May be called again."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory, WeightTransferTrainerFactory

    for factory, module in ((WeightTransferEngineFactory, "worker"), (WeightTransferTrainerFactory, "trainer")):
        name = next(name for name, where in reversed(_MODULE_OF.items()) if where == module)
        try:
            factory.register_engine("reshard", f"{__name__}.{module}", name)
        except ValueError:
            pass  # it is there


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
