#!/usr/bin/env python3
"""Prints names, shapes and dtypes of the tensors of a Llama 3 model, as published with it.

usage: make_llama.py 8b|70b|405b [--optimizer] > llama.json

--optimizer adds what mixed-precision training with Adam holds beside them: f32 master weights and both moments.
"""
import json
import signal
import sys

from llama_tensors import weights

MODELS = {
    "8b": dict(layers=32, hidden=4096, ffn=14336, query_heads=32),
    "70b": dict(layers=80, hidden=8192, ffn=28672, query_heads=64),
    "405b": dict(layers=126, hidden=16384, ffn=53248, query_heads=128),
}


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in MODELS or sys.argv[2:] not in ([], ["--optimizer"]):
        sys.exit(__doc__)
    published = list(weights(**MODELS[sys.argv[1]]))
    tensors = [(name, shape, "bf16") for name, shape in published]
    if sys.argv[2:]:
        for kind in ("master", "exp_avg", "exp_avg_sq"):
            tensors += [(f"optimizer.{kind}.{name}", shape, "f32") for name, shape in published]
    lines = [json.dumps({"name": name, "shape": shape, "dtype": dtype}) for name, shape, dtype in tensors]
    print(f'{{"name": "llama3_{sys.argv[1]}", "tensors": [\n  ' + ",\n  ".join(lines) + "\n]}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the reader may stop early, as `head` does
    main()
