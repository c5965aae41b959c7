#!/usr/bin/env python3
"""Recorded recipes of transformers' from_pretrained against from_pretrained itself: tiny random models of every type for which it
does more than rename, saved as on the hub, made by `reshard convert`, and equal, tensor by tensor, to what from_pretrained loads.

usage: transformers_test.py COMMAND SOURCE_DIR [TYPE...]
"""
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from safetensors.torch import load_file

from reshard.torch.record.command import main as record

from tiny_models import tiny

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

# Types whose conversions differ in their operations, the most loaded first.
TYPES = ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "phimoe", "deepseek_v2", "deepseek_v3", "glm4_moe", "jamba", "minimax",
         "ernie4_5_moe", "lfm2_moe", "dots1", "flex_olmo", "hunyuan_v1_moe", "qwen3_next", "olmo_hybrid", "afmoe", "minimax_m2",
         "nemotron_h", "llama", "gpt_oss", "gemma3_text"]

def one(command, kind, folder):
    """What came out of a type: how many tensors are equal, and how many rules do more than rename."""
    path = os.path.join(folder, "hub")
    model = tiny(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter, dtype=torch.float32))
    model.save_pretrained(path)
    loaded = type(model).from_pretrained(path)
    file = os.path.join(folder, "recipe.json")
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = record(["--transformers", path, "-o", file])
    assert code == 0, (kind, said.getvalue())
    with open(file, encoding="utf-8") as text:
        recipe = json.load(text)
    made = os.path.join(folder, "made")
    convert(command, path, made, "--to", "hf", "--recipe", file)
    found = tensors_at(made)
    wanted = loaded.state_dict()
    for name, tensor in found.items():
        assert name in wanted and wanted[name].dtype == tensor.dtype and torch.equal(wanted[name], tensor), (kind, name)
    tied = {t.data_ptr() for name, t in wanted.items() if name in found}
    missing = [name for name, t in wanted.items() if name not in found and t.data_ptr() not in tied and name in dict(loaded.named_parameters())]
    assert not missing, (kind, missing)
    return len(found), sum(not isinstance(rule["from"], str) for rule in recipe["tensors"])


def convert(command, *arguments):
    done = subprocess.run([command, "convert", *arguments, "--verify"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stderr)


def tensors_at(path):
    found = {}
    for name in os.listdir(path):
        if name.endswith(".safetensors"):
            found.update(load_file(os.path.join(path, name)))
    return found


def ready(command, source):
    """The recipes of examples/recipes, against what they say they make, written out in PyTorch."""
    recipes = os.path.join(source, "examples/recipes")
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)  # noqa: E731
        model = tiny("llama")
        model.save_pretrained(at("llama"))
        w = tensors_at(at("llama"))
        layer = lambda i, name: w[f"model.layers.{i}.{name}.weight"]  # noqa: E731

        convert(command, at("llama"), at("fused"), "--to", "hf", "--recipe", os.path.join(recipes, "llama_to_fused.json"))
        fused = tensors_at(at("fused"))
        for i in range(2):
            assert torch.equal(fused.pop(f"model.layers.{i}.self_attn.qkv_proj.weight"),
                               torch.cat([layer(i, f"self_attn.{x}_proj") for x in "qkv"]))
            assert torch.equal(fused.pop(f"model.layers.{i}.mlp.gate_up_proj.weight"),
                               torch.cat([layer(i, "mlp.gate_proj"), layer(i, "mlp.up_proj")]))
        assert all(torch.equal(tensor, w[name]) for name, tensor in fused.items()) and len(fused) == len(w) - 10

        # To Megatron, sharded, and back: the model is the same one.
        script = [sys.executable, os.path.join(recipes, "llama_to_megatron.py"), "--heads", "4", "--groups", "2"]
        with open(at("megatron.json"), "w", encoding="utf-8") as file:
            subprocess.run(script, stdout=file, check=True)
        convert(command, at("llama"), at("whole"), "--to", "hf", "--recipe", at("megatron.json"))
        m = tensors_at(at("whole"))
        for i in range(2):
            qkv = m["decoder.layers.self_attention.linear_qkv.weight"][i].view(2, 4, 16, 64)  # groups; 2 q, k, v; head; hidden
            q, k, v = (layer(i, f"self_attn.{x}_proj") for x in "qkv")
            assert torch.equal(qkv[:, :2].reshape(64, 64), q) and torch.equal(qkv[:, 2].reshape(32, 64), k)
            assert torch.equal(qkv[:, 3].reshape(32, 64), v)
            gate, up = m["decoder.layers.mlp.linear_fc1.weight"][i].chunk(2)
            assert torch.equal(gate, layer(i, "mlp.gate_proj")) and torch.equal(up, layer(i, "mlp.up_proj"))
        convert(command, at("llama"), at("sharded"), "--recipe", at("megatron.json"), "--mesh", "{pp:2,tp:2}",
                "--layout", "[<pp>, <tp>, ...]")
        convert(command, at("sharded"), at("back"), "--to", "hf", "--weights-only", "--recipe", at("megatron.json"), "--invert",
                "--side-file", "*")
        back = transformers.AutoModelForCausalLM.from_pretrained(at("back"))
        words = torch.arange(12)[None]
        with torch.no_grad():
            assert torch.equal(back(words).logits, model(words).logits)

        for kind, recipe, names, gate_name in [
                ("mixtral", "mixtral_to_fused.json", ("w1", "w3", "w2"), "block_sparse_moe"),
                ("qwen3_moe", "qwen_moe_to_fused.json", ("gate_proj", "up_proj", "down_proj"), "mlp")]:
            tiny(kind).save_pretrained(at(kind))
            w = tensors_at(at(kind))
            convert(command, at(kind), at(kind + "_fused"), "--to", "hf", "--recipe", os.path.join(recipes, recipe))
            fused = tensors_at(at(kind + "_fused"))
            for i in range(2):
                experts = lambda x: torch.stack([w[f"model.layers.{i}.{gate_name}.experts.{e}.{x}.weight"] for e in range(4)])  # noqa: E731, B023
                gate, up, down = (experts(x) for x in names)
                assert torch.equal(fused[f"model.layers.{i}.mlp.experts.w13_weight"], torch.cat([gate, up], 1))
                assert torch.equal(fused[f"model.layers.{i}.mlp.experts.w2_weight"], down)
                assert torch.equal(fused[f"model.layers.{i}.mlp.gate.weight"], w[f"model.layers.{i}.{gate_name}.gate.weight"])
    print("ready recipes: equal")


def main():
    command, source, kinds = sys.argv[1], sys.argv[2], sys.argv[3:] or TYPES
    if not sys.argv[3:]:
        ready(command, source)
    equal = 0
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                tiny(kind)
            except Exception as why:  # the package's own reasons
                print(f"{kind}: no tiny model: {type(why).__name__}: {str(why).splitlines()[0][:120]}")
                continue
            tensors, made = one(command, kind, folder)
            equal += 1
            print(f"{kind}: {tensors} tensors equal, {made} rules do more than rename")
    # Most of these types can be made tiny.
    return 0 if sys.argv[3:] or equal >= 20 else 1


if __name__ == "__main__":
    sys.exit(main())
