#!/usr/bin/env python3
"""Writes a small training checkpoint of Llama's kind to try things on: 8 heads in 2 groups, 2 layers, 80 words, f32.

usage: make.py DESTINATION [--megatron]      (needs `reshard` in PATH, and no package)

As FSDP on four ranks saves it, with a counter of the optimizer; --megatron: as Megatron-core saves it.
"""
import argparse
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

LAYER = {"self_attn.q_proj": [64, 32], "self_attn.k_proj": [16, 32], "self_attn.v_proj": [16, 32], "self_attn.o_proj": [32, 64],
         "mlp.gate_proj": [48, 32], "mlp.up_proj": [48, 32], "mlp.down_proj": [32, 48], "input_layernorm": [32],
         "post_attention_layernorm": [32]}
TENSORS = {**{f"model.model.layers.{i}.{part}.weight": shape for i in range(2) for part, shape in LAYER.items()},
           "model.model.embed_tokens.weight": [80, 32], "model.model.norm.weight": [32], "model.lm_head.weight": [80, 32],
           "optimizer.state.step": [1]}


def write_safetensors(path, tensors):
    """Element i of every tensor is i."""
    head, data = {}, b""
    for name, shape in tensors.items():
        count = math.prod(shape)
        begin = len(data)
        data += struct.pack(f"<{count}f", *range(count))
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("destination")
    parser.add_argument("--megatron", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_safetensors(os.path.join(folder, "model.safetensors"), TENSORS)
        sharded = ["--mesh", "{dp:4}", "--layout", "[<dp>, ...]"]
        if arguments.megatron:
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../recipes/llama_to_megatron.py")
            recipe = os.path.join(folder, "recipe.json")
            with open(recipe, "w", encoding="utf-8") as file:
                subprocess.run([sys.executable, script, "--heads", "8", "--groups", "2"], stdout=file, check=True)
            sharded = ["--mesh", "{pp:2,tp:2}", "--layout", "[<pp>, <tp>, ...]", "--recipe", recipe, "--weights-only",
                       "--strip-prefix", "model."]
        return subprocess.run(["reshard", "convert", folder, arguments.destination, *sharded], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
