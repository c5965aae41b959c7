#!/usr/bin/env python3
"""The recipe from a model in transformers to a decoder that MaxText goes on training: Llama 2 and 3, Mistral, Qwen 2 and 3, and
Qwen 3's mixtures of experts. maxtext_to_hf.py is the way back, and says what differs.

usage: hf_to_maxtext.py --model llama|qwen --head-dim N [options] > recipe.json

Biases, norms of queries and keys, experts, and an output that is tied to the embedding are recognized by their names.
"""
import argparse
import json
import math


def heads(name, head_dim):
    """[heads * head_dim, embed] as [embed, heads, head_dim]."""
    return {"permute": {"unflatten": name, "dim": 0, "sizes": [-1, head_dim]}, "dims": [2, 0, 1]}


def turned_heads(name, head_dim):
    """The same, with the two halves of a head interleaved as pairs."""
    halves = {"unflatten": name, "dim": 0, "sizes": [-1, 2, head_dim // 2]}
    return {"flatten": {"permute": halves, "dims": [3, 0, 2, 1]}, "dims": [2, 3]}


def parameters(model, head_dim):
    """The parameters of one layer: the name in MaxText, and what it is made of."""
    of = "model.layers.{l}."
    is_llama = model == "llama"
    kernel = turned_heads if is_llama else heads
    query = kernel(f"{of}self_attn.q_proj.weight", head_dim)
    out = {
        "pre_self_attention_layer_norm.scale": f"{of}input_layernorm.weight",
        "post_self_attention_layer_norm.scale": f"{of}post_attention_layernorm.weight",
        "self_attention.query.kernel": {"multiply": query, "by": 1 / math.sqrt(head_dim)} if is_llama else query,
        "self_attention.key.kernel": kernel(f"{of}self_attn.k_proj.weight", head_dim),
        "self_attention.value.kernel": heads(f"{of}self_attn.v_proj.weight", head_dim),
        "self_attention.out.kernel": {
            "unflatten": {"transpose": f"{of}self_attn.o_proj.weight", "dims": [0, 1]}, "dim": 0, "sizes": [-1, head_dim],
        },
        "moe_block.gate.kernel": {"transpose": f"{of}mlp.gate.weight", "dims": [0, 1]},
    }  # fmt: skip
    if not is_llama:
        for short, long in (("q", "query"), ("k", "key"), ("v", "value")):
            out[f"self_attention.{long}.bias"] = {"unflatten": f"{of}self_attn.{short}_proj.bias", "dim": 0, "sizes": [-1, head_dim]}
        out |= {f"self_attention.{long}_norm.scale": f"{of}self_attn.{short}_norm.weight" for short, long in (("q", "query"), ("k", "key"))}
    for name, theirs in {"wi_0": "gate_proj", "wi_1": "up_proj", "wo": "down_proj"}.items():
        out[f"mlp.{name}.kernel"] = {"transpose": f"{of}mlp.{theirs}.weight", "dims": [0, 1]}
        expert = {"transpose": f"{of}mlp.experts.{{e}}.{theirs}.weight", "dims": [0, 1]}
        out[f"moe_block.{name}"] = {"stack": expert, "over": "e"}
    return out


def recipe(model, head_dim, prefix="params.params.", scan_axis=1, vocabulary=None):
    def rows(tensor):
        return tensor if vocabulary is None else {"pad": tensor, "to": vocabulary}

    tensors = {
        "token_embedder.embedding": rows("model.embed_tokens.weight"),
        "decoder.decoder_norm.scale": "model.norm.weight",
        "decoder.logits_dense.kernel": {"transpose": rows("lm_head.weight"), "dims": [0, 1]},
    }
    for name, made in parameters(model, head_dim).items():
        if scan_axis is None:
            tensors[f"decoder.layers_{{l}}.{name}"] = made
        else:  # experts, layers, ...
            axis = 1 if name.startswith("moe_block.w") else scan_axis
            tensors[f"decoder.layers.{name}"] = {"stack": made, "over": "l", "dim": axis}
    return {
        "schema": "reshard.recipe/1",
        "description": f"a {model} of transformers, for MaxText",
        "tensors": [{"to": f"{prefix}{to}", "from": made, "optional": True} for to, made in tensors.items()],
        "drop": ["*.rotary_emb.inv_freq"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["llama", "qwen"], required=True, help="llama also for Mistral; qwen has no scaled queries")
    parser.add_argument("--head-dim", type=int, required=True, help="head_dim, or hidden_size / num_attention_heads")
    parser.add_argument("--prefix", default="params.params.", help='before the names of parameters (default "params.params.")')
    parser.add_argument("--scan-axis", type=int, default=1, help="param_scan_axis (default 1)")
    parser.add_argument("--unscanned", action="store_true", help="layers_0, layers_1, ... (scan_layers=false)")
    parser.add_argument("--vocabulary", type=int, help="vocab_size of MaxText, if it pads the model's")
    arguments = parser.parse_args()
    axis = None if arguments.unscanned else arguments.scan_axis
    print(json.dumps(recipe(arguments.model, arguments.head_dim, arguments.prefix, axis, arguments.vocabulary), indent=1))


if __name__ == "__main__":
    main()
