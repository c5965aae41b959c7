"""vLLM takes published weights by itself: when it starts, and whenever it is asked to. The trainer takes no part.

    vllm serve MODEL --load-format reshard --model-loader-extra-config '{"place": "s3://bucket/policy"}'

    llm = LLM(model, load_format="reshard", model_loader_extra_config={"store": "10.0.0.7:29600"},
              worker_extension_cls="reshard.vllm.PullingWorker")
    llm.collective_rpc("reshard_pull", kwargs={"wait": 60})         # the next version, or None
"""

import datetime
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from vllm.config import set_current_vllm_config
from vllm.distributed.parallel_state import get_world_group

from ..errors import InputError
from ..torch import Puller
from .form import LoadedForm
from .terms import terms_of


class _Taken:
    """Of this process's model: where its weights are published, and the version that it has."""

    def __init__(self, terms: Mapping[str, Any]):
        self.terms = terms
        self.version: int | None = None
        self.into_engine: Puller | None = None  # while it runs
        self._place: Any = terms.get("place")
        if self._place is None:
            host, separator, port = terms["store"].rpartition(":")
            if not separator or not port.isdigit():
                raise InputError(f'store: "{terms["store"]}" is not HOST:PORT')
            timeout = datetime.timedelta(seconds=60)
            self._place = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)

    def puller(self, target: Any, loader: Any, staged: bool) -> Puller:
        options = {member: self.terms[member] for member in ("name", "share") if member in self.terms}
        return Puller(self._place, target, loader=loader, staged=staged, group=get_world_group().cpu_group, **options)


_taken: _Taken | None = None
_form: LoadedForm | None = None


def load(terms: Mapping[str, Any], model: torch.nn.Module) -> None:
    """Loads into a model whose parameters are as vLLM's loaders fill them."""
    global _taken
    taken = _Taken(terms)
    done = taken.puller(model, model.load_weights, staged=False)(wait=terms.get("wait", 0.0))
    assert done is not None
    taken.version = done.version
    _taken = taken


class PullingWorker:
    """worker_extension_cls: what `collective_rpc` calls in each of vLLM's workers."""

    def reshard_pull(self, extra: Mapping[str, Any] | None = None, wait: float = 0.0) -> int | None:
        """Takes a version newer than the current one into the running engine, while no request is in flight.

        Args:
            extra: as model_loader_extra_config, if load_format "reshard" did not load the weights, or they lie elsewhere.
            wait: seconds to wait for one.

        Returns:
            The version's number; None: there is no newer one.

        Raises:
            As reshard.pull: the old weights are in place; UndeterminedError: only a part of the new ones is.
        """
        global _taken, _form
        terms = terms_of(extra) if extra is not None else None
        if _taken is None and terms is None:
            raise InputError('where are weights published? Load with load_format="reshard", or give `extra`')
        if _taken is None or (terms is not None and terms != _taken.terms):
            assert terms is not None
            _taken = _Taken(terms)
        worker: Any = self
        with set_current_vllm_config(worker.vllm_config):
            if _form is None:
                _form = LoadedForm(worker.model_runner.get_model(), worker.model_runner.model_config)
            if _taken.into_engine is None:
                _taken.into_engine = _taken.puller(_form.tensors, _form.load, staged=True)
                _taken.into_engine.version = _taken.version
            done = _taken.into_engine(wait=wait)
            if done is None:
                return None
            _form.finish()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        return done.version
