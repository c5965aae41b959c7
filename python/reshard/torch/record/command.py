"""python3 -m reshard record: the recipe of a program's own loader, for `reshard convert --recipe`."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import InputError
from . import Recording, record


def of_transformers(model: str, source: str) -> Recording:
    """What from_pretrained makes of a checkpoint. The model is a folder with a config.json; its code is transformers'."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(model)
    name = (getattr(config, "architectures", None) or [""])[0]
    kind = getattr(transformers, name, None)
    if kind is None:
        with torch.device("meta"):
            kind = type(transformers.AutoModel.from_config(config))

    def load(pairs: Any) -> Any:
        return kind.from_pretrained(None, config=config, state_dict=dict(pairs))

    return record(load, source)


def of_vllm(model: str, source: str) -> Recording:
    """What the loaders of vLLM's model make of a checkpoint, on one worker."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the model is in this process then
    from vllm import LLM

    from ...vllm.form import LoadedForm

    def recorded(engine: Any) -> Recording:
        form = LoadedForm(engine, llm.llm_engine.model_config)
        return record(form.load, source, target=form.tensors)

    llm = LLM(model=model, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=16)
    return llm.apply_model(recorded)[0]


def main(arguments: Sequence[str]) -> int:
    """Exit codes as those of the command: 0, or 2 where the arguments cannot be; a recipe that lacks parameters is 4."""
    parser = argparse.ArgumentParser("python3 -m reshard record", description=__doc__)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--transformers", metavar="MODEL", help="a folder with a config.json: what from_pretrained does")
    kind.add_argument("--vllm", metavar="MODEL", help="the same: what vLLM's model holds, on one worker")
    parser.add_argument("--source", metavar="CHECKPOINT", help="what is loaded (default: MODEL)")
    parser.add_argument("-o", "--output", metavar="FILE", help="where the recipe goes (default: to standard output)")
    given = parser.parse_args(arguments)
    model = given.transformers or given.vllm
    try:
        recording = (of_transformers if given.transformers else of_vllm)(model, given.source or model)
    except (InputError, OSError, ImportError) as error:
        print(f"reshard record: {error}", file=sys.stderr)
        return 2
    print(recording, file=sys.stderr)
    if given.output:
        recording.save(given.output)
    else:
        json.dump(recording.recipe, sys.stdout, indent=1)
        print()
    return 4 if recording.unrecorded or recording.by_value else 0
