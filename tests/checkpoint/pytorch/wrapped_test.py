#!/usr/bin/env python3
"""Models of transformers as training scripts save them, compiled, wrapped and beside their optimizers: `reshard convert SRC OUT --to hf`
without another flag gives what from_pretrained loads, with equal logits.

usage: wrapped_test.py COMMAND
"""
import os
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TINY = dict(hidden_size=32, intermediate_size=48, moe_intermediate_size=24, shared_expert_intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, vocab_size=64, num_experts=4, num_experts_per_tok=2,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def tiny(kind, **more):
    known = transformers.CONFIG_MAPPING[kind]().to_dict()
    config = transformers.CONFIG_MAPPING[kind](**{k: v for k, v in (TINY | more).items() if k in known})
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config)


class Trainer(torch.nn.Module):
    """A module that has the model as its `model`, as those of Lightning and of many scripts do."""

    def __init__(self, model):
        super().__init__()
        self.model = model


def named(module):
    """What module.state_dict() would be if wrappers did not hide themselves in it."""
    tensors = dict(module.named_parameters(remove_duplicate=False))
    for name, buffer in module.named_buffers(remove_duplicate=False):
        owner = module.get_submodule(name.rpartition(".")[0])
        if name.rpartition(".")[2] not in owner._non_persistent_buffers_set:
            tensors[name] = buffer
    return {name: tensor.detach() for name, tensor in tensors.items()}


def with_parts(model, wrap):
    """The model with each of its layers wrapped."""
    for i, layer in enumerate(model.model.layers):
        model.model.layers[i] = wrap(layer)
    return model


def renamed(part):
    """Names that FSDP gives, which wants a process group for more."""
    return lambda tensors: {f"{part}{name.replace('.mlp.', f'.mlp.{part}')}": tensor for name, tensor in tensors.items()}


# What becomes of the names, and what comes off.
WRAPPERS = {
    "compiled": lambda model: torch.compile(model).state_dict(),
    "layers compiled": lambda model: with_parts(model, torch.compile).state_dict(),
    "DataParallel": lambda model: torch.nn.DataParallel(model).state_dict(),
    "all at once": lambda model: named(torch.nn.DataParallel(torch.compile(Trainer(with_parts(model, checkpoint_wrapper))))),
    "FSDP": lambda model: renamed("_fsdp_wrapped_module.")(model.state_dict()),
    "a trainer": lambda model: Trainer(model).state_dict(),
    "bare": lambda model: model.state_dict(),
}


def trained(kind, **more):
    """A tiny model, and the optimizer that has made a step with it."""
    model = tiny(kind, **more)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    words = torch.arange(12)[None]
    model(words, labels=words).loss.backward()
    optimizer.step()
    return model.eval(), optimizer


def check(command, kind, wrapper, store, **more):
    model, optimizer = trained(kind, **more)
    words = torch.arange(12)[None]
    with torch.no_grad():
        wanted = model(words).logits
    with tempfile.TemporaryDirectory() as folder:
        source, made = os.path.join(folder, "source"), os.path.join(folder, "made")
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(source)
        state = {"model": WRAPPERS[wrapper](model), "optimizer": optimizer.state_dict()}
        if store == "dcp":
            dcp.save(state, checkpoint_id=source, no_dist=True)
        elif store == "dcp, flat":
            dcp.save(state["model"], checkpoint_id=source, no_dist=True)
        else:
            torch.save(state, os.path.join(source, "pytorch_model.bin"))
        for arguments in (["convert", source, made, "--to", "hf"], ["verify", source, made]):
            done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (kind, wrapper, store, arguments, done.stdout, done.stderr)
        loaded, told = transformers.AutoModelForCausalLM.from_pretrained(made, output_loading_info=True)
        assert not told["missing_keys"] and not told["unexpected_keys"], (kind, wrapper, store, told)
        with torch.no_grad():
            assert torch.equal(loaded.eval()(words).logits, wanted), (kind, wrapper, store)


def main():
    command = sys.argv[1]
    cases = [("llama", wrapper, store, {}) for wrapper in WRAPPERS for store in ("dcp", "dcp, flat", "torch.save")]
    cases += [("qwen2_moe", wrapper, store, {}) for wrapper in ("all at once", "FSDP", "bare") for store in ("dcp", "torch.save")]
    cases += [("llama", wrapper, "dcp", {"tie_word_embeddings": True}) for wrapper in ("a trainer", "bare")]
    for kind, wrapper, store, more in cases:
        check(command, kind, wrapper, store, **more)
    print(f"{len(cases)} models: equal logits")


if __name__ == "__main__":
    main()
