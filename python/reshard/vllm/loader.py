"""load_format "reshard": what it is told, and where it begins. The rest is imported when a model is loaded."""

from collections.abc import Mapping
from typing import Any

import torch
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from ..errors import InputError

_MEMBERS = {"place": str, "store": str, "name": str, "wait": (int, float), "share": bool}


def terms_of(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The members of model_loader_extra_config.

    Raises:
        InputError: other members, or values of another kind; neither a place nor a store, or both.
    """
    terms = dict(extra or {})
    for member, value in terms.items():
        if member not in _MEMBERS or not isinstance(value, _MEMBERS[member]):
            raise InputError(
                f"model_loader_extra_config: {member}={value!r}; known are place, store and name (text), wait (seconds) and share (true)"
            )
    if ("place" in terms) == ("store" in terms):
        raise InputError(
            'model_loader_extra_config says where weights are published: {"place": "DIRECTORY or URL"}, or {"store": "HOST:PORT"} of '
            "the trainer's TCPStore"
        )
    return terms


class Loader(BaseModelLoader):
    """load_format "reshard": the newest published weights in place of a checkpoint. Each worker reads its own part of each
    parameter, as vLLM's own loader says, and no more.

    model_loader_extra_config: "place", a directory or a URL of a bucket, or "store", the HOST:PORT of a TCPStore, as
    reshard.publish was given it; "name" of what is published; "wait", seconds to wait for the first version; "share", to
    serve it to other engines of the same form.
    """

    def __init__(self, load_config: LoadConfig):
        super().__init__(load_config)
        extra = load_config.model_loader_extra_config
        self._terms = terms_of(extra if isinstance(extra, Mapping) else None)

    def download_model(self, model_config: Any) -> None:
        """Nothing: what is published is taken when it is loaded."""

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        """Raises as reshard.pull: nothing is published there, names that are not, no copy can be read."""
        from .pull import load

        load(self._terms, model)
