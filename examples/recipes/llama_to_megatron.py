#!/usr/bin/env python3
"""The recipe from Llama, as Hugging Face has it, to a GPT of Megatron-core (torch_dist checkpoints, RMSNorm, SwiGLU, rotary
embeddings); with `reshard convert --weights-only --recipe FILE --invert` the way back.

usage: llama_to_megatron.py --heads N --groups N [--vocabulary N --padded-vocabulary N] > recipe.json

Megatron keeps all layers in one tensor, the q, k and v of a group of heads side by side, and gate before up. It pads the vocabulary
so that ranks share it evenly: the rows that are added are zero, and gone again on the way back.
"""
import argparse
import json


def recipe(heads, groups, vocabulary=None, padded=None):
    layer = "model.layers.{l}"

    def by_word(name):
        return {"pad": name, "dim": 0, "to": padded, "from": vocabulary} if padded else name

    def stacked(inner):
        return {"stack": inner, "over": "l"}

    attention = [f"{layer}.self_attn.{x}_proj.weight" for x in "qkv"]
    tensors = {
        "embedding.word_embeddings.weight": by_word("model.embed_tokens.weight"),
        "decoder.layers.self_attention.linear_qkv.layer_norm_weight": stacked(f"{layer}.input_layernorm.weight"),
        "decoder.layers.self_attention.linear_qkv.weight": stacked(
            {"interleave": attention, "blocks": groups, "ratio": [heads // groups, 1, 1]}),
        "decoder.layers.self_attention.linear_proj.weight": stacked(f"{layer}.self_attn.o_proj.weight"),
        "decoder.layers.mlp.linear_fc1.layer_norm_weight": stacked(f"{layer}.post_attention_layernorm.weight"),
        "decoder.layers.mlp.linear_fc1.weight": stacked(
            {"concatenate": [f"{layer}.mlp.gate_proj.weight", f"{layer}.mlp.up_proj.weight"], "ratio": [1, 1]}),
        "decoder.layers.mlp.linear_fc2.weight": stacked(f"{layer}.mlp.down_proj.weight"),
        "decoder.final_layernorm.weight": "model.norm.weight",
    }
    return {"schema": "reshard.recipe/1", "description": f"Llama with {heads} heads in {groups} groups to Megatron-core's GPT",
            "tensors": [{"to": to, "from": e} for to, e in tensors.items()]
            + [{"to": "output_layer.weight", "from": by_word("lm_head.weight"), "optional": True}]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, required=True, help="num_attention_heads")
    parser.add_argument("--groups", type=int, required=True, help="num_key_value_heads; Megatron calls them query groups")
    parser.add_argument("--vocabulary", type=int, help="vocab_size, where Megatron's is padded")
    parser.add_argument("--padded-vocabulary", type=int, help="rows of Megatron's embedding")
    arguments = parser.parse_args()
    if arguments.groups < 1 or arguments.heads % arguments.groups:
        parser.error("heads are not a multiple of groups")
    if (arguments.vocabulary is None) != (arguments.padded_vocabulary is None):
        parser.error("--vocabulary and --padded-vocabulary go together")
    print(json.dumps(recipe(arguments.heads, arguments.groups, arguments.vocabulary, arguments.padded_vocabulary), indent=1))


if __name__ == "__main__":
    main()
