#!/usr/bin/env python3
"""The recipe from a decoder that MaxText has trained to its model in transformers: Llama 2 and 3, Mistral, Qwen 2 and 3, and
Qwen 3's mixtures of experts.

usage: maxtext_to_hf.py --model llama --head-dim N [options] > recipe.json
       maxtext_to_hf.py --model qwen [options] > recipe.json

MaxText keeps all layers in one tensor (scan_layers), along dimension 1 (param_scan_axis), and kernels with what goes in first.
Llama's queries are divided by the square root of head_dim, and what its rotations turn are pairs side by side; transformers
has halves. A checkpoint with unscanned layers is recognized by its names, and so are biases, norms of queries and keys,
experts, and an output that is tied to the embedding.
"""
import argparse
import json
import math


def unscanned(name, axis):
    """A parameter of layer {l}, from the tensor that has all layers."""
    return {"unstack": f"decoder.layers.{name}", "dim": axis, "part": "{l}"}


def parameters(model, head_dim, layer):
    """The parameters of one layer: the name in transformers, and what it is made of. layer(name) is a parameter of the layer in MaxText."""
    out_first = {"dims": [0, -1]}

    def heads(name, turned=False, by=None):
        """[embed, heads, head_dim] as [heads * head_dim, embed]."""
        kernel = layer(name)
        if by is not None:
            kernel = {"multiply": kernel, "by": by}
        if not turned:
            return {"flatten": {"permute": kernel, "dims": [1, 2, 0]}, "dims": [0, 1]}
        pairs = {"unflatten": kernel, "dim": -1, "sizes": [-1, 2]}
        return {"flatten": {"permute": pairs, "dims": [1, 3, 2, 0]}, "dims": [0, 2]}

    is_llama = model == "llama"
    attention = {
        "q_proj.weight": heads("self_attention.query.kernel", is_llama, math.sqrt(head_dim) if is_llama else None),
        "k_proj.weight": heads("self_attention.key.kernel", is_llama),
        "v_proj.weight": heads("self_attention.value.kernel"),
        "o_proj.weight": {"transpose": {"flatten": layer("self_attention.out.kernel"), "dims": [0, 1]}, **out_first},
    }
    if not is_llama:
        for short, long in (("q", "query"), ("k", "key"), ("v", "value")):
            attention[f"{short}_proj.bias"] = {"flatten": layer(f"self_attention.{long}.bias"), "dims": [0, 1]}
        attention |= {f"{short}_norm.weight": layer(f"self_attention.{long}_norm.scale") for short, long in (("q", "query"), ("k", "key"))}
    mlp = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}
    return {
        "input_layernorm.weight": layer("pre_self_attention_layer_norm.scale"),
        "post_attention_layernorm.weight": layer("post_self_attention_layer_norm.scale"),
        **{f"self_attn.{name}": made for name, made in attention.items()},
        **{f"mlp.{to}.weight": {"transpose": layer(f"mlp.{name}.kernel"), **out_first} for to, name in mlp.items()},
        "mlp.gate.weight": {"transpose": layer("moe_block.gate.kernel"), **out_first},
    }


def experts(of_layers):
    """[experts, embed, mlp] of a layer as one tensor [mlp, embed] per expert; of_layers(name) is the parameter of all experts."""
    return {
        f"mlp.experts.{{e}}.{to}.weight": {"transpose": of_layers(f"moe_block.{name}"), "dims": [0, -1]}
        for to, name in {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}.items()
    }


def recipe(model, head_dim=None, prefix="params.params.", scan_axis=1, vocabulary=None):
    def scanned(name):
        return unscanned(name, scan_axis)

    def alone(name):
        return f"decoder.layers_{{l}}.{name}"

    def of_expert(tensor):
        return {"unstack": tensor, "dim": 0, "part": "{e}"}

    def rows(tensor):
        return tensor if vocabulary is None else {"slice": tensor, "end": vocabulary}

    rules = {
        "model.embed_tokens.weight": [rows("token_embedder.embedding")],
        "model.norm.weight": ["decoder.decoder_norm.scale"],
        "lm_head.weight": [rows({"transpose": "decoder.logits_dense.kernel", "dims": [0, 1]})],
    }
    layers = [
        parameters(model, head_dim, scanned) | experts(lambda name: {"unstack": of_expert(f"decoder.layers.{name}"), "dim": 0, "part": "{l}"}),
        parameters(model, head_dim, alone) | experts(lambda name: of_expert(alone(name))),
    ]
    for of_layer in layers:
        for name, made in of_layer.items():
            rules.setdefault(f"model.layers.{{l}}.{name}", []).append(made)
    return {
        "schema": "reshard.recipe/1",
        "description": f"a {model} that MaxText has trained, for transformers",
        "include": [f"{prefix}*"],
        "strip_prefix": prefix,
        "tensors": [{"to": to, "from": made, "optional": True} for to, ways in rules.items() for made in ways],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["llama", "qwen"], required=True, help="llama also for Mistral; qwen has no scaled queries")
    parser.add_argument("--head-dim", type=int, help="of llama: head_dim, or hidden_size / num_attention_heads")
    parser.add_argument("--prefix", default="params.params.", help='before the names of parameters (default "params.params.")')
    parser.add_argument("--scan-axis", type=int, default=1, help="param_scan_axis (default 1)")
    parser.add_argument("--vocabulary", type=int, help="vocab_size, where MaxText's is padded")
    arguments = parser.parse_args()
    if (arguments.head_dim is None) == (arguments.model == "llama"):
        parser.error("--head-dim goes with --model llama")
    print(json.dumps(recipe(arguments.model, arguments.head_dim, arguments.prefix, arguments.scan_axis, arguments.vocabulary), indent=1))


if __name__ == "__main__":
    main()
