#!/usr/bin/env python3
"""`reshard inspect`: its JSON keeps to docs/inspect.schema.json and says what is in the files, to the byte; its text is
safe whatever the names are.

usage: inspect_test.py COMMAND SOURCE_DIR
"""
import collections
import glob
import hashlib
import json
import math
import os
import struct
import sys
import tempfile

import jsonschema

from command import Command

SIZES = {"bool": 1, "i8": 1, "u8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8, "c64": 8}
TORCH = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "float64": "f64", "int8": "i8", "int32": "i32", "int64": "i64",
         "uint8": "u8", "bool": "bool"}


def safetensors(entries, metadata=None):
    """The bytes of a file: entries = {name: (dtype, shape, data)}."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in entries.values())


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def assemble(root, tensor):
    """The bytes of a tensor in row-major order, from its chunks."""
    size, shape = SIZES[tensor["dtype"]], tensor["shape"]
    strides = [size * math.prod(shape[d + 1:]) for d in range(len(shape))]
    out = bytearray(size * math.prod(shape))
    for chunk in tensor["chunks"]:
        with open(os.path.join(root, chunk["file"]), "rb") as file:
            file.seek(chunk["at"])
            data = file.read(chunk["length"])
        assert len(data) == chunk["length"] == size * math.prod(chunk["size"]), chunk
        extent = chunk["size"] or [1]
        offset, steps = (chunk["offset"], strides) if chunk["size"] else ([0], [size])
        run = extent[-1] * size
        for row in range(math.prod(extent[:-1]) if run else 0):
            at, rest = offset[-1] * steps[-1], row
            for d in range(len(extent) - 2, -1, -1):
                at += (offset[d] + rest % extent[d]) * steps[d]
                rest //= extent[d]
            out[at:at + run] = data[row * run:(row + 1) * run]
    return bytes(out)


def main():
    reshard, source_dir = Command(sys.argv[1]), sys.argv[2]
    counts = collections.Counter()
    with open(os.path.join(source_dir, "docs/inspect.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)

    def inspect(path, *flags):
        text = reshard("inspect", path, "--json", *flags)
        assert text.endswith("}\n") and text.count("\n") == 1, "not one line of JSON"
        out = json.loads(text)
        for error in validator.iter_errors(out):
            sys.exit(f"{path}: {'/'.join(map(str, error.absolute_path))}: {error.message}")
        assert all(("chunks" in tensor) == ("--chunks" in flags) for tensor in out["tensors"])
        totals, tensors = out["totals"], out["tensors"]
        assert totals["tensors"] == len(tensors) == len({tensor["name"] for tensor in tensors}), path
        assert totals["chunks"] == sum(tensor["num_chunks"] for tensor in tensors), path
        assert totals["bytes"] == sum(tensor["bytes"] for tensor in tensors), path
        counts["listings"] += 1
        return out

    # What PyTorch wrote, against the hashes of what it was given.
    for manifest in sorted(glob.glob(os.path.join(source_dir, "tests/checkpoint/fixtures/hf*.json"))):
        with open(manifest, encoding="utf-8") as file:
            fixtures = json.load(file)
        for name, fixture in fixtures.items():
            root = os.path.join(os.path.dirname(manifest), name)
            out = inspect(root, "--chunks")
            assert out["format"] == fixture["format"], name
            assert {tensor["name"] for tensor in out["tensors"]} == set(fixture["tensors"]), name
            for tensor in out["tensors"]:
                truth = fixture["tensors"][tensor["name"]]
                assert tensor["shape"] == truth["shape"] and tensor["dtype"] == TORCH[truth["dtype"]], (name, tensor)
                assert len(tensor["chunks"]) == tensor["num_chunks"], (name, tensor)
                assert hashlib.sha256(assemble(root, tensor)).hexdigest() == truth["sha256"], (name, tensor)
                counts["tensors hashed"] += 1
            plain = inspect(root)
            for tensor in out["tensors"]:
                tensor.pop("chunks")
            assert plain == out, name

    # The schema must refuse something before its silence means anything.
    tensor = plain["tensors"][0]
    for spoilt in ({**plain, "extra": 1}, {**plain, "format": "zip"}, {**plain, "tensors": [{**tensor, "shape": [-1]}]},
                   {**plain, "tensors": [{**tensor, "layout": 3}]}, {**plain, "tensors": [{**tensor, "chunks": [{}]}]},
                   {k: v for k, v in plain.items() if k != "totals"}):
        assert not validator.is_valid(spoilt), spoilt

    with tempfile.TemporaryDirectory() as root:
        names = ["", ".", "..", "a", "a.b", "a.b.2", "a.b.10", "a..b", "new\nline", "tab\t", "\x1b[2J", "nul\0", "quote\"", "back\\slash", "é",
                 "\u202eright to left", "\u009b", "🐙", " ", "x" * 5000, "." * 3000, "/etc/passwd", "__metadata"]
        path = os.path.join(root, "odd.safetensors")
        write(path, safetensors({name: ("U8", [1], bytes([i])) for i, name in enumerate(names)}))
        out = inspect(path, "--chunks")
        assert [tensor["name"] for tensor in out["tensors"]] == names, "names differ"
        assert [assemble(root, tensor) for tensor in out["tensors"]] == [bytes([i]) for i in range(len(names))]
        for flags in ([], ["--chunks"]):
            text = reshard("inspect", path, *flags)
            assert all(c == "\n" or " " <= c <= "~" or c in "é🐙" for c in text), ascii(text)
            assert max(map(len, text.splitlines())) < 400, "a line as long as a name"
            assert text.count("1 chunk ") == len(names) and text.endswith(f"{len(names)} tensors, {len(names)} chunks, {len(names)} B; 1 file\n"), text
        lines = [line.split()[0] for line in reshard("inspect", path, "--tensor", "a*").splitlines()]
        assert lines == ["a", ".b", "b", "2", "10", "5"], lines
        assert [t["name"] for t in inspect(path, "--tensor", "?")["tensors"]] == [".", "a", "é", "\u009b", "🐙", " "]
        nothing = inspect(path, "--tensor", "none")
        assert nothing["totals"] == {"tensors": 0, "chunks": 0, "bytes": 0, "files": 0}, nothing
        assert reshard("inspect", path, "--tensor", "none") == "0 tensors, 0 chunks, 0 B; 0 files\n"

        write(path, safetensors({"model.w": ("BF16", [2, 3], bytes(12)), "model.s": ("F32", [], bytes(4)), "model.e": ("F64", [0, 3], b""),
                                 "q": ("F4", [4, 2], bytes(4)), "u": ("F3", [7], bytes(5))}))
        # All is listed, and then what cannot be read is said.
        assert [(t["dtype"], t["shape"], t["bytes"]) for t in reshard.json("inspect", path, "--json", code=4)["tensors"]] == [
            ("bf16", [2, 3], 12), ("f32", [], 4), ("f64", [0, 3], 0), ("f4e2m1x2", [4, 1], 4), ("F3", [7], 5)]
        assert "tensor u: elements of type F3 cannot be read" in reshard.fails("inspect", path, code=4)
        assert reshard("inspect", path, code=4) == """\
model
  e  f64       [0, 3]  1 chunk  whole  0 B   1 file
  s  f32       []      1 chunk  whole  4 B   1 file
  w  bf16      [2, 3]  1 chunk  whole  12 B  1 file
q    f4e2m1x2  [4, 1]  1 chunk  whole  4 B   1 file
u    F3        [7]     1 chunk  whole  5 B   1 file
5 tensors, 5 chunks, 25 B; 1 file
"""

        # Layouts that a sidecar records; a sidecar that does not belong to the checkpoint is told, and the rest is shown.
        write(path, safetensors({"w": ("F32", [4, 2], bytes(32)), "s": ("F32", [], bytes(4))}))
        cut = os.path.join(root, "cut")
        rules = os.path.join(root, "rules.json")
        write(rules, json.dumps({"mesh": "{X:2,Y:2}", "layouts": [["w", "[<Y,X>, *]"], ["*", "[...]"]]}).encode())
        reshard("checkpoint", path, cut, "--rules", rules)
        layouts = {t["name"]: (t["mesh"], t["layout"]) for t in inspect(cut)["tensors"]}
        assert layouts == {"w": ("{X:2,Y:2}", "[1<Y,X>4, 2]"), "s": ("{X:2,Y:2}", "[]")}, layouts
        assert "[1<Y,X>4, 2] over {X:2,Y:2}" in reshard("inspect", cut)
        with open(os.path.join(cut, "reshard.json"), "r+b") as file:
            file.seek(30)
            file.write(b"#")
        shown = json.loads(reshard("inspect", cut, "--json", code=4))
        assert [(t["mesh"], t["layout"]) for t in shown["tensors"]] == [(None, None)] * 2, shown

        # Bytes that do not fit 64 bits together, though those of each tensor do.
        huge = os.path.join(root, "huge")
        info = {f"{n}": {"saved_offsets": [(1 << 62) - 1]} for n in range(4)}
        write(os.path.join(huge, "1.safetensors"), safetensors({n: ("U8", [1], b"x") for n in info}, {"DCP_SHARDING_INFO": json.dumps(info)}))
        text = reshard("inspect", huge, "--json")
        assert json.loads(text)["totals"]["bytes"] == (1 << 63) - 1, text

        # Exit codes.
        assert reshard("inspect", os.path.join(root, "none"), code=5) == ""
        assert reshard("inspect", huge + "/1.safetensors/x", code=5) == ""
        os.makedirs(os.path.join(root, "empty"))
        assert reshard("inspect", os.path.join(root, "empty"), "--json", code=5) == ""
        write(path, b"import os\n" * 9)
        assert "begins neither like a safetensors file nor like one of torch.save" in reshard.fails("inspect", path, code=4)
        write(path, b"\x40" + bytes(7) + b'{"w": ')
        assert "the file is cut short" in reshard.fails("inspect", path, code=4)
        other = os.path.join(root, "index.json")
        write(other, b"{}")
        assert "a JSON file; name the directory that it is in" in reshard.fails("inspect", other, code=4)
        write(path, b"\2" + bytes(7) + b"{]")
        assert reshard("inspect", path, code=4) == reshard("inspect", path, "--json", code=4) == ""
        assert reshard("inspect", code=2) == reshard("inspect", path, "--jsn", code=2) == reshard("inspect", path, path, code=2) == ""

    print(", ".join(f"{count} {what}" for what, count in counts.items()) + ": all as they should be")


if __name__ == "__main__":
    main()
