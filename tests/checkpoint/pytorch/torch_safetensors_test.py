#!/usr/bin/env python3
"""The real safetensors package against this library, both ways and to the byte: every dtype that it knows, 0-d and empty
tensors, odd names.

usage: torch_safetensors_test.py COMMAND WRITER
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import safetensors
import safetensors.torch
import torch

# torch dtype -> what the file says, what `reshard inspect` says.
DTYPES = {
    torch.bool: ("BOOL", "bool"), torch.uint8: ("U8", "u8"), torch.int8: ("I8", "i8"), torch.int16: ("I16", "i16"),
    torch.uint16: ("U16", "u16"), torch.int32: ("I32", "i32"), torch.uint32: ("U32", "u32"), torch.int64: ("I64", "i64"),
    torch.uint64: ("U64", "u64"), torch.float16: ("F16", "f16"), torch.bfloat16: ("BF16", "bf16"), torch.float32: ("F32", "f32"),
    torch.float64: ("F64", "f64"), torch.complex64: ("C64", "c64"), torch.float8_e4m3fn: ("F8_E4M3", "f8e4m3fn"),
    torch.float8_e5m2: ("F8_E5M2", "f8e5m2"), torch.float8_e4m3fnuz: ("F8_E4M3FNUZ", "f8e4m3fnuz"),
    torch.float8_e5m2fnuz: ("F8_E5M2FNUZ", "f8e5m2fnuz"), torch.float8_e8m0fnu: ("F8_E8M0", "f8e8m0"),
}
SHAPES = [[], [0], [3], [1], [2, 3], [0, 4], [4, 0, 2], [3, 1, 2], [17]]
NAMES = ["", "a", "é", "🐙", "new\nline", "tab\t", "\x1b", "\x7f", "\0", "quote\"", "back\\slash", "/", "\u2028", "model.layers.10.w"]


def raw(tensor):
    """The bytes of a tensor as they lie in memory."""
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def random_tensor(choice, dtype, shape):
    count = math.prod(shape)
    if dtype == torch.bool:
        data = bytes(choice.randrange(2) for _ in range(count))
    else:
        data = choice.randbytes(count * dtype.itemsize)
    if not count:
        return torch.empty(shape, dtype=dtype), b""
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape), data


def main():
    reshard, writer = sys.argv[1:3]
    seed = os.environ.get("RESHARD_TEST_SEED") or "20240607"
    if seed == "random":
        seed = str(random.SystemRandom().getrandbits(32))
    print(f"RESHARD_TEST_SEED={seed}, safetensors {safetensors.__version__}", flush=True)
    choice = random.Random(int(seed))

    files = [{f"{DTYPES[dtype][0]}.{i}": (dtype, shape) for dtype in DTYPES for i, shape in enumerate(SHAPES)}, {},
             {name: (torch.float32, [2]) for name in NAMES}]
    for _ in range(10):
        count = choice.randrange(1, 12)
        files.append({f"t{choice.randrange(1000)}": (choice.choice(list(DTYPES)), choice.choice(SHAPES)) for _ in range(count)})

    checked = 0
    with tempfile.TemporaryDirectory() as root:
        for description in files:
            made = {name: random_tensor(choice, *what) for name, what in description.items()}
            theirs, ours = os.path.join(root, "theirs.safetensors"), os.path.join(root, "ours.safetensors")

            # Theirs, read by us.
            safetensors.torch.save_file({name: tensor for name, (tensor, _) in made.items()}, theirs)
            done = subprocess.run([reshard, "inspect", theirs, "--json", "--chunks"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            listed = {tensor["name"]: tensor for tensor in json.loads(done.stdout)["tensors"]}
            assert listed.keys() == made.keys()
            with open(theirs, "rb") as file:
                content = file.read()
            for name, (tensor, data) in made.items():
                seen = listed[name]
                assert seen["dtype"] == DTYPES[tensor.dtype][1] and seen["shape"] == list(tensor.shape), (seen, tensor)
                assert seen["bytes"] == len(data) and seen["num_chunks"] == 1, seen
                chunk = seen["chunks"][0]
                assert content[chunk["at"]:chunk["at"] + chunk["length"]] == data, name
                checked += 1

            # Ours, read by them; and the same file as theirs.
            lines = [json.dumps({"name": name, "dtype": DTYPES[tensor.dtype][0], "shape": list(tensor.shape), "data": list(data)})
                     for name, (tensor, data) in made.items()]
            choice.shuffle(lines)
            done = subprocess.run([writer, ours], input="\n".join(lines) + "\n" if lines else "", capture_output=True, text=True, check=False)
            assert done.returncode == 0, (done.returncode, done.stderr)
            back = safetensors.torch.load_file(ours)
            assert back.keys() == made.keys()
            for name, (tensor, data) in made.items():
                assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape, name
                assert raw(back[name]) == data, name
                checked += 1
            with open(ours, "rb") as file:
                assert file.read() == content, "the same tensors are not the same file"

        # What it has beyond torch: elements smaller than a byte.
        lines = [json.dumps({"name": dtype, "dtype": dtype, "shape": [4, 3], "data": list(range(size))})
                 for dtype, size in (("F4", 6), ("F6_E2M3", 9), ("F6_E3M2", 9))]
        subprocess.run([writer, ours], input="\n".join(lines) + "\n", text=True, check=True)
        with open(ours, "rb") as file:
            small = dict(safetensors.deserialize(file.read()))
        assert {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in small.items()} == {
            "F4": ("F4", [4, 3], bytes(range(6))), "F6_E2M3": ("F6_E2M3", [4, 3], bytes(range(9))), "F6_E3M2": ("F6_E3M2", [4, 3], bytes(range(9)))}, small
    print(f"{len(files)} files, {checked} tensors: the same both ways")


if __name__ == "__main__":
    main()
