#!/usr/bin/env python3
"""`reshard checkpoint` and `reshard verify` on what real PyTorch and the safetensors package write, and they on what it
writes.

usage: torch_convert_test.py COMMAND
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader

import safetensors.torch

COMMAND = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "reshard"
DTYPES = [
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32),
    *(torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]
NOT_IN_SAFETENSORS = [torch.complex128]
RULES = {
    "mesh": "{dp:2,tp:3}",
    "layouts": [["*.t_*", "[<dp>, <tp>]"], ["*weight", "[<tp,dp>, ...]"], ["*row", "[<dp>]"], ["*", "[...]"]],
}

warnings.filterwarnings("ignore")


def tensor(shape, dtype, seed):
    """Random bits, every pattern of the dtype."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    size = torch.empty((), dtype=dtype).element_size()
    count = int(torch.Size(shape).numel())
    return torch.randint(0, 256, (count * size,), generator=generator).to(torch.uint8).view(dtype).reshape(shape)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def bits(x):
    return x.contiguous().reshape(-1).view(torch.uint8) if x.numel() else torch.empty(0)


def state_dict():
    model = {f"model.t_{str(dtype)[6:]}": tensor((7, 5), dtype, i) for i, dtype in enumerate(DTYPES)}
    model |= {
        "model.weight": torch.randn(13, 4, 3),
        "model.transposed.weight": torch.randn(6, 10).t(),
        "model.conjugate": torch.randn(4, 3, dtype=torch.complex64).conj(),
        "model.row": torch.arange(5, dtype=torch.int32),
        "model.scalar": torch.tensor(2.5, dtype=torch.float64),
        "model.empty": torch.empty(0, 3),
        "model.names \u00e9\U0001f600\n\0": torch.ones(2),
        "": torch.zeros(1),
    }
    linear = torch.nn.Linear(6, 4)
    optimizer = torch.optim.AdamW(linear.parameters())
    linear(torch.randn(2, 6)).sum().backward()
    optimizer.step()
    return {
        "model": model,
        "optimizer": optimizer.state_dict(),
        "list": [torch.arange(3), {"deep": torch.arange(4.0)}],
        "epoch": 7,
        "text": "\u00fcber",
        "nothing": None,
        "settings": {"lr": 1e-3, "tags": ("a", "b")},
    }


def walk(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*path, key))
    elif isinstance(value, list):
        for key, inner in enumerate(value):
            yield from walk(inner, (*path, key))
    else:
        yield path, value


def emptied(value):
    """The same containers with other contents, to be loaded into."""
    if isinstance(value, dict):
        return {key: emptied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [emptied(inner) for inner in value]
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype)
    return None if not isinstance(value, int) else -1


class ConvertTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reshard_convert."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.rules = self.folder / "rules.json"
        self.rules.write_text(json.dumps(RULES))

    def command(self, *arguments, code=0):
        done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(code, done.returncode, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def save(self, state, name="torch"):
        path = self.folder / name
        dcp.save(state, checkpoint_id=path, no_dist=True)
        return path

    def assert_loads(self, path, state):
        loaded = emptied(state)
        dcp.load(loaded, checkpoint_id=path, no_dist=True)
        wanted = dict(walk(state))
        got = dict(walk(loaded))
        self.assertEqual(wanted.keys(), got.keys())
        for key, value in wanted.items():
            if isinstance(value, torch.Tensor):
                self.assertTrue(same(value.resolve_conj(), got[key]), f"{key}: {value} {got[key]}")
            else:
                self.assertEqual(value, got[key], key)

    def test_torch_to_layout_and_back(self):
        state = state_dict()
        source = self.save(state)
        target = self.folder / "sharded"
        self.command("checkpoint", source, target, "--rules", self.rules, "--verify")
        self.assert_loads(target, state)
        self.command("verify", source, target)
        metadata = FileSystemReader(target).read_metadata()
        boxes = {
            (tuple(chunk.offsets), tuple(chunk.sizes))
            for chunk in metadata.state_dict_metadata["model.model.t_float32"].chunks
        }
        rows, columns = [(0, 4), (4, 3)], [(0, 2), (2, 2), (4, 1)]
        self.assertEqual({((r, c), (m, n)) for r, m in rows for c, n in columns}, boxes)
        self.assertEqual(len(metadata.storage_data), len({(k.fqn, k.offset) for k in metadata.storage_data}))
        back = self.folder / "back"
        self.command("checkpoint", target, back, "--mesh", "{x:1}", "--layout", "[...]")
        self.assert_loads(back, state)
        self.assertEqual([], [p for p in self.folder.iterdir() if p.name.startswith(".")])

    def test_orders_and_blocks(self):
        state = {"w": torch.randn(24, 8), "v": torch.arange(24.0)}
        source = self.save(state)
        layouts = ["[<dp,tp>, ...]", "[<tp,dp>, ...]", "[<2,dp>, ...]", "[<2,~tp>, ...]", "[...]"]
        for i, layout in enumerate(layouts):
            target = self.folder / f"order{i}"
            self.command("checkpoint", source, target, "--mesh", "{dp:2,tp:3}", "--layout", layout, "--verify")
            self.assert_loads(target, state)
            sidecar = json.loads((target / "reshard.json").read_text())["content"]
            self.assertEqual("{dp:2,tp:3}", sidecar["mesh"])
            self.assertIn(layout[1 : layout.index(">") + 1] if "<" in layout else "24", sidecar["tensors"][0][1])
            source = target

    def test_safetensors(self):
        state = state_dict()["model"]
        source = self.save(state)
        target = self.folder / "st"
        # Nothing is written without what cannot be, until that is left out by name.
        done = self.command("checkpoint", source, target, "--format", "safetensors", "--verify", code=4)
        names = [f"model.t_{str(dtype)[6:]}" for dtype in NOT_IN_SAFETENSORS]
        self.assertTrue(any(name in done.stderr for name in names), done.stderr)
        self.assertFalse(target.exists())
        without = [word for name in names for word in ("--exclude", name)]
        self.command("checkpoint", source, target, "--format", "safetensors", "--verify", *without)
        kept = {key: value for key, value in state.items() if value.dtype not in NOT_IN_SAFETENSORS}
        loaded = safetensors.torch.load_file(target / "model.safetensors")
        self.assertEqual(kept.keys(), loaded.keys())
        for key, value in kept.items():
            self.assertTrue(same(value.resolve_conj(), loaded[key]), key)
        back = self.folder / "back"
        self.command("checkpoint", target, back, "--rules", self.rules, "--verify")
        self.assert_loads(back, kept)
        self.command("verify", target, back)
        several = self.folder / "several"
        self.command("checkpoint", back, several, "--format", "safetensors", "--file-size", "200")
        index = json.loads((several / "model.safetensors.index.json").read_text())
        self.assertEqual(kept.keys(), index["weight_map"].keys())
        for key, file in index["weight_map"].items():
            with safetensors.safe_open(several / file, "pt") as opened:
                self.assertTrue(same(kept[key].resolve_conj(), opened.get_tensor(key)), key)
        self.command("verify", several, target)

    def test_differences_are_named(self):
        state = {"a": torch.arange(64).reshape(8, 8), "b": torch.ones(3), "c": torch.ones(2), "n": 5}
        other = {"a": state["a"].clone(), "b": torch.ones(4), "d": torch.ones(2), "n": 5}
        other["a"][3, 2:5] = -1
        one, two = self.save(state, "one"), self.save(other, "two")
        done = self.command("verify", one, two, code=1)
        self.assertIn("a: elements [3, 2] to [3, 4] differ (3 of 64)", done.stdout)
        for line in ("b: shape [3] in A, [4] in B", "c: only in A", "d: only in B"):
            self.assertIn(line, done.stdout)
        report = json.loads(self.command("verify", one, two, "--json", code=1).stdout)
        self.assertEqual(["a", "b", "c", "d"], [d["name"] for d in report["differences"]])

    def test_damage_is_seen(self):
        source = self.save({"w": torch.arange(4096.0), "v": torch.ones(8)})
        dcp_copy, st_copy = self.folder / "dcp", self.folder / "st"
        self.command("checkpoint", source, dcp_copy, "--mesh", "{x:2}", "--layout", "[<x>]")
        self.command("checkpoint", source, st_copy, "--format", "safetensors")
        for path in (dcp_copy / "__0_0.distcp", st_copy / "model.safetensors", source / "__0_0.distcp"):
            good = path.read_bytes()
            at = good.index(torch.arange(100.0, 110.0).numpy().tobytes()) + 5
            path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            done = self.command("verify", path.parent, path.parent, code=4)
            self.assertIn("damaged", done.stderr)
            self.command(
                "checkpoint", path.parent, self.folder / "none", "--mesh", "{x:3}", "--layout", "[<x>]", code=4
            )
            self.assertFalse((self.folder / "none").exists())
            path.write_bytes(good)
        for name in (".metadata", "reshard.json"):
            path = dcp_copy / name
            good = path.read_bytes()
            seed = int(os.environ.get("RESHARD_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
            rng = random.Random(seed)
            for _ in range(60):
                at, bit = rng.randrange(len(good)), 1 << rng.randrange(8)
                path.write_bytes(good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
                done = subprocess.run([COMMAND, "verify", source, dcp_copy], capture_output=True, text=True, check=False)
                self.assertIn(done.returncode, (4, 5), f"{name} byte {at} bit {bit}, seed {seed}: {done.stdout}")
            path.write_bytes(good)
        # PyTorch saves over the directory: the sidecar is stale, and says so.
        dcp.save({"w": torch.zeros(4096), "v": torch.ones(8)}, checkpoint_id=dcp_copy, no_dist=True)
        self.assertIn("stale", self.command("verify", dcp_copy, dcp_copy, code=4).stderr)
        self.command("verify", dcp_copy, dcp_copy, "--ignore-sidecar")

    def test_refusals(self):
        source = self.save({"w": torch.ones(4, 4), "n": 1})
        target = self.folder / "target"
        plain = ("--mesh", "{x:2}", "--layout", "[<x>, ...]")
        self.command("checkpoint", source, target, code=2)
        self.command("checkpoint", source, target, *plain, "--format", "zip", code=2)
        self.command("checkpoint", source, target, *plain, "--memory-limit", "lots", code=2)
        self.command("checkpoint", source, target, *plain, "--memory-limit", "1KiB", code=3)
        self.command("checkpoint", source, target, "--mesh", "{x:2}", "--layout", "[<y>, ...]", code=4)
        self.command("checkpoint", source, target, "--mesh", "{x:2}", "--layout", "[<x>]", code=4)
        self.command("checkpoint", self.folder / "nowhere", target, *plain, code=5)
        self.command("checkpoint", source, self.folder / "no" / "parent", *plain, code=5)
        self.rules.write_text('{"mesh":"{x:2}"}')
        self.command("checkpoint", source, target, "--rules", self.rules, code=4)
        self.command("checkpoint", source, target, "--rules", self.folder / "none.json", code=5)
        self.assertFalse(target.exists())
        self.command("checkpoint", source, target, *plain, "--dry-run")
        self.assertFalse(target.exists())
        self.command("checkpoint", source, target, *plain)
        before = {path.name: path.read_bytes() for path in target.iterdir()}
        self.command("checkpoint", source, target, "--mesh", "{x:4}", "--layout", "[<x>, ...]", code=5)
        self.assertEqual(before, {path.name: path.read_bytes() for path in target.iterdir()})
        self.command("checkpoint", source, target, "--mesh", "{x:4}", "--layout", "[<x>, ...]", "--overwrite")
        self.assert_loads(target, {"w": torch.ones(4, 4), "n": 1})
        self.assertEqual(4, len(list(target.glob("*.distcp"))))
        self.assertEqual([], [p for p in self.folder.iterdir() if p.name.startswith(".")])

    def test_killed_and_resumed(self):
        state = {f"w{i}": torch.randn(512, 1024) for i in range(24)} | {"n": 3}
        source = self.save(state)
        arguments = ("--mesh", "{x:3}", "--layout", "[..., <x>]", "--threads", "2")
        whole = self.folder / "whole"
        begin = time.monotonic()
        self.command("checkpoint", source, whole, *arguments)
        seconds = time.monotonic() - begin
        seed = int(os.environ.get("RESHARD_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
        rng = random.Random(seed)
        for attempt in range(12):
            target = self.folder / f"t{attempt}"
            child = subprocess.Popen([COMMAND, "checkpoint", source, target, *arguments], stdout=subprocess.DEVNULL)
            time.sleep(rng.random() * seconds)
            child.send_signal(signal.SIGKILL)
            child.wait()
            if target.exists():
                self.command("verify", source, target)
            summary = json.loads(
                self.command("checkpoint", source, target, *arguments, "--resume", "--json").stdout
            )
            self.assertEqual(summary["schema"], "reshard.checkpoint/1")
            for path in whole.iterdir():
                self.assertEqual(path.read_bytes(), (target / path.name).read_bytes(), f"{path.name}, seed {seed}")
            again = json.loads(self.command("checkpoint", source, target, *arguments, "--resume", "--json").stdout)
            self.assertTrue(again["was_complete"])
            self.assertEqual([], [p for p in self.folder.iterdir() if p.name.startswith(".")])
            shutil.rmtree(target)

    def test_memory_stays_below_the_limit(self):
        state = {"w": torch.randn(16384, 4096), "v": torch.randn(4096, 16384)}  # 2 x 256 MiB
        source = self.save(state)
        summary = json.loads(
            self.command(
                *("checkpoint", source, self.folder / "target", "--mesh", "{x:4}", "--layout", "[..., <x>]"),
                *("--memory-limit", "64MiB", "--json"),
            ).stdout
        )
        if "RESHARD_SANITIZED" not in os.environ:  # what sanitizers take is not memory of the library's
            self.assertLess(summary["peak_resident_bytes"], 64 << 20)
        self.assertEqual(512 << 20, summary["bytes"])
        self.command("verify", source, self.folder / "target")


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
