#!/usr/bin/env python3
"""`reshard checkpoint`, `verify` and `fingerprint` as programs see them: their JSON keeps to docs/*.schema.json, and exit codes
say what happened.

usage: checkpoint_test.py COMMAND SOURCE_DIR
"""
import json
import os
import struct
import sys
import tempfile

import jsonschema

from command import Command


def safetensors(path, entries):
    """A file of {name: (dtype, shape, data)}."""
    header, at = {}, 0
    for name, (dtype, shape, data) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in entries.values()))


def main():
    reshard, source_dir = Command(sys.argv[1]), sys.argv[2]
    checked = 0

    def validator(name):
        with open(os.path.join(source_dir, "docs", f"{name}.schema.json"), encoding="utf-8") as file:
            schema = json.load(file)
        jsonschema.Draft7Validator.check_schema(schema)
        return jsonschema.Draft7Validator(schema)

    validators = {name: validator(name) for name in ("checkpoint", "verify", "fingerprint")}

    def run(name, *arguments, code=0):
        nonlocal checked
        out = reshard.json(name, *arguments, "--json", code=code)
        for error in validators[name].iter_errors(out):
            sys.exit(f"{name} {arguments}: {'/'.join(map(str, error.absolute_path))}: {error.message}")
        checked += 1
        return out

    with tempfile.TemporaryDirectory() as root:
        at = lambda name: os.path.join(root, name)  # noqa: E731
        data = bytes(i * 7 % 256 for i in range(4 * 64 * 32))
        safetensors(at("a.safetensors"), {"w": ("F32", [64, 32], data), "v": ("U16", [3], b"\1\2\3\4\5\6")})
        rows = ["--mesh", "{x:4}", "--layout", "[<x>, ...]"]

        planned = run("checkpoint", at("a.safetensors"), at("dcp"), *rows, "--dry-run")
        assert planned["tensors"] == 2 and planned["bytes"] == len(data) + 6 and not os.path.exists(at("dcp")), planned
        done = run("checkpoint", at("a.safetensors"), at("dcp"), *rows, "--verify")
        assert {k: done[k] for k in planned if k not in ("dry_run", "free_bytes", "planned")} == {
            k: planned[k] for k in planned if k not in ("dry_run", "free_bytes", "planned")}, (planned, done)
        assert planned["planned"] == [
            {"name": "w", "from": "w", "dtype": "f32", "shape": [64, 32], "bytes": 8192, "layout": "[16<x>64, 32]"},
            {"name": "v", "from": "v", "dtype": "u16", "shape": [3], "bytes": 6, "layout": "[1<x>3]"}], planned["planned"]
        assert done["committed"] and not done["was_complete"] and done["read_bytes"] >= done["bytes"], done
        assert sorted(os.listdir(root)) == ["a.safetensors", "dcp"], os.listdir(root)
        on_disk = sum(os.path.getsize(os.path.join(at("dcp"), f)) for f in os.listdir(at("dcp")) if f.endswith(".distcp"))
        assert on_disk == done["disk_bytes"], (on_disk, done)

        # What exists stays, and a complete result is complete.
        assert reshard("checkpoint", at("a.safetensors"), at("dcp"), *rows, code=5) == ""
        assert run("checkpoint", at("a.safetensors"), at("dcp"), *rows, "--resume")["was_complete"]
        assert run("checkpoint", at("a.safetensors"), at("dcp"), *rows, "--overwrite")["committed"]

        # What safetensors cannot hold is told.
        back = run("checkpoint", at("dcp"), at("back"), "--format", "safetensors")
        assert back["left_out"] == [] and back["bytes"] == done["bytes"], back
        equal = run("verify", at("a.safetensors"), at("back"))
        assert equal["equal"] and equal["bytes"] == len(data) + 6, equal

        changed = bytearray(data)
        changed[4 * (32 * 5 + 3)] ^= 1
        safetensors(at("b.safetensors"), {"w": ("F32", [64, 32], bytes(changed)), "u": ("U16", [3], bytes(6))})
        differ = run("verify", at("dcp"), at("b.safetensors"), code=1)
        assert not differ["equal"] and [d["name"] for d in differ["differences"]] == ["w", "v", "u"], differ
        assert "[5, 3]" in differ["differences"][0]["what"] and "1 of 2048" in differ["differences"][0]["what"], differ
        assert "only in A" in differ["differences"][1]["what"] and "only in B" in differ["differences"][2]["what"], differ

        # What many tensors have in common is told once.
        names = [f"t{i}" for i in range(5)]
        safetensors(at("many.safetensors"), {name: ("F32", [2], bytes(8)) for name in names} | {"x": ("U8", [1], b"1")})
        safetensors(at("cast.safetensors"), {name: ("BF16", [2], bytes(4)) for name in names} | {"x": ("U8", [1], b"2")})
        told = reshard("verify", at("many.safetensors"), at("cast.safetensors"), code=1).splitlines()
        assert told[0] == "t0, t1, t2 and 2 more: dtype f32 in A, bf16 in B" and told[1].startswith("x: ") and len(told) == 4, told

        one, other = run("fingerprint", at("dcp")), run("fingerprint", at("b.safetensors"))
        assert one == run("fingerprint", at("a.safetensors")) == run("fingerprint", at("back"), "--threads", 1), one
        assert one["bytes"] == len(data) + 6 and [t["name"] for t in one["tensors"]] == ["v", "w"], one
        assert {t["name"]: t["fingerprint"] for t in one["tensors"]}["w"] != other["tensors"][1]["fingerprint"], (one, other)
        assert reshard("fingerprint", at("dcp")) == f"{one['fingerprint']}  {at('dcp')}\n"
        assert reshard("fingerprint", at("dcp"), "--per-tensor") == "".join(
            f"{t['fingerprint']}  {t['name']}\n" for t in one["tensors"])
        renamed = run("fingerprint", at("dcp"), "--include", "w", "--rename", "w=x.y")
        assert [t["name"] for t in renamed["tensors"]] == ["x.y"] and renamed["fingerprint"] != one["fingerprint"], renamed

        # The schemas must refuse something before their silence means anything.
        for name, spoilt in (("checkpoint", {**done, "extra": 1}), ("checkpoint", {**done, "files": -1}),
                             ("checkpoint", {k: v for k, v in done.items() if k != "seconds"}),
                             ("verify", {**differ, "equal": "no"}), ("fingerprint", {**one, "fingerprint": "12"}),
                             ("fingerprint", {**one, "tensors": [{"name": "w"}]}), ("verify", {**differ, "differences": [{"name": "w"}]})):
            assert not validators[name].is_valid(spoilt), spoilt

        # Exit codes: usage, over the limit, bad input, not there.
        assert reshard("checkpoint", at("a.safetensors"), at("n"), code=2) == ""
        assert reshard("checkpoint", at("a.safetensors"), at("n"), *rows, "--memory-limit", "4MiB", code=3) == ""
        assert reshard("checkpoint", at("a.safetensors"), at("n"), "--mesh", "{x:4}", "--layout", "[<y>, ...]", code=4) == ""
        assert reshard("checkpoint", at("none"), at("n"), *rows, code=5) == ""
        assert reshard("checkpoint", at("a.safetensors"), at("no/n"), *rows, code=5) == ""
        with open(os.path.join(at("dcp"), "__1_0.distcp"), "r+b") as file:
            file.seek(os.path.getsize(file.name) // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 4]))
        assert reshard("verify", at("dcp"), at("a.safetensors"), code=4) == ""
        assert reshard("checkpoint", at("dcp"), at("n"), *rows, code=4) == ""
        assert reshard("fingerprint", at("dcp"), code=4) == ""
        assert reshard("fingerprint", at("none"), code=5) == ""
        assert reshard("fingerprint", at("back"), "--threads", -1, code=2) == ""
        assert not os.path.exists(at("n")) and not [f for f in os.listdir(root) if f.startswith(".")], os.listdir(root)

    print(f"{checked} answers: all as they should be")


if __name__ == "__main__":
    main()
