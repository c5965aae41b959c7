"""load_format "reshard": its options and its entry point. The rest is imported when a model is loaded."""

from collections.abc import Mapping
from typing import Any

import torch
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from .terms import terms_of


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
        """Does nothing: what is published is taken when it is loaded."""

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        """Raises as reshard.pull: nothing is published there, names are not published, no copy can be read."""
        from .pull import load

        load(self._terms, model)
