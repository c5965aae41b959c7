#!/usr/bin/env python3
"""Prints llama3_8b.json: the names, shapes and dtypes of Llama 3 8B's 291 tensors, as published with the model.

usage: make_llama3_8b.py > llama3_8b.json
"""
import json

VOCABULARY, HIDDEN, FFN, LAYERS = 128256, 4096, 14336, 32
HEAD, QUERY_HEADS, KV_HEADS = 128, 32, 8

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


def tensors():
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    for layer in range(LAYERS):
        for name, shape in LAYER:
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]


lines = [json.dumps({"name": name, "shape": shape, "dtype": "bf16"}) for name, shape in tensors()]
print('{"name": "llama3_8b", "tensors": [\n  ' + ",\n  ".join(lines) + "\n]}")
