#!/usr/bin/env python3
"""Prints llama3_8b.json: the names, shapes and dtypes of Llama 3 8B's 291 tensors, as published with the model.

usage: make_llama3_8b.py > llama3_8b.json
"""
import json

from llama_tensors import weights

tensors = weights(layers=32, hidden=4096, ffn=14336, query_heads=32)
lines = [json.dumps({"name": name, "shape": shape, "dtype": "bf16"}) for name, shape in tensors]
print('{"name": "llama3_8b", "tensors": [\n  ' + ",\n  ".join(lines) + "\n]}")
