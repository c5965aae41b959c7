#!/usr/bin/env python3
"""The recipe from Llama, as Hugging Face has it, to a GPT of Megatron (RMSNorm, SwiGLU, rotary embeddings); with `reshard convert
--weights-only --recipe FILE --invert` the way back.

usage: llama_to_megatron.py --heads N --groups N [--vocabulary N --padded-vocabulary N] [--names KIND] > recipe.json

Megatron keeps the q, k and v of a group of heads side by side, and gate before up. It pads the vocabulary so that ranks share it
evenly: the rows that are added are zero, and gone again on the way back. Its torch_dist checkpoints (--names torch_dist, the default)
have all layers in one tensor. Its legacy checkpoints (mp_rank_00/model_optim_rng.pt) have a tensor for each layer, under the names of
the layers that the job had: --names te (Transformer Engine), local (Megatron-core's own) or lm (before Megatron-core).
"""
import argparse
import json


# For each kind: the embedding and what precedes the number of a layer; the norms and the matrices of a layer; what comes last.
CORE = ["embedding.word_embeddings.weight", "decoder.layers.",
        "self_attention.linear_qkv.weight", "self_attention.linear_proj.weight", "mlp.linear_fc1.weight", "mlp.linear_fc2.weight",
        "decoder.final_layernorm.weight", "output_layer.weight"]
NAMES = {
    "te": [*CORE, "self_attention.linear_qkv.layer_norm_weight", "mlp.linear_fc1.layer_norm_weight"],
    "local": [*CORE, "input_layernorm.weight", "pre_mlp_layernorm.weight"],
    "lm": ["language_model.embedding.word_embeddings.weight", "language_model.encoder.layers.",
           "self_attention.query_key_value.weight", "self_attention.dense.weight", "mlp.dense_h_to_4h.weight", "mlp.dense_4h_to_h.weight",
           "language_model.encoder.final_norm.weight", "language_model.output_layer.weight", "input_norm.weight",
           "post_attention_norm.weight"],
}


def recipe(heads, groups, vocabulary=None, padded=None, kind="torch_dist"):
    layer = "model.layers.{l}"
    together = kind == "torch_dist"
    embedding, layers, qkv, proj, fc1, fc2, norm, output, before_attention, before_mlp = NAMES["te" if together else kind]

    def by_word(name):
        return {"pad": name, "dim": 0, "to": padded, "from": vocabulary} if padded else name

    def of_layers(name, inner):
        return (layers + name, {"stack": inner, "over": "l"}) if together else (layers + "{l}." + name, inner)

    attention = [f"{layer}.self_attn.{x}_proj.weight" for x in "qkv"]
    tensors = dict([
        (embedding, by_word("model.embed_tokens.weight")),
        of_layers(before_attention, f"{layer}.input_layernorm.weight"),
        of_layers(qkv, {"interleave": attention, "blocks": groups, "ratio": [heads // groups, 1, 1]}),
        of_layers(proj, f"{layer}.self_attn.o_proj.weight"),
        of_layers(before_mlp, f"{layer}.post_attention_layernorm.weight"),
        of_layers(fc1, {"concatenate": [f"{layer}.mlp.gate_proj.weight", f"{layer}.mlp.up_proj.weight"], "ratio": [1, 1]}),
        of_layers(fc2, f"{layer}.mlp.down_proj.weight"),
        (norm, "model.norm.weight"),
    ])
    return {"schema": "reshard.recipe/1", "description": f"Llama with {heads} heads in {groups} groups to Megatron-core's GPT",
            "tensors": [{"to": to, "from": e} for to, e in tensors.items()]
            + [{"to": output, "from": by_word("lm_head.weight"), "optional": True}]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, required=True, help="num_attention_heads")
    parser.add_argument("--groups", type=int, required=True, help="num_key_value_heads; Megatron calls them query groups")
    parser.add_argument("--vocabulary", type=int, help="vocab_size, where Megatron's is padded")
    parser.add_argument("--padded-vocabulary", type=int, help="rows of Megatron's embedding")
    parser.add_argument("--names", choices=["torch_dist", *NAMES], default="torch_dist", help="what Megatron's checkpoint calls its tensors")
    arguments = parser.parse_args()
    if arguments.groups < 1 or arguments.heads % arguments.groups:
        parser.error("heads are not a multiple of groups")
    if (arguments.vocabulary is None) != (arguments.padded_vocabulary is None):
        parser.error("--vocabulary and --padded-vocabulary go together")
    print(json.dumps(recipe(arguments.heads, arguments.groups, arguments.vocabulary, arguments.padded_vocabulary, arguments.names),
                     indent=1))


if __name__ == "__main__":
    main()
