#!/usr/bin/env python3
"""FP8 weights with block scales, dequantized by a recipe, against PyTorch's own reader of such checkpoints, bit for bit.

usage: dequantize_test.py COMMAND SOURCE_DIR
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader

# Blocks that are whole, that are cut at either end, and of which there is less than one.
SHAPES = [(128, 128), (256, 384), (130, 257), (1, 300), (300, 1), (3, 5), (129, 128)]
SCALE = "_scale_inv"


def run(*words, code=0):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (words, done.returncode, done.stderr[-3000:])
    return done.stdout + done.stderr


def random_f8(choice, shape, dtype):
    """Elements of all kinds, NaN and infinities included."""
    count = shape[0] * shape[1]
    return torch.tensor(list(choice.randbytes(count)), dtype=torch.uint8).view(dtype).reshape(shape)


def random_scales(choice, shape, dtype=torch.float32):
    """Scales as quantization makes them; some that overflow, some so small that products are subnormal."""
    count = max(1, int(torch.Size(shape).numel()))
    numbers = [choice.choice([choice.uniform(1e-4, 1e-2), choice.uniform(0.5, 2), 1e37, 1e-38, 0.0]) for _ in range(count)]
    return torch.tensor(numbers).reshape(shape).to(dtype)


def save_model(folder, tensors):
    """Two files with an index, scales not always beside their weights."""
    os.makedirs(folder)
    names = sorted(tensors)
    weight_map = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in sorted(set(weight_map.values())):
        save_file({name: tensors[name] for name in names if weight_map[name] == file}, os.path.join(folder, file))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": 0}, "weight_map": weight_map}, file)


def load_model(folder):
    found = {}
    for name in os.listdir(folder):
        if name.endswith(".safetensors"):
            found.update(load_file(os.path.join(folder, name)))
    return found


def same(a, b):
    """Bit for bit, but for which NaN it is."""
    if a.dtype != b.dtype or a.shape != b.shape or not torch.equal(a.isnan(), b.isnan()):
        return False
    bits = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return torch.equal(a.nan_to_num().view(bits), b.nan_to_num().view(bits)) and torch.equal(a.isinf(), b.isinf())


def as_pytorch_reads(folder, tensors, dtype):
    wanted = {name: torch.empty(t.shape, dtype=dtype if name + SCALE in tensors else t.dtype)
              for name, t in tensors.items() if not name.endswith(SCALE)}
    reader = QuantizedHuggingFaceStorageReader(path=folder, target_dtype=dtype, thread_count=1)
    dcp.load(wanted, storage_reader=reader, no_dist=True)
    return wanted


def check_deepseek(command, source_dir, choice, root):
    tensors = {}
    for i, shape in enumerate(SHAPES):
        name = f"model.layers.{i}.mlp.weight"
        tensors[name] = random_f8(choice, shape, torch.float8_e4m3fn if i % 3 else torch.float8_e5m2)
        tensors[name + SCALE] = random_scales(choice, [-(-size // 128) for size in shape])
    tensors["model.norm.weight"] = torch.randn(7).to(torch.bfloat16)
    tensors["model.embed.weight"] = torch.randn(5, 7)
    source = os.path.join(root, "model")
    save_model(source, tensors)
    ready = os.path.join(source_dir, "examples/recipes/deepseek_fp8_to_bf16.json")
    with open(ready, encoding="utf-8") as file:
        in_f32 = json.load(file)
    in_f32["tensors"][0]["from"]["dtype"] = "f32"
    to_f32 = os.path.join(root, "f32.json")
    with open(to_f32, "w", encoding="utf-8") as file:
        json.dump(in_f32, file)

    for recipe, dtype, flags in [(ready, torch.bfloat16, []), (to_f32, torch.float32, ["--memory-limit", "16MiB", "--threads", "3"])]:
        wanted = as_pytorch_reads(source, tensors, dtype)
        made = os.path.join(root, f"made-{dtype}")
        run(command, "convert", source, made, "--to", "hf", "--recipe", recipe, "--verify", *flags)
        found = load_model(made)
        assert sorted(found) == sorted(wanted), sorted(found)
        for name, tensor in wanted.items():
            assert same(found[name], tensor), (name, dtype)
        # Sharded, each shard of pieces of blocks; and the same by its fingerprint.
        sharded = os.path.join(root, f"sharded-{dtype}")
        run(command, "convert", source, sharded, "--recipe", recipe, "--mesh", "{x:3,y:2}", "--layout", "[<x>, <y>, ...]")
        assert "equal" in run(command, "verify", source, sharded, "--recipe", recipe)
        assert "equal" in run(command, "verify", made, sharded)
        by_recipe = run(command, "fingerprint", source, "--recipe", recipe).split()[0]
        assert by_recipe == run(command, "fingerprint", sharded).split()[0]
        assert "cannot be undone: it forgets the quantized values" in run(
            command, "convert", made, os.path.join(root, "back"), "--to", "hf", "--recipe", recipe, "--invert", code=4)

    # --dtype is about wider floats: weights and their scales stay, and that is said.
    said = run(command, "convert", source, os.path.join(root, "cast"), "--to", "hf", "--dtype", "bf16")
    assert 'still quantized, since --dtype is about wider floats ("dequantize" in a recipe' in said, said
    found = load_model(os.path.join(root, "cast"))
    assert all(found[name].dtype == t.dtype for name, t in tensors.items() if name != "model.embed.weight"), said
    assert found["model.embed.weight"].dtype == torch.bfloat16
    plain = os.path.join(root, "plain.json")
    with open(plain, "w", encoding="utf-8") as file:
        json.dump({"schema": "reshard.recipe/1", "keep": ["*"],
                   "tensors": [{"to": "w", "from": {"cast": "model.layers.1.mlp.weight", "dtype": "bf16"}}]}, file)
    said = run(command, "convert", source, os.path.join(root, "unscaled"), "--to", "hf", "--recipe", plain)
    assert 'cast without the scales beside them ("dequantize" in a recipe multiplies by them): model.layers.1.mlp.weight\n' in said, said


def check_other_blocks(command, choice, root):
    """Scales per tensor, per row, of other blocks, of stacked experts, and in bf16; against plain arithmetic."""
    rules, tensors, wanted = [], {}, {}

    def case(name, values, scales, expanded, block, dtype=torch.bfloat16):
        tensors[name], tensors[name + ".s"] = values, scales
        rules.append({"to": name + ".w", "from": {"dequantize": name, "scales": name + ".s", "block": block,
                                                  "dtype": str(dtype).removeprefix("torch.")}})
        wanted[name + ".w"] = (values.to(torch.float32) * expanded.to(torch.float32)).to(dtype)

    values = random_f8(choice, (37, 50), torch.float8_e4m3fn)
    scale = random_scales(choice, [])
    case("tensor", values, scale, scale, [-1, -1])
    rows = random_scales(choice, [37])
    case("rows", values.clone(), rows, rows[:, None], [1, -1], torch.float16)
    column = random_scales(choice, [37, 1], torch.bfloat16)
    case("column", values.clone(), column, column, [1, -1], torch.float32)
    blocks = random_scales(choice, [4, 3])
    case("blocks", values.clone(), blocks, blocks.repeat_interleave(10, 0)[:37].repeat_interleave(17, 1)[:, :50], [10, 17])
    experts = random_f8(choice, (3 * 37, 50), torch.float8_e5m2).reshape(3, 37, 50)
    each = random_scales(choice, [3, 4, 3])
    case("experts", experts, each, each.repeat_interleave(10, 1)[:, :37].repeat_interleave(17, 2)[..., :50], [10, 17])
    integers = torch.tensor(list(choice.randbytes(37 * 50)), dtype=torch.uint8).view(torch.int8).reshape(37, 50)
    case("integers", integers, rows.clone(), rows[:, None], [1, -1])
    source, recipe, made = (os.path.join(root, name) for name in ("others.safetensors", "others.json", "others"))
    save_file(tensors, source)
    with open(recipe, "w", encoding="utf-8") as file:
        json.dump({"schema": "reshard.recipe/1", "tensors": rules}, file)
    run(command, "convert", source, made, "--to", "safetensors", "--recipe", recipe)
    found = load_model(made)
    assert sorted(found) == sorted(wanted)
    for name, tensor in wanted.items():
        assert same(found[name], tensor), name


def main():
    command, source_dir = sys.argv[1:]
    seed = int(os.environ.get("RESHARD_TEST_SEED", "20261126"))
    print(f"seed {seed}")
    choice = random.Random(seed)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as root:
        check_deepseek(command, source_dir, choice, root)
        check_other_blocks(command, choice, root)


if __name__ == "__main__":
    main()
