"""Files of torch.save as sources: what torch.load finds in them is what their conversions hold.

Run by CTest with a Python that has torch: torch_save_test.py RESHARD [FIXTURES]
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

COMMAND = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "reshard"

warnings.filterwarnings("ignore")

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64,
          torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


class Gadget:
    def __reduce__(self):
        return os.system, ("true",)


def with_attributes(tensor):
    tensor.tensor_model_parallel = True
    return tensor


class Quantized(torch.Tensor):
    """A class of which only itself knows what the elements mean."""


def tensors():
    torch.manual_seed(5)
    base = torch.randn(6, 10)
    return {
        "w": torch.randn(5, 7),
        "parameter": torch.nn.Parameter(torch.randn(3, 2)),
        "buffer": torch.nn.Buffer(torch.randn(4)),
        "with attributes": with_attributes(torch.nn.Parameter(torch.randn(2, 2))),
        "frozen": torch.nn.Parameter(torch.randn(3), requires_grad=False),
        "transposed": torch.randn(6, 4).t(),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "conjugate": torch.randn(3, 2, dtype=torch.complex64).conj(),
        "imaginary": torch.randn(3, 2, dtype=torch.complex64).conj().imag,
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "slice": base[1:4, 2:6],
        "other slice": base[4:, ::3],
        "tied": base,
        "tied too": base,
        "expanded": torch.arange(3.0).expand(4, 3),
        **{str(dtype): torch.arange(12, dtype=torch.uint8).view(3, 4).view(torch.bool).to(torch.bool)
           if dtype is torch.bool else torch.arange(12 * dtype.itemsize, dtype=torch.uint8).view(dtype).view(3, 4)
           for dtype in DTYPES},
    }


def bits(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return tensor.reshape(-1).view(torch.uint8) if tensor.dim() and tensor.numel() else tensor.reshape(-1)


def save_part(rank, size, folder, cases, store):
    """One rank of a job that saves what it has of some DTensors."""
    dist.init_process_group("gloo", rank=rank, world_size=size, init_method=f"file://{store}")
    state = {}
    for name, (mesh_shape, placements, shape) in cases.items():
        mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=tuple("abc"[: len(mesh_shape)]))
        whole = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
        state[name] = distribute_tensor(whole, mesh, placements)
    state["buffer"] = torch.arange(3)
    torch.save(state, folder / f"model_world_size_{size}_rank_{rank}.pt")
    dist.destroy_process_group()


class TorchSaveTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reshard-torch-save-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def command(self, *words, code=0):
        done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(code, done.returncode, f"{words}\n{done.stdout}\n{done.stderr}")
        return done

    def assert_same(self, wanted, found):
        self.assertEqual(wanted.keys(), found.keys())
        for name, tensor in wanted.items():
            self.assertEqual((name, tensor.shape, tensor.dtype), (name, found[name].shape, found[name].dtype))
            self.assertTrue(torch.equal(bits(tensor), bits(found[name])), name)

    def assert_equal(self, one, other):
        self.assertEqual(type(one), type(other))
        if isinstance(one, dict):
            self.assertEqual(one.keys(), other.keys())
            for key in one:
                self.assert_equal(one[key], other[key])
        elif isinstance(one, list):
            self.assertEqual(len(one), len(other))
            for left, right in zip(one, other):
                self.assert_equal(left, right)
        elif isinstance(one, torch.Tensor):
            self.assertTrue(torch.equal(one, other))
        else:
            self.assertEqual(one, other)

    def test_every_kind_of_tensor(self):
        source = self.folder / "state.pt"
        torch.save(tensors(), source)
        result = self.folder / "result"
        self.command("convert", source, result, "--to", "hf", "--verify")
        self.assert_same(tensors(), load_file(result / "model.safetensors"))
        self.command("verify", source, result)
        # Boxes of them, in pieces of little memory, with a recipe between.
        self.command("convert", source, self.folder / "cut", "--mesh", "{x:3}", "--layout", "[<x>, ...]", "--verify")
        self.command("verify", source, self.folder / "cut")

    def test_nested_state_as_pytorch_flattens_it(self):
        state = {
            "model": {"a.b": torch.ones(2, 3), "layers": [torch.zeros(2), {"deep": torch.ones(1)}]},
            "optimizer": {
                "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(2, 3)}},
                "param_groups": [{"lr": 0.1, "betas": (0.9, 0.95), "params": [0, 1], "fused": None}],
            },
            "step": 7,
            "name": "run \u00e9",
            "plain": [1, [2, "x"], None],
            "bytes": b"\x00\x7f\xff",
            "set": {1, "x"},
            "flags": {"on": True},
        }
        source = self.folder / "state.pt"
        torch.save(state, source)
        self.command("convert", source, self.folder / "ours", "--mesh", "{x:2}", "--layout", "[<x>, ...]")
        dcp.save(state, checkpoint_id=self.folder / "theirs", no_dist=True)
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

        dcp_to_torch_save(self.folder / "ours", self.folder / "back.pt")
        back = torch.load(self.folder / "back.pt", weights_only=False)
        dcp_to_torch_save(self.folder / "theirs", self.folder / "theirs.pt")
        theirs = torch.load(self.folder / "theirs.pt", weights_only=False)
        self.assert_equal(theirs, back)
        listings = [json.loads(self.command("inspect", self.folder / name, "--json").stdout) for name in ("ours", "theirs")]
        for kind in ("tensors", "byte_items"):
            self.assertEqual(*(sorted(one["name"] for one in listing[kind]) for listing in listings))

    def test_what_is_no_data_is_named(self):
        state = {
            "w": torch.ones(2),
            "args": argparse.Namespace(lr=0.1),
            "default": collections.defaultdict(dict, {"in": torch.ones(3)}),
            "ordered": collections.OrderedDict(x=torch.ones(1)),
            "numpy": numpy.float64(0.5),
            "array": numpy.arange(3),
            "device": torch.device("cpu"),
            "dtype": torch.float32,
        }
        source = self.folder / "state.pt"
        torch.save(state, source)
        listing = json.loads(self.command("inspect", source, "--json").stdout)
        self.assertEqual(["default.in", "ordered.x", "w"], sorted(t["name"] for t in listing["tensors"]))
        done = self.command("convert", source, self.folder / "dcp", "--mesh", "{x:1}", "--layout", "[...]", code=1)
        for name in ("args (an object of argparse.Namespace)", "numpy (", "array (", "device ("):
            self.assertIn(name, done.stderr)
        # Functions that are none of these stay refused, by name.
        torch.save({"w": torch.ones(2), "gadget": Gadget()}, source)
        self.assertIn("system", self.command("inspect", source, code=4).stderr)

    def test_attributes_of_tensors_are_named(self):
        weight = torch.nn.Parameter(torch.ones(2))
        weight.scale = torch.ones(1)
        source = self.folder / "state.pt"
        torch.save({"w": weight, "v": with_attributes(torch.nn.Parameter(torch.ones(3)))}, source)
        done = self.command("convert", source, self.folder / "r", "--mesh", "{x:1}", "--layout", "[...]", code=1)
        self.assertIn("w.scale", done.stderr)
        self.assertIn("tensor_model_parallel", done.stdout)

    def test_subclasses_are_named(self):
        source = self.folder / "state.pt"
        torch.save({"q": torch.ones(3).as_subclass(Quantized), "w": torch.ones(2)}, source)
        self.assertIn("Quantized", self.command("inspect", source).stdout)
        done = self.command("convert", source, self.folder / "r", "--to", "hf", code=4)
        self.assertIn("Quantized", done.stderr)
        self.command("convert", source, self.folder / "r", "--to", "hf", "--exclude", "q")

    def test_whole_models_and_bare_tensors(self):
        torch.save(torch.nn.Linear(2, 2), self.folder / "model.pt")
        self.assertIn("state_dict", self.command("inspect", self.folder / "model.pt", code=4).stderr)
        torch.save(torch.arange(4), self.folder / "indices.pt")
        self.command("convert", self.folder / "indices.pt", self.folder / "r", "--to", "hf")
        self.assert_same({"indices": torch.arange(4)}, load_file(self.folder / "r/model.safetensors"))
        torch.save(torch.arange(4), self.folder / "old.pt", _use_new_zipfile_serialization=False)
        self.assertIn("before PyTorch 1.6", self.command("inspect", self.folder / "old.pt", code=4).stderr)

    def test_bin_sets(self):
        source = self.folder / "model"
        source.mkdir()
        torch.manual_seed(1)
        halves = [{"a": torch.randn(3, 4), "b": torch.randn(2)}, {"c": torch.randn(5)}]
        files = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
        for half, name in zip(halves, files):
            torch.save(half, source / name)
        index = {"metadata": {}, "weight_map": {name: file for half, file in zip(halves, files) for name in half}}
        (source / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        (source / "config.json").write_text("{}")
        self.command("convert", source, self.folder / "r", "--to", "hf", "--verify")
        self.assert_same({**halves[0], **halves[1]}, load_file(self.folder / "r/model.safetensors"))
        self.assertTrue((self.folder / "r/config.json").exists())
        index["weight_map"]["c"] = files[0]
        (source / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        self.assertIn("none of that name", self.command("inspect", source, code=4).stderr)
        (source / files[1]).unlink()
        (source / "pytorch_model.bin.index.json").unlink()
        self.assertIn("index.json", self.command("inspect", source, code=4).stderr)

    def test_parts_of_dtensors(self):
        cases = {
            "rows": ((4,), [Shard(0)], (8, 3)),
            "columns": ((4,), [Shard(1)], (3, 8)),
            "uneven": ((4,), [Shard(0)], (6, 3)),
            "short": ((4,), [Shard(0)], (2, 3)),
            "whole": ((4,), [Replicate()], (2, 3)),
            "hsdp": ((2, 2), [Replicate(), Shard(0)], (6, 3)),
            "grid": ((2, 2), [Shard(0), Shard(1)], (6, 4)),
            "twice": ((2, 2), [Shard(0), Shard(0)], (9, 2)),
            "strided": ((2, 2), [_StridedShard(0, split_factor=2), Shard(0)], (8, 2)),
            "strided uneven": ((2, 2), [_StridedShard(0, split_factor=2), Shard(0)], (10, 2)),
            "strided columns": ((2, 2), [_StridedShard(1, split_factor=2), Shard(1)], (2, 8)),
            "scalar": ((2, 2), [Replicate(), Replicate()], ()),
        }
        source = self.folder / "verl"
        (source / "huggingface").mkdir(parents=True)
        (source / "huggingface/config.json").write_text("{}")
        multiprocessing.spawn(save_part, (4, source, cases, self.folder / "store"), nprocs=4)
        self.command("convert", source, self.folder / "r", "--to", "hf", "--verify")
        wanted = {name: torch.arange(float(torch.Size(shape).numel())).reshape(shape)
                  for name, (_, _, shape) in cases.items()}
        self.assert_same({**wanted, "buffer": torch.arange(3)}, load_file(self.folder / "r/model.safetensors"))
        self.assertTrue((self.folder / "r/config.json").exists())
        one = source / "model_world_size_4_rank_2.pt"
        self.assertIn("name the directory", self.command("inspect", one, code=4).stderr)
        one.rename(self.folder / "away.pt")
        self.assertIn("rank_2.pt is missing", self.command("inspect", source, code=4).stderr)
        # A rank's file in the place of another's is found out by the elements.
        shutil.copy(source / "model_world_size_4_rank_1.pt", one)
        self.assertIn("hole", self.command("convert", source, self.folder / "x", "--to", "hf", code=4).stderr)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main()
