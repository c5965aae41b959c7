"""Files of torch.save as sources: what torch.load finds in them is what their conversions hold.

Run by CTest with a Python that has torch: torch_save_test.py RESHARD [FIXTURES]
"""

import argparse
import collections
import datetime
import decimal
import enum
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
import zipfile

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
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


class Color(enum.Enum):
    RED = 1


class Config:
    def __init__(self):
        self.lr = 0.1


class Mapping(dict):
    """A dict of a class of its own."""


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
        if name == "strided uneven":  # as fully_shard cuts what is cut already, which distribute_tensor cannot
            first, second = mesh.get_coordinate()
            local = whole.chunk(2)[second].chunk(2)[first].clone()
            of_whole = {"shape": whole.shape, "stride": whole.stride()}
            state[name] = DTensor.from_local(local, mesh, placements, run_check=False, **of_whole).detach()
        else:
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

    def test_values_that_are_not_plain_cost_nothing_else(self):
        state = {
            "w": torch.ones(2),
            "args": argparse.Namespace(lr=0.1, t=torch.ones(3)),
            "space": types.SimpleNamespace(a=1),
            "default": collections.defaultdict(dict, {"in": torch.ones(3)}),
            "ordered": collections.OrderedDict(x=torch.ones(1)),
            "counter": collections.Counter({3: 2}),
            "deque": collections.deque([1, 2], maxlen=5),
            "mapping": Mapping(a=torch.ones(4), b=3),
            "numpy": numpy.float64(0.5),
            "array": numpy.arange(3),
            "fortran": numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
            "seed": 2**100,
            # Opaque:
            "device": torch.device("cpu"),
            "dtype": torch.float32,
            "enum": Color.RED,
            "partial": functools.partial(print, 1),
            "function": print,
            "class": Color,
            "slice": slice(1, 2),
            "range": range(3),
            "decimal": decimal.Decimal("1.5"),
            "date": datetime.date(2020, 1, 1),
            "regex": re.compile("a.*"),
            "generator": numpy.random.default_rng(3),
            "object": Config(),
            "gadget": Gadget(),
        }
        plain = {"args.lr": 0.1, "space.a": 1, "counter.3": 2, "deque": [1, 2], "mapping.b": 3, "numpy": 0.5, "seed": 2**100}
        tensors_in = {"w": torch.ones(2), "args.t": torch.ones(3), "default.in": torch.ones(3), "ordered.x": torch.ones(1),
                      "mapping.a": torch.ones(4), "array": torch.arange(3), "fortran": torch.arange(6.0).reshape(2, 3).double()}
        opaque = list(state)[list(state).index("device"):]
        for form in (True, False):
            source = self.folder / f"state{form}.pt"
            torch.save(state, source, _use_new_zipfile_serialization=form)
            listing = json.loads(self.command("inspect", source, "--json").stdout)
            self.assertEqual(sorted(tensors_in), sorted(t["name"] for t in listing["tensors"]))
            self.assertEqual(sorted(plain), sorted(i["name"] for i in listing["byte_items"]))
            kinds = {a["name"]: a["kind"] for a in listing["attributes"]}
            self.assertEqual(sorted(opaque), sorted(kinds))
            self.assertEqual("functools.partial", kinds["partial"])
            self.assertEqual(f"an object of {__name__}.Config", kinds["object"])
            self.assertIn("system", kinds["gadget"])
            result = self.folder / f"dcp{form}"
            done = self.command("convert", source, result, "--mesh", "{x:1}", "--layout", "[...]", code=1)
            for name in opaque:
                self.assertIn(f'not written: "{name} (', done.stderr)
            self.assertFalse(any(b"posix" in file.read_bytes() for file in result.iterdir()))
            from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

            dcp_to_torch_save(result, self.folder / f"back{form}.pt")
            back = torch.load(self.folder / f"back{form}.pt", weights_only=False)
            self.assert_equal({"a": torch.ones(4), "b": 3}, back["mapping"])
            self.assert_equal([1, 2], back["deque"])
            self.assert_equal(2**100, back["seed"])
            # What is not selected costs nothing.
            for flags in (["--include", "w"], ["--drop-byte-items"], ["--weights-only"]):
                self.command("convert", source, self.folder / "some", "--to", "safetensors", *flags)
                self.assertTrue(torch.equal(torch.ones(2), load_file(self.folder / "some/model.safetensors")["w"]))
                shutil.rmtree(self.folder / "some")

    def test_keys_of_any_kind(self):
        """Lightning before 1.5 had classes as keys."""
        state = {"state_dict": {"w": torch.ones(2)}, "callbacks": {Config: {"best": torch.tensor(1.0)}}, "pytorch-lightning_version": "1.2",
                 "others": {(1, "a"): 3, torch.float32: 4, b"k": 5, 0: {"step": 5, "buf": torch.ones(2)}, None: 1, True: 2, 1.5: 3,
                            Color.RED: 7}}
        source = self.folder / "last.ckpt"
        torch.save(state, source)
        listing = json.loads(self.command("inspect", source, "--json").stdout)
        self.assertEqual(sorted(["state_dict.w", f"callbacks.{__name__}.Config.best", "others.0.buf"]), sorted(t["name"] for t in listing["tensors"]))
        self.assertEqual(sorted(["pytorch-lightning_version", "others.(1, a)", "others.torch.float32", "others.b'k'", "others.0.step",
                                 "others.None", "others.True", "others.1.5", f"others.{__name__}.Color.RED"]),
                         sorted(i["name"] for i in listing["byte_items"]))
        done = json.loads(self.command("convert", source, self.folder / "r", "--to", "hf", "--json").stdout)
        self.assertEqual(["w"], list(load_file(self.folder / "r/model.safetensors")))
        self.assertEqual({"callbacks", "others", "pytorch-lightning_version"}, {one["container"] for one in done["not_selected"]})

    def test_training_state_by_its_form(self):
        """What is weights is told by what it is made of; all else is listed."""
        model = torch.nn.Sequential(collections.OrderedDict(optimizer=torch.nn.Linear(3, 2), rng=torch.nn.BatchNorm1d(2)))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
        scaler = {"scale": torch.tensor(65536.0), "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 0}
        others = {"optimizer_G": optimizer.state_dict(), "opt_state": optimizer.state_dict(), "lr": scheduler.state_dict(), "scaler": scaler,
                  "torch_rng_state": torch.get_rng_state(), "step": torch.tensor(7)}
        source = self.folder / "state.pt"
        for form in (True, False):
            torch.save({"model": model.state_dict(), **others}, source, _use_new_zipfile_serialization=form)
            done = json.loads(self.command("convert", source, self.folder / "r", "--to", "hf", "--json").stdout)
            self.assert_same(model.state_dict(), load_file(self.folder / "r/model.safetensors"))
            self.assertEqual(sorted(others), sorted(one["container"] for one in done["not_selected"]))
            shutil.rmtree(self.folder / "r")

    def test_kinds_of_tensors_that_cannot_be_carried(self):
        state = {"w": torch.ones(2), "sparse": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr(),
                 "quantized": torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.quint8), "meta": torch.ones(2, device="meta"),
                 "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}
        source = self.folder / "state.pt"
        torch.save(state, source)
        said = self.command("inspect", source, code=4).stderr
        for name in list(state)[1:]:
            self.assertIn(f"tensor {name}: elements of type a {'nested' if name == 'nested' else ''}", said)
            self.assertIn(name, self.command("convert", source, self.folder / "r", "--to", "hf", "--include", name, code=4).stderr)
        excluded = [word for name in list(state)[1:] for word in ("--exclude", name)]
        self.command("convert", source, self.folder / "r", "--to", "hf", *excluded)
        self.assert_same({"w": torch.ones(2)}, load_file(self.folder / "r/model.safetensors"))

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
        self.assertIn("Quantized", self.command("inspect", source, code=4).stdout)
        done = self.command("convert", source, self.folder / "r", "--to", "hf", code=4)
        self.assertIn("Quantized", done.stderr)
        self.command("convert", source, self.folder / "r", "--to", "hf", "--exclude", "q")

    def test_pickled_modules_are_read_as_their_state_dicts(self):
        torch.manual_seed(2)
        inner = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 1), torch.nn.BatchNorm2d(3))
        model = torch.nn.Sequential(collections.OrderedDict(body=inner, again=inner, head=torch.nn.Linear(2, 2, bias=False)))
        model.register_buffer("mask", torch.ones(2, 2), persistent=False)
        model.register_buffer("kept", torch.arange(3))
        model.register_parameter("none", None)
        model.names = ["a", "b"]
        for form in (True, False):
            torch.save(model, self.folder / "model.pt", _use_new_zipfile_serialization=form)
            torch.save({"model": model, "epoch": 3, "ema": [inner]}, self.folder / "dict.pt", _use_new_zipfile_serialization=form)
            self.command("convert", self.folder / "model.pt", self.folder / "r", "--to", "safetensors", "--verify")
            self.assert_same(dict(model.state_dict()), load_file(self.folder / "r/model.safetensors"))
            self.command("convert", self.folder / "dict.pt", self.folder / "d", "--to", "safetensors", "--drop-byte-items")
            self.assert_same({**{f"model.{k}": v for k, v in model.state_dict().items()}, **{f"ema.0.{k}": v for k, v in inner.state_dict().items()}},
                             load_file(self.folder / "d/model.safetensors"))
            shutil.rmtree(self.folder / "r")
            shutil.rmtree(self.folder / "d")

    def test_torchscript(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval()
        for name, script in (("script", torch.jit.script(model)), ("trace", torch.jit.trace(model, torch.randn(4, 3)))):
            script.save(self.folder / f"{name}.pt")
            self.command("convert", self.folder / f"{name}.pt", self.folder / name, "--to", "safetensors", "--verify")
            self.assert_same(dict(model.state_dict()), load_file(self.folder / name / "model.safetensors"))

    def test_the_first_form(self):
        """What torch.save wrote before PyTorch 1.6, and writes with a flag."""
        source = self.folder / "state.pt"
        some = {k: v for k, v in tensors().items() if not any(word in k for word in ("float8", "uint16", "uint32", "uint64"))}
        for protocol in range(2, 6):
            torch.save(some, source, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
            result = self.folder / str(protocol)
            self.command("convert", source, result, "--to", "safetensors", "--verify")
            self.assert_same(torch.load(source, weights_only=False), load_file(result / "model.safetensors"))
        self.command("verify", source, result)
        bytes_ = source.read_bytes()
        source.write_bytes(bytes_[:-1])
        self.assertIn("ends in the storage", self.command("inspect", source, code=4).stderr)
        source.write_bytes(bytes_ + bytes_)
        self.assertIn("if several values were saved into this file", self.command("inspect", source, code=4).stderr)

    def test_bare_tensors_and_compressed_archives(self):
        torch.save(torch.arange(4), self.folder / "indices.pt")
        self.command("convert", self.folder / "indices.pt", self.folder / "r", "--to", "hf")
        self.assert_same({"indices": torch.arange(4)}, load_file(self.folder / "r/model.safetensors"))
        # A description may be compressed; elements are read where they are.
        for compressed, code in (("data.pkl", 0), ("data/0", 4)):
            packed = self.folder / "packed.pt"
            with zipfile.ZipFile(self.folder / "indices.pt") as archive, zipfile.ZipFile(packed, "w") as out:
                for info in archive.infolist():
                    deflated = info.filename.endswith(compressed)
                    out.writestr(info.filename, archive.read(info), zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED)
            done = self.command("verify", packed, packed, code=code)
            if code:
                self.assertIn("data/0\" is compressed", done.stderr)

    def test_one_file_of_several(self):
        for rank in range(2):
            torch.save({"w": torch.full((2,), float(rank))}, self.folder / f"model.rank_{rank}.pth")
        one = self.folder / "model.rank_0.pth"
        self.assertIn("is one of 2 parts", self.command("convert", one, self.folder / "r", "--to", "hf", code=4).stderr)
        self.command("convert", one, self.folder / "r", "--to", "hf", "--partial")

    def test_ranks_that_differ(self):
        """Experts and buffers are plain tensors that have one name and other elements on every rank."""
        source = self.folder / "ranks"
        source.mkdir()
        for rank in range(2):
            whole = torch.arange(6.0)
            state = {"same": whole[:3], "view": torch.full((4,), float(rank))[1:1], "experts.w": torch.full((2, 2), float(rank)), "step": 3,
                     "seed": rank}
            state["part"] = torch.cat([torch.tensor([float(rank)]), whole])[1:]  # other bytes around it
            torch.save(state, source / f"model_world_size_2_rank_{rank}.pt")
        said = self.command("convert", source, self.folder / "r", "--to", "hf", code=4).stderr
        self.assertIn('"experts.w" differs between the files of ranks, such as "model_world_size_2_rank_0.pt"', said)
        self.assertFalse((self.folder / "r").exists())
        self.command("fingerprint", source, code=4)
        self.command("convert", source, self.folder / "r", "--to", "hf", "--rank-local", "keep", "--verify")
        kept = load_file(self.folder / "r/model.safetensors")
        self.assertEqual(sorted(["same", "view", "part", "experts.w.rank_0", "experts.w.rank_1"]), sorted(kept))
        for rank in range(2):
            self.assertTrue(torch.equal(torch.full((2, 2), float(rank)), kept[f"experts.w.rank_{rank}"]))
        self.command("convert", source, self.folder / "x", "--to", "hf", "--exclude", "experts.w")

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
        self.assertIn("is a part of the checkpoint in", self.command("inspect", one).stderr)
        one.rename(self.folder / "away.pt")
        self.assertIn("rank_2.pt is missing", self.command("inspect", source, code=4).stderr)
        # A rank's file in the place of another's is found out by the elements.
        shutil.copy(source / "model_world_size_4_rank_1.pt", one)
        self.assertIn("hole", self.command("convert", source, self.folder / "x", "--to", "hf", code=4).stderr)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main()
