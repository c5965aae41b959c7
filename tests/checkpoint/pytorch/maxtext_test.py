#!/usr/bin/env python3
"""Models of transformers as MaxText holds them, scanned and not: examples/recipes/hf_to_maxtext.py, and maxtext_to_hf.py back.

usage: maxtext_test.py COMMAND SOURCE_DIR

What MaxText holds is made here as its own converter documents it (checkpoint_conversion/utils/param_mapping.py, with
saving_to_hf=False), in NumPy.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

transformers.utils.logging.disable_progress_bar()
COMMAND, RECIPES = sys.argv[1], pathlib.Path(sys.argv[2]) / "examples/recipes"
HEADS, GROUPS, HEAD_DIM, EMBED, LAYERS, EXPERTS = 4, 2, 8, 32, 3, 4
TINY = dict(hidden_size=EMBED, intermediate_size=48, moe_intermediate_size=24, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            num_key_value_heads=GROUPS, head_dim=HEAD_DIM, vocab_size=64, num_experts=EXPERTS, num_local_experts=EXPERTS,
            num_experts_per_tok=2,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
WORDS = torch.arange(12)[None]


def tiny(kind):
    known = transformers.CONFIG_MAPPING[kind]().to_dict()
    config = transformers.CONFIG_MAPPING[kind](**{k: v for k, v in TINY.items() if k in known})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):  # which are all alike
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model.eval()


def kernel(weight, *shape):
    return weight.T.reshape(shape)


def interleaved(array):
    half = array.shape[-1] // 2
    return np.stack([array[..., :half], array[..., half:]], axis=-1).reshape(array.shape)


def of_layer(kind, weights):
    """A layer's parameters as MaxText has them, of those of transformers."""
    is_llama = kind in ("llama", "mistral")
    query = kernel(weights["self_attn.q_proj.weight"], EMBED, HEADS, HEAD_DIM)
    key = kernel(weights["self_attn.k_proj.weight"], EMBED, GROUPS, HEAD_DIM)
    if is_llama:
        query = interleaved((query.astype(np.float32) * np.float32(1 / np.sqrt(HEAD_DIM))).astype(query.dtype))
        key = interleaved(key)
    out = {
        "pre_self_attention_layer_norm.scale": weights["input_layernorm.weight"],
        "post_self_attention_layer_norm.scale": weights["post_attention_layernorm.weight"],
        "self_attention.query.kernel": query,
        "self_attention.key.kernel": key,
        "self_attention.value.kernel": kernel(weights["self_attn.v_proj.weight"], EMBED, GROUPS, HEAD_DIM),
        "self_attention.out.kernel": kernel(weights["self_attn.o_proj.weight"], HEADS, HEAD_DIM, EMBED),
    }
    for short, long in (("q", "query"), ("k", "key"), ("v", "value")):
        if (bias := weights.get(f"self_attn.{short}_proj.bias")) is not None:
            out[f"self_attention.{long}.bias"] = bias.reshape(-1, HEAD_DIM)
        if (norm := weights.get(f"self_attn.{short}_norm.weight")) is not None:
            out[f"self_attention.{long}_norm.scale"] = norm
    names = {"wi_0": "gate_proj", "wi_1": "up_proj", "wo": "down_proj"}
    if "mlp.gate.weight" in weights:
        out["moe_block.gate.kernel"] = weights["mlp.gate.weight"].T
        for name, theirs in names.items():
            out[f"moe_block.{name}"] = np.stack([weights[f"mlp.experts.{e}.{theirs}.weight"].T for e in range(EXPERTS)])
    else:
        out |= {f"mlp.{name}.kernel": weights[f"mlp.{theirs}.weight"].T for name, theirs in names.items()}
    return out


def as_maxtext(kind, weights, scan_axis):
    """All parameters; unscanned where scan_axis is None."""
    out = {"token_embedder.embedding": weights["model.embed_tokens.weight"], "decoder.decoder_norm.scale": weights["model.norm.weight"],
           "decoder.logits_dense.kernel": weights["lm_head.weight"].T}
    layers = []
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        layers.append(of_layer(kind, {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}))
    for name in layers[0]:
        if scan_axis is None:
            out |= {f"decoder.layers_{number}.{name}": layer[name] for number, layer in enumerate(layers)}
        elif name.startswith("moe_block.w"):  # experts, layers, ...
            out[f"decoder.layers.{name}"] = np.stack([layer[name] for layer in layers], axis=1)
        else:
            out[f"decoder.layers.{name}"] = np.stack([layer[name] for layer in layers], axis=scan_axis)
    return {f"params.params.{name}": np.ascontiguousarray(array) for name, array in out.items()} | {
        "opt_state.mu.params.decoder.decoder_norm.scale": np.zeros(EMBED, np.float32), "step": np.array(7)}


def converted(folder, source, destination, to, script, options):
    """A conversion by the recipe that the script prints."""
    with open(f"{folder}/recipe.json", "w", encoding="utf-8") as file:
        subprocess.run([sys.executable, RECIPES / script, *options], stdout=file, check=True)
    command = [COMMAND, "convert", f"{folder}/{source}", f"{folder}/{destination}", "--to", to, "--recipe", f"{folder}/recipe.json", "--verify"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def made_wrong(folder, expected):
    """Parameters that hf_to_maxtext.py makes otherwise than MaxText's converter, and why."""
    made = load_file(f"{folder}/for_maxtext/model.safetensors")
    wrong = sorted(set(made) ^ {name for name in expected if name.startswith("params.")})
    for name in set(made) & set(expected):
        if made[name].shape != expected[name].shape or not np.array_equal(made[name], expected[name]):
            wrong.append(f"{name}: {made[name].shape}, not {expected[name].shape}, or other values")
    return wrong


def differences(folder, kind, scan_axis):
    """What is wrong with a model that went to MaxText and back; empty where nothing is."""
    model = tiny(kind)
    model.save_pretrained(f"{folder}/hf")
    weights = load_file(f"{folder}/hf/model.safetensors")
    expected = as_maxtext(kind, weights, scan_axis)
    save_file(expected, f"{folder}/maxtext.safetensors")
    is_llama = kind in ("llama", "mistral")
    axis = [] if scan_axis in (None, 1) else ["--scan-axis", str(scan_axis)]
    there = ["--model", "llama" if is_llama else "qwen", "--head-dim", str(HEAD_DIM), *axis, *(["--unscanned"] if scan_axis is None else [])]
    done = converted(folder, "hf", "for_maxtext", "safetensors", "hf_to_maxtext.py", there)
    if done.returncode != 0 or (wrong := made_wrong(folder, expected)):
        return done.stdout + done.stderr if done.returncode != 0 else f"hf_to_maxtext.py: {wrong}"
    back = ["--model", "llama", "--head-dim", str(HEAD_DIM)] if is_llama else ["--model", "qwen"]
    done = converted(folder, "maxtext.safetensors", "made", "hf", "maxtext_to_hf.py", back + axis)
    if done.returncode != 0:
        return done.stdout + done.stderr
    model.config.save_pretrained(f"{folder}/made")
    made, told = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/made", output_loading_info=True)
    with torch.no_grad():
        wanted, found = model(WORDS).logits, made.eval()(WORDS).logits
    # Queries that were divided and multiplied again are rounded twice.
    same = torch.allclose(wanted, found, rtol=1e-5, atol=1e-6) if is_llama else torch.equal(wanted, found)
    return "" if same and not any(told.values()) else f"{told}, logits differ by {(wanted - found).abs().max()}\n{done.stdout}"


def main():
    cases = [("llama", 1), ("llama", None), ("mistral", 1), ("qwen2", 1), ("qwen3", 1), ("qwen3", 0), ("qwen3_moe", 1), ("qwen3_moe", None)]
    wrong = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            if found := differences(folder, *case):
                wrong += 1
                print(f"FAILED {case[0]}, scan axis {case[1]}: {found}\n")
    print(f"{len(cases) - wrong} of {len(cases)} models")
    return wrong


sys.exit(main())
