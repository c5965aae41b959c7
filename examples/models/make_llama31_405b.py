#!/usr/bin/env python3
"""Prints the names, shapes and dtypes of Llama 3.1 405B's 1,137 tensors, as published with the model.

usage: make_llama31_405b.py [--optimizer] > llama31_405b.json

--optimizer adds what mixed-precision training with Adam holds beside them: f32 master weights and both moments.
"""
import json
import sys

VOCABULARY, HIDDEN, FFN, LAYERS = 128256, 16384, 53248, 126
HEAD, QUERY_HEADS, KV_HEADS = 128, 128, 8

LAYER = [
    ("self_attn.q_proj", [QUERY_HEADS * HEAD, HIDDEN]),
    ("self_attn.k_proj", [KV_HEADS * HEAD, HIDDEN]),
    ("self_attn.v_proj", [KV_HEADS * HEAD, HIDDEN]),
    ("self_attn.o_proj", [HIDDEN, QUERY_HEADS * HEAD]),
    ("mlp.gate_proj", [FFN, HIDDEN]),
    ("mlp.up_proj", [FFN, HIDDEN]),
    ("mlp.down_proj", [HIDDEN, FFN]),
    ("input_layernorm", [HIDDEN]),
    ("post_attention_layernorm", [HIDDEN]),
]


def weights():
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    for layer in range(LAYERS):
        for name, shape in LAYER:
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]


def main():
    if sys.argv[1:] not in ([], ["--optimizer"]):
        sys.exit(__doc__)
    tensors = [(name, shape, "bf16") for name, shape in weights()]
    if sys.argv[1:]:
        for kind in ("master", "exp_avg", "exp_avg_sq"):
            tensors += [(f"optimizer.{kind}.{name}", shape, "f32") for name, shape in weights()]
    lines = [json.dumps({"name": name, "shape": shape, "dtype": dtype}) for name, shape, dtype in tensors]
    print('{"name": "llama31_405b", "tensors": [\n  ' + ",\n  ".join(lines) + "\n]}")


if __name__ == "__main__":
    main()
