#!/usr/bin/env python3
"""What lies beside a checkpoint, and what its metadata says of all of it: comes along, or is named.

usage: side_files_test.py COMMAND SOURCE_DIR
"""
import json
import os
import pickle
import shutil
import sys
import tempfile

import jsonschema

from command import Command
from checkpoint_test import safetensors


class Attributes(pickle.Unpickler):
    """Reads `.metadata` with every class replaced by a bag of its attributes."""

    class Bag:
        def __init__(self, *arguments):
            self.arguments = arguments

        def __setstate__(self, state):
            self.state = state

        def __hash__(self):
            return id(self)

        def __eq__(self, other):
            return self is other

    def find_class(self, module, name):
        return tuple if name == "Size" else type(name, (self.Bag,), {})


def attributes(directory):
    with open(os.path.join(directory, ".metadata"), "rb") as file:
        return Attributes(file).load().state


def content(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    reshard, source_dir = Command(sys.argv[1]), sys.argv[2]
    fixtures = os.path.join(source_dir, "tests/checkpoint/fixtures/frameworks")
    rows = ["--mesh", "{x:2}", "--layout", "[...]"]

    def validator(name):
        with open(os.path.join(source_dir, f"docs/{name}.schema.json"), encoding="utf-8") as file:
            return jsonschema.Draft7Validator(json.load(file))

    validators = {name: validator(name) for name in ("checkpoint", "verify")}

    def run(name, *arguments, code=0):
        out = reshard.json(name, *arguments, "--json", code=code)
        validators[name].validate(out)
        return out

    with tempfile.TemporaryDirectory() as root:
        at = lambda name: os.path.join(root, name)  # noqa: E731

        # Megatron and Lightning: without these files the result is "not a distributed checkpoint" to them.
        for name, beside in (("megatron_plans", ["common.pt", "metadata.json"]), ("megatron_data", ["common.pt", "metadata.json"]),
                             ("lightning", ["meta.pt"])):
            source, result = os.path.join(fixtures, name), at(name)
            planned = run("checkpoint", source, result, *rows, "--dry-run")
            done = run("checkpoint", source, result, *rows, "--verify")
            assert [f["path"] for f in done["side_files"]] == beside and done["left_beside"] == [], done
            assert done["side_files"] == planned["side_files"] and done["left_out"] == [], (planned, done)
            for file in beside:
                assert content(os.path.join(source, file)) == content(os.path.join(result, file)), file
            assert done["dropped_attributes"] == (["all_local_plans"] if name == "megatron_plans" else []), done
            equal = run("verify", source, result)
            assert equal["equal"] and equal["side_files"] == len(beside), equal
        before, after = attributes(os.path.join(fixtures, "megatron_data")), attributes(at("megatron_data"))
        assert before["mcore_data"] and after["mcore_data"] == before["mcore_data"], (before, after)
        assert "all_local_plans" in attributes(os.path.join(fixtures, "megatron_plans"))
        assert "all_local_plans" not in attributes(at("megatron_plans"))
        text = reshard("checkpoint", os.path.join(fixtures, "megatron_plans"), at("text"), *rows, "--dry-run")
        assert "auxiliary files: common.pt (unchecked: loading it runs code), metadata.json\n" in text, text
        assert "all_local_plans" in text, text

        # An attribute has no place in safetensors, and that is not a secret.
        left = run("checkpoint", os.path.join(fixtures, "megatron_data"), at("flat"), "--format", "safetensors", code=1)
        assert any("attribute mcore_data" in line for line in left["left_out"]), left
        differ = run("verify", os.path.join(fixtures, "megatron_data"), at("flat"), code=1)
        assert {"name": "attribute mcore_data", "what": "only in A"} in differ["differences"], differ

        # A model of Hugging Face.
        os.mkdir(at("hf"))
        safetensors(at("hf/model.safetensors"), {"w": ("F32", [4, 2], bytes(range(32)))})
        for name, text in (("config.json", "{}"), ("tokenizer.json", "[]"), ("README.md", "hello"), ("additional_chat_templates/a.jinja", "{{"),
                           ("modeling_x.py", "import os"), ("notes/run.log", "ok")):
            write(at("hf/" + name), text)
        carried = ["additional_chat_templates/a.jinja", "config.json", "modeling_x.py", "tokenizer.json"]
        done = run("checkpoint", at("hf"), at("dcp"), *rows, "--verify")
        assert [f["path"] for f in done["side_files"]] == carried, done
        assert [f["path"] for f in done["side_files"] if f["may_run"]] == ["modeling_x.py"], done
        assert done["left_beside"] == ["README.md", "notes/"], done
        back = run("checkpoint", at("dcp"), at("back"), "--format", "safetensors")
        assert [f["path"] for f in back["side_files"]] == carried and back["left_beside"] == [], back
        assert content(at("back/additional_chat_templates/a.jinja")) == b"{{"

        # Some readers want an index even for one file: a result has one where its source had one.
        assert not os.path.exists(at("back/model.safetensors.index.json"))
        shutil.copytree(at("back"), at("indexed"), ignore=shutil.ignore_patterns("reshard.json"))
        write(at("indexed/model.safetensors.index.json"),
              json.dumps({"metadata": {"total_size": 32}, "weight_map": {"w": "model.safetensors"}}))
        run("checkpoint", at("indexed"), at("still"), "--format", "safetensors")
        with open(at("still/model.safetensors.index.json"), encoding="utf-8") as file:
            assert json.load(file)["weight_map"] == {"w": "model.safetensors"}

        # It is a part of the job: a run of other terms, or of another content, is another one.
        assert run("checkpoint", at("hf"), at("dcp"), *rows, "--resume")["was_complete"]
        assert reshard("checkpoint", at("hf"), at("dcp"), *rows, "--resume", "--side-file", "*.md", code=5) == ""
        some = run("checkpoint", at("hf"), at("some"), *rows, "--side-file", "*.md", "--side-file", "notes/*")
        assert [f["path"] for f in some["side_files"]] == sorted(carried + ["README.md", "notes/run.log"]), some
        none = run("checkpoint", at("hf"), at("none"), *rows, "--no-side-files")
        assert none["side_files"] == [] and sorted(os.listdir(at("none"))) == [".metadata", "__0_0.distcp", "reshard.json"], none
        assert len(none["left_beside"]) == 6, none

        # What is missing or changed beside the result is a difference; what only the result has is not.
        assert run("verify", at("hf"), at("dcp"))["side_files"] == 4
        assert run("verify", at("none"), at("hf"))["equal"]
        lacks = run("verify", at("hf"), at("none"), code=1)
        assert [d["name"] for d in lacks["differences"]] == ["auxiliary file " + name for name in carried], lacks
        assert run("verify", at("hf"), at("none"), "--no-side-files")["equal"]
        write(at("dcp/config.json"), "[]")
        other = run("verify", at("hf"), at("dcp"), code=1)
        assert other["differences"] == [{"name": "auxiliary file config.json", "what": "its bytes differ"}], other
        more = run("verify", at("hf"), at("some"), "--side-file", "*.md")
        assert more["side_files"] == 5, more

        # A single file has nothing beside it.
        alone = run("checkpoint", at("hf/model.safetensors"), at("alone"), *rows)
        assert alone["side_files"] == [] and alone["left_beside"] == [], alone
        # A pipe holds nobody up.
        os.mkfifo(at("hf/params.json"))
        piped = run("checkpoint", at("hf"), at("piped"), *rows)
        assert "params.json" in piped["left_beside"], piped
        shutil.rmtree(at("piped"))
    print("auxiliary files: all as they should be")


if __name__ == "__main__":
    main()
