#!/usr/bin/env python3
"""Prints the names, shapes and dtypes of Llama 3.1 405B's 1,137 tensors, as published with the model.

usage: make_llama31_405b.py [--optimizer] > llama31_405b.json

--optimizer adds what mixed-precision training with Adam holds beside them: f32 master weights and both moments.
"""
import json
import signal
import sys

from llama_tensors import weights


def main():
    if sys.argv[1:] not in ([], ["--optimizer"]):
        sys.exit(__doc__)
    published = list(weights(layers=126, hidden=16384, ffn=53248, query_heads=128))
    tensors = [(name, shape, "bf16") for name, shape in published]
    if sys.argv[1:]:
        for kind in ("master", "exp_avg", "exp_avg_sq"):
            tensors += [(f"optimizer.{kind}.{name}", shape, "f32") for name, shape in published]
    lines = [json.dumps({"name": name, "shape": shape, "dtype": dtype}) for name, shape, dtype in tensors]
    print('{"name": "llama31_405b", "tensors": [\n  ' + ",\n  ".join(lines) + "\n]}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the reader may stop early, as `head` does
    main()
