#!/usr/bin/env python3
"""`reshard convert --recipe`: what the command says and does; what the recipes mean is tested against PyTorch elsewhere.

usage: recipe_test.py COMMAND SOURCE_DIR
"""
import glob
import json
import os
import struct
import sys
import tempfile

import jsonschema

from command import Command
from checkpoint_test import safetensors


def floats(*numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def main():
    reshard, source_dir = Command(sys.argv[1]), sys.argv[2]
    with open(os.path.join(source_dir, "docs/recipe.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    rows = ["--mesh", "{x:2}", "--layout", "[<x>, ...]"]

    with tempfile.TemporaryDirectory() as root:
        at = lambda name: os.path.join(root, name)  # noqa: E731

        def recipe(name, **members):
            value = {"schema": "reshard.recipe/1", **members}
            jsonschema.validate(value, schema)
            with open(at(name), "w", encoding="utf-8") as file:
                json.dump(value, file)
            return at(name)

        source = at("a.safetensors")
        safetensors(source, {"l.0.q": ("F32", [2, 2], floats(0, 1, 2, 3)), "l.0.k": ("F32", [1, 2], floats(4, 5)),
                             "l.1.q": ("F32", [2, 2], floats(10, 11, 12, 13)), "l.1.k": ("F32", [1, 2], floats(14, 15)),
                             "step": ("I64", [], bytes(8))})
        fuse = recipe("fuse.json", tensors=[{"to": "l.{i}.qk", "from": {"concatenate": ["l.{i}.q", "l.{i}.k"], "sizes": [2, 1]}}],
                      keep=["step"])

        # What would be made, before it is.
        planned = reshard.json("convert", source, at("hf"), "--to", "hf", "--recipe", fuse, "--dry-run", "--json")["planned"]
        assert planned == [
            {"name": "l.0.qk", "from": "concatenate(l.0.q, l.0.k, dim=0, sizes=[2,1])", "dtype": "f32", "shape": [3, 2], "bytes": 24},
            {"name": "l.1.qk", "from": "concatenate(l.1.q, l.1.k, dim=0, sizes=[2,1])", "dtype": "f32", "shape": [3, 2], "bytes": 24},
            {"name": "step", "from": "step", "dtype": "i64", "shape": [], "bytes": 8}], planned
        text = reshard("convert", source, at("hf"), "--to", "hf", "--recipe", fuse, "--dry-run")
        assert "l.0.qk: f32 [3, 2], 24 B = concatenate(l.0.q, l.0.k, dim=0, sizes=[2,1])\n" in text, text
        assert "step: i64 [], 8 B\n" in text and not os.path.exists(at("hf")), text

        # It is made, compared by the same recipe, and turned around.
        reshard("convert", source, at("hf"), "--to", "hf", "--recipe", fuse, "--verify")
        with open(at("hf/model.safetensors"), "rb") as file:
            content = file.read()
        assert content.endswith(bytes(8) + floats(0, 1, 2, 3, 4, 5) + floats(10, 11, 12, 13, 14, 15)), content
        assert reshard.json("verify", source, at("hf"), "--recipe", fuse, "--json")["equal"]
        reshard("verify", source, at("hf"), code=1)
        reshard("convert", at("hf"), at("back"), *rows, "--recipe", fuse, "--invert")
        assert reshard.json("verify", source, at("back"), "--json")["equal"]
        assert reshard.json("verify", at("hf"), at("back"), "--recipe", fuse, "--invert", "--json")["equal"]

        # What is forgotten is told.
        part = recipe("part.json", tensors=[{"to": "l.{i}.q0", "from": {"unstack": "l.{i}.q", "part": 0}}], keep=["*"])
        partly = reshard.json("convert", source, at("part"), "--to", "hf", "--recipe", part, "--dry-run", "--json")["partly_used"]
        assert partly == ['"l.0.q": 2 of 4 elements are used', '"l.1.q": 2 of 4 elements are used'], partly
        assert 'only partly used: "l.0.q": 2 of 4' in reshard("convert", source, at("part"), "--to", "hf", "--recipe", part)

        # A damaged result is found, by the name that it has there.
        with open(at("hf/model.safetensors"), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\xff")
        found = reshard.json("verify", source, at("hf"), "--recipe", fuse, "--json", "--ignore-sidecar", code=1)
        assert [d["name"] for d in found["differences"]] == ["l.1.qk"], found

        # Casts, by flags: the pattern first; integers stay what they are.
        cast = ["--dtype", "bf16", "--dtype", "*.k=f64"]
        planned = reshard.json("convert", source, at("cast"), "--to", "hf", *cast, "--dry-run", "--json")["planned"]
        assert sorted((t["name"], t["dtype"]) for t in planned) == [
            ("l.0.k", "f64"), ("l.0.q", "bf16"), ("l.1.k", "f64"), ("l.1.q", "bf16"), ("step", "i64")], planned
        reshard("convert", source, at("cast"), "--to", "hf", *cast, "--verify")
        with open(at("cast/model.safetensors"), "rb") as file:
            assert struct.pack("<2d", 4, 5) in file.read()

        # The configuration is copied as it is, and where that is no longer true the command says so.
        with open(at("cast/config.json"), "w", encoding="utf-8") as file:
            json.dump({"torch_dtype": "bfloat16", "vocab_size": 7}, file)
        same = reshard.json("convert", at("cast"), at("same"), "--to", "hf", "--dtype", "bf16", "--json")
        assert [f["path"] for f in same["side_files"]] == ["config.json"] and same["contradictions"] == [], same
        said = reshard("convert", at("cast"), at("wide"), "--to", "hf", "--dtype", "f32")
        assert "as it is copied, config.json says torch_dtype bfloat16, most elements are f32\n" in said, said

        # Layouts may be in the recipe; another job has another name, and is not gone on with.
        sharded = recipe("sharded.json", mesh="{x:2}", layouts=[["*", "[<x>, ...]"]])
        reshard("convert", source, at("sharded"), "--recipe", sharded)
        reshard("convert", source, at("sharded"), "--recipe", sharded, "--resume")
        reshard("convert", source, at("sharded"), *rows, "--recipe", fuse, "--resume", code=5)

        # Whole tensors are not cut, whoever says so, and what is said of it makes sense wherever it is.
        for to in ["hf", "safetensors"]:
            error = reshard.fails("convert", source, at("whole"), "--to", to, "--recipe", sharded, code=2)
            assert '"layouts" in the recipe says how tensors are cut' in error, error
        for layout, said in [("garbage", "layouts[0]: "), ("[<y>, ...]", 'unknown axis "y"')]:
            bad = recipe("bad.json", mesh="{x:2}", layouts=[["none", layout], ["*", "[<x>, ...]"]])
            for to in [["--to", "hf"], []]:
                assert said in reshard.fails("convert", source, at("whole"), *to, "--recipe", bad, code=4)
        with open(at("rules.json"), "w", encoding="utf-8") as file:
            json.dump({"mesh": "{x:2}", "layouts": [["none", "[<y>, ...]"], ["*", "[<x>, ...]"]]}, file)
        assert 'unknown axis "y"' in reshard.fails("convert", source, at("whole"), "--rules", at("rules.json"), code=4)

        # A part of each of what goes over a placeholder, and back: every rule by itself.
        parts = recipe("parts.json", tensors=[
            {"to": "x.{e}", "from": {"stack": {"chunk": "l.{l}.q", "chunks": 2, "part": "{e}"}, "over": "l"}},
            {"to": "k.{e}", "from": {"split": {"concatenate": "l.{l}.k", "over": "l", "ratio": [1, 1]}, "dim": 1, "sizes": [1, 1], "part": "{e}"}}],
            keep=["step"])
        reshard("convert", source, at("parts"), "--to", "hf", "--recipe", parts, "--verify")
        with open(at("parts/model.safetensors"), "rb") as file:
            content = file.read()
        for of_one in [floats(0, 1, 10, 11), floats(2, 3, 12, 13), floats(4, 14), floats(5, 15)]:
            assert of_one in content, content
        reshard("convert", at("parts"), at("unparted"), "--to", "hf", "--recipe", parts, "--invert")
        assert reshard.json("verify", source, at("unparted"), "--json")["equal"]

        # A name that never had the prefix does not get one.
        stripped = recipe("stripped.json", strip_prefix="l.0.")
        assert "nothing says which names had it" in reshard.fails(
            "convert", source, at("bad"), "--to", "hf", "--recipe", stripped, "--invert", code=4)
        added = recipe("added.json", add_prefix="m.")
        reshard("convert", source, at("added"), "--to", "hf", "--recipe", added)
        reshard("convert", at("added"), at("removed"), "--to", "hf", "--recipe", added, "--invert")
        assert reshard.json("verify", source, at("removed"), "--json")["equal"]
        assert '"l.0.q" does not begin with "m."' in reshard.fails(
            "convert", source, at("bad"), "--to", "hf", "--recipe", added, "--invert", code=4)

        # Names are shown as they are, as far as a terminal may have them.
        safetensors(at("names.safetensors"), {"Gr\u00f6\u00dfe.w": ("F32", [1], floats(1)), "\u202e\x1b[31m": ("F32", [1], floats(2))})
        unused = recipe("unused.json", tensors=[{"to": "x", "from": "Gr\u00f6\u00dfe.w"}])
        error = reshard.fails("convert", at("names.safetensors"), at("bad"), "--to", "hf", "--recipe", unused, code=4)
        assert '"??[31m"' in error, error
        none = recipe("none_such.json", tensors=[{"to": "x", "from": "\u00fc" * 5000}], keep=["*"])
        error = reshard.fails("convert", at("names.safetensors"), at("bad"), "--to", "hf", "--recipe", none, code=4)
        assert "\u00fc" * 60 + "..." in error and len(error) < 2000, error

        # What is wrong is said, and nothing is written.
        for members, said in [
                (dict(tensors=[{"to": "x", "from": {"concatenate": ["l.0.q", "step"]}}], keep=["*"]), "differ in more than dimension"),
                (dict(tensors=[{"to": "x", "from": "l.0.q"}]), "used by no rule"),
                (dict(tensors=[{"to": "step", "from": "l.0.q"}], keep=["*"]), "would be called"),
                (dict(tensors=[{"to": "x", "from": "y"}], keep=["*"]), "there is no tensor \"y\""),
                (dict(tensors=[{"to": "x", "from": {"stack": "l.{i}.{i}", "over": "i"}}], keep=["*"]), "there is no tensor"),
                (dict(dtype=[["step", "f32"]]), "only floats are cast")]:
            bad = recipe("bad.json", **members)
            error = reshard.fails("convert", source, at("bad"), "--to", "hf", "--recipe", bad, code=4)
            assert said in error, error
            assert not [name for name in os.listdir(root) if name.startswith("bad") and name != "bad.json"], os.listdir(root)
        drops = recipe("drops.json", drop=["step"])
        assert "it drops \"step\"" in reshard.fails("convert", source, at("bad"), "--to", "hf", "--recipe", drops, "--invert", code=4)
        reshard.fails("convert", source, at("bad"), "--to", "hf", "--recipe", at("none.json"), code=5)
        reshard.fails("convert", source, at("bad"), "--to", "hf", "--invert", code=2)
        reshard.fails("convert", source, at("bad"), "--to", "hf", "--dtype", "floaty", code=2)

        # The schema takes what the parser takes.
        for path in glob.glob(os.path.join(source_dir, "examples/recipes/*.json")) + glob.glob(
                os.path.join(source_dir, "tests/fuzz/corpus/recipe/*.json")):
            with open(path, encoding="utf-8") as file:
                jsonschema.validate(json.load(file), schema)


if __name__ == "__main__":
    main()
