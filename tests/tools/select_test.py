#!/usr/bin/env python3
"""`reshard convert` with part of a checkpoint: what is taken, what it is called, and what cannot be written.

usage: select_test.py COMMAND SOURCE_DIR
"""
import json
import os
import sys
import tempfile

from command import Command
from checkpoint_test import safetensors


def main():
    reshard, source_dir = Command(sys.argv[1]), sys.argv[2]
    fixtures = os.path.join(source_dir, "tests/checkpoint/fixtures")
    rows = ["--mesh", "{x:2}", "--layout", "[<x>, ...]"]

    def names(path):
        listed = reshard.json("inspect", path, "--json")
        return [t["name"] for t in listed["tensors"]], [i["name"] for i in listed["byte_items"]]

    with tempfile.TemporaryDirectory() as root:
        at = lambda name: os.path.join(root, name)  # noqa: E731

        # Real training state, counters of no dimensions included, under one rule for all.
        source = os.path.join(fixtures, "fsdp_adamw")
        tensors, items = names(source)
        assert any(t["shape"] == [] for t in reshard.json("inspect", source, "--json")["tensors"]), tensors
        reshard("convert", source, at("all"), *rows, "--verify")
        assert names(at("all"))[0] and sorted(names(at("all"))[0]) == sorted(tensors)

        # Only weights, as safetensors: nothing is lost that was asked for. The dictionary around them is none of the model's.
        done = reshard.json("convert", source, at("weights"), "--to", "hf", "--weights-only", "--json")
        assert done["left_out"] == [] and done["left_out_items"] == [], done
        kept = names(at("weights"))[0]
        assert kept and {f"model.{name}" for name in kept} < set(tensors) and not any("optim" in name for name in kept), kept
        with open(at("weights/model.safetensors.index.json"), encoding="utf-8") as file:
            assert sorted(json.load(file)["weight_map"]) == sorted(kept)
        assert reshard.json("verify", source, at("weights"), "--weights-only", "--json")["equal"]
        assert reshard.json("verify", source, at("weights"), "--json")["as_made"]["weights_only"]
        reshard("verify", source, at("weights"), "--ignore-sidecar", code=1)

        # Byte items have no place in safetensors: one line says so, on purpose it is none.
        if items:
            lost = reshard.json("convert", source, at("lost"), "--to", "safetensors", "--json", code=1)
            assert sorted(lost["left_out_items"]) == sorted(items) and lost["left_out"] == [], lost
            reshard("convert", source, at("dropped"), "--to", "safetensors", "--drop-byte-items")

        # Names.
        safetensors(at("m.safetensors"), {f"model.layers.{i}.{w}": ("F32", [2, 2], bytes([16 * i + k] * 16))
                                          for i in range(2) for k, w in enumerate(("q", "k"))} | {"head": ("F32", [2], bytes(8))})
        renamed = ["--strip-prefix", "model.", "--rename", "layers.*.q=blocks.$1.wq", "--rename", "layers.*=blocks.$1", "--add-prefix", "m/"]
        reshard("convert", at("m.safetensors"), at("names"), "--to", "dcp", *rows, *renamed, "--verify")
        assert names(at("names"))[0] == ["m/blocks.0.wq", "m/blocks.0.k", "m/blocks.1.wq", "m/blocks.1.k", "m/head"], names(at("names"))
        assert reshard.json("verify", at("m.safetensors"), at("names"), *renamed, "--json")["equal"]
        reshard("verify", at("m.safetensors"), at("names"), code=1)
        some = ["--include", "model.*", "--exclude", "*.k"]
        reshard("convert", at("m.safetensors"), at("some"), "--to", "safetensors", *some)
        assert names(at("some"))[0] == ["model.layers.0.q", "model.layers.1.q"], names(at("some"))
        # Another selection is another job: nothing of this one is taken for its result.
        assert reshard("convert", at("m.safetensors"), at("some"), "--to", "safetensors", "--include", "head", "--resume", code=5) == ""

        # Two of one name, nothing left, bad flags: before anything is written.
        assert reshard("convert", at("m.safetensors"), at("no"), *rows, "--rename", "*.q=q", code=4) == ""
        assert reshard("convert", at("m.safetensors"), at("no"), *rows, "--include", "none", code=4) == ""
        assert reshard("convert", at("m.safetensors"), at("no"), *rows, "--rename", "q", code=2) == ""
        assert reshard("convert", at("m.safetensors"), at("no"), *rows, "--rename", "q=$1", code=2) == ""
        assert reshard("convert", at("m.safetensors"), at("no"), *rows, "--to", "gguf", code=2) == ""
        assert reshard("convert", at("m.safetensors"), at("no"), *rows, "--to", "dcp", "--format", "dcp", code=2) == ""

        # A tensor that cannot be written stops everything, by name, until it is left out.
        safetensors(at("odd.safetensors"), {"w": ("F32", [2], bytes(8)), "six": ("F6_E2M3", [4], bytes(3))})
        assert reshard("convert", at("odd.safetensors"), at("no"), *rows, code=4) == ""
        assert reshard("convert", at("odd.safetensors"), at("no"), "--to", "hf", code=4) == ""
        reshard("convert", at("odd.safetensors"), at("even"), *rows, "--exclude", "six")
        assert names(at("even"))[0] == ["w"]
        assert not os.path.exists(at("no"))

        # Types that are moved and not computed with.
        opaque = {"scale": ("F8_E8M0", [4, 2], bytes(range(8))), "four": ("F4", [4, 6], bytes(range(12)))}
        safetensors(at("small.safetensors"), opaque)
        reshard("convert", at("small.safetensors"), at("small"), *rows, "--verify")
        assert [(t["dtype"], t["shape"]) for t in reshard.json("inspect", at("small"), "--json")["tensors"]] == [
            ("f8e8m0", [4, 2]), ("f4e2m1x2", [4, 3])]
        reshard("convert", at("small"), at("again"), "--to", "safetensors", "--verify")
        with open(at("again/model.safetensors"), "rb") as file:
            content = file.read()
        assert b'"dtype":"F4","shape":[4,6]' in content and content.endswith((bytes(range(8)) + bytes(range(12)), bytes(range(12)))), content
    print("selections: all as they should be")


if __name__ == "__main__":
    main()
