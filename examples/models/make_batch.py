#!/usr/bin/env python3
"""Prints one problem per line for `reshard plan --batch -`: the tensors of a model from one set of rules to another.

usage: make_batch.py MODEL RULES_FROM RULES_TO [--scale K]

--scale K divides every dimension by K and rounds up to a size that the mesh divides as evenly as the original, which
gives a small copy of the model whose tensors are sharded in the same way.
"""
import argparse
import json
import math
import re
import signal
import sys


def matches(pattern, name):
    """Matches the whole name: `*` is any text, `?` any one character, and everything else itself."""
    parts = {"*": ".*", "?": "."}
    return re.fullmatch("".join(parts.get(c, re.escape(c)) for c in pattern), name, re.DOTALL) is not None


def layout_of(name, rules, file):
    for pattern, layout in rules["layouts"]:
        if matches(pattern, name):
            return layout
    sys.exit(f"{file}: no rule matches {name}")


def devices(mesh):
    return math.prod(int(size) for size in re.findall(r":(\d+)", mesh.split("@")[0]))


def scaled(size, scale, ways):
    """About size / scale, rounded up to a multiple of gcd(size, ways)."""
    even = math.gcd(size, ways)
    return min(size, -(-size // (scale * even)) * even)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("rules_from")
    parser.add_argument("rules_to")
    parser.add_argument("--scale", type=int, default=1, metavar="K")
    arguments = parser.parse_args()
    if arguments.scale < 1:
        parser.error("--scale must be at least 1")

    def read(file):
        with open(file, encoding="utf-8") as stream:
            return json.load(stream)

    source, target = read(arguments.rules_from), read(arguments.rules_to)
    ways = math.lcm(devices(source["mesh"]), devices(target["mesh"]))
    for tensor in read(arguments.model)["tensors"]:
        name = tensor["name"]
        problem = {
            "id": name,
            "mesh": source["mesh"],
            "from": layout_of(name, source, arguments.rules_from),
            "to": layout_of(name, target, arguments.rules_to),
            "shape": [scaled(size, arguments.scale, ways) for size in tensor["shape"]],
            "dtype": tensor["dtype"],
        }
        if target["mesh"] != source["mesh"]:
            problem["to_mesh"] = target["mesh"]
        print(json.dumps(problem))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the reader may stop early, as `head` does
    main()
