#!/usr/bin/env python3
"""inspect, convert, verify and fingerprint of the Python package, on checkpoints written here byte by byte.

usage: checkpoints_test.py RESHARD            (the package is on PYTHONPATH, or installed)
"""
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import reshard

COMMAND = sys.argv[1] if len(sys.argv) > 1 else "reshard"


def write_safetensors(path, tensors):
    """{name: (dtype, shape, bytes)}"""
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def read_safetensors(directory):
    found = {}
    for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        head = json.loads(data[8 : 8 + length])
        for name, one in head.items():
            if name != "__metadata__":
                begin, end = one["data_offsets"]
                found[name] = (one["dtype"], one["shape"], data[8 + length + begin : 8 + length + end])
    return found


def floats(count, first=0):
    return struct.pack(f"<{count}f", *(float(first + i) for i in range(count)))


class Checkpoints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = pathlib.Path(folder.name)
        self.tensors = {"model.a.weight": ("F32", [8, 6], floats(48)), "model.b.weight": ("F32", [4], floats(4, 100))}
        (self.at / "source").mkdir()
        write_safetensors(self.at / "source" / "model.safetensors", self.tensors)
        (self.at / "source" / "config.json").write_text("{}")

    def test_inspect(self):
        checkpoint = reshard.inspect(self.at / "source")
        said = subprocess.run([COMMAND, "inspect", self.at / "source", "--json"], capture_output=True, text=True, check=True)
        self.assertEqual(checkpoint.to_json(), said.stdout)
        self.assertEqual(checkpoint.format, "safetensors")
        self.assertEqual(checkpoint.tensors["model.a.weight"]["shape"], [8, 6])
        self.assertIn("model.b.weight", str(checkpoint))
        self.assertEqual(list(reshard.inspect(str(self.at / "source"), tensor="*.b.*", chunks=True).tensors), ["model.b.weight"])

    def test_there_and_back(self):
        seen = []
        sharded = reshard.convert(
            self.at / "source", self.at / "sharded", mesh="{dp:3}", layout="[<dp>, ...]", verify=True,
            progress=lambda done, total, seconds: seen.append((done, total)),
        )
        self.assertEqual((sharded.tensors, sharded.bytes, sharded.side_files), (2, 208, ["config.json"]))
        self.assertTrue(sharded["verified"])
        self.assertIn("<dp>", reshard.inspect(self.at / "sharded").tensors["model.a.weight"]["layout"])
        self.assertTrue(reshard.verify(self.at / "source", self.at / "sharded"))
        back = reshard.convert(self.at / "sharded", self.at / "back", to="hf", strip_prefix="model.", dtype={"a.*": "bf16"},
                               rename={"b.*": "c.$1"})
        self.assertEqual(back.left_out, [])
        found = read_safetensors(self.at / "back")
        self.assertEqual(found["c.weight"], self.tensors["model.b.weight"])
        self.assertEqual(found["a.weight"][:2], ("BF16", [8, 6]))
        whole = self.tensors["model.a.weight"][2]
        self.assertEqual(found["a.weight"][2], b"".join(whole[i + 2 : i + 4] for i in range(0, len(whole), 4)))
        self.assertTrue((self.at / "back" / "model.safetensors.index.json").is_file())
        self.assertTrue((self.at / "back" / "config.json").is_file())
        different = reshard.verify(self.at / "source", self.at / "back", strip_prefix="model.")
        self.assertFalse(different)
        self.assertIn("a.weight", different.differences)

    def test_to_hf_takes_wrappers_off(self):
        weight = self.tensors["model.b.weight"]
        (self.at / "wrapped").mkdir()
        write_safetensors(
            self.at / "wrapped" / "model.safetensors",
            {"module._orig_mod.a.weight": weight, "module._orig_mod.b.weight": weight, "optimizer.state.0.exp_avg": weight},
        )
        done = reshard.convert(self.at / "wrapped", self.at / "bare", to="hf")
        self.assertEqual(done.taken_off, ["_orig_mod.", "module."])
        self.assertEqual(sorted(read_safetensors(self.at / "bare")), ["a.weight", "b.weight"])
        same = reshard.verify(self.at / "wrapped", self.at / "bare")
        self.assertTrue(same)
        self.assertTrue(same["as_made"]["weights_only"])
        reshard.convert(self.at / "wrapped", self.at / "kept", to="hf", keep_names=True, with_training_state=True)
        self.assertEqual(len(read_safetensors(self.at / "kept")), 3)
        with self.assertRaisesRegex(ValueError, 'for to="hf"'):
            reshard.convert(self.at / "wrapped", self.at / "no", to="safetensors", keep_names=True)

    def test_what_matches_nothing(self):
        source = self.at / "source"
        for arguments in ({"include": "modl.*"}, {"strip_prefix": "modle."}, {"dtype": {"model.a.wieght": "bf16"}}):
            with self.assertRaisesRegex(ValueError, 'matches none of 2 names; the nearest is "model.a.weight"'):
                reshard.convert(source, self.at / "no", to="safetensors", **arguments)
            with self.assertRaisesRegex(ValueError, "matches none of 2 names"):
                reshard.verify(source, source, **arguments)
            with self.assertRaisesRegex(ValueError, "matches none of 2 names"):
                reshard.fingerprint(source, **arguments)
        self.assertTrue(reshard.verify(source, source, exclude=["none"], strip_prefix="none.", allow_unmatched=True))
        self.assertEqual(reshard.fingerprint(source, exclude=["none"], allow_unmatched=True), reshard.fingerprint(source))

    def test_fingerprints(self):
        said = subprocess.run([COMMAND, "fingerprint", self.at / "source"], capture_output=True, text=True, check=True)
        of_source = reshard.fingerprint(self.at / "source")
        self.assertEqual(of_source, said.stdout.split()[0])
        each = reshard.fingerprint(str(self.at / "source"), per_tensor=True, threads=1)
        self.assertEqual(list(each), ["model.a.weight", "model.b.weight"])
        halves = [sum(int(one[at : at + 16], 16) for one in each.values()) % (1 << 64) for at in (0, 16)]
        self.assertEqual(of_source, "".join(f"{half:016x}" for half in halves))
        reshard.convert(self.at / "source", self.at / "sharded", mesh="{dp:3}", layout="[<dp>, ...]", strip_prefix="model.")
        self.assertNotEqual(reshard.fingerprint(self.at / "sharded"), of_source)
        seen = []
        self.assertEqual(
            reshard.fingerprint(self.at / "sharded", add_prefix="model.", progress=lambda *told: seen.append(told)), of_source
        )
        with self.assertRaisesRegex(ImportError, "needs PyTorch"):
            reshard.fingerprint({})
        with self.assertRaisesRegex(ValueError, "pass other tensors"):
            reshard.fingerprint({}, include=["a"])
        with self.assertRaises(FileNotFoundError):
            reshard.fingerprint(self.at / "none")
        with self.assertRaisesRegex(ValueError, "recipe"):
            reshard.fingerprint(self.at / "source", recipe={"schema": "none"})

    def test_recipes_rules_and_dry_runs(self):
        recipe = {"schema": "reshard.recipe/1",
                  "tensors": [{"to": "ab", "from": {"concatenate": ["model.a.weight", "model.a.weight"], "dim": 0}}],
                  "keep": ["*.b.*"]}
        planned = reshard.convert(self.at / "source", self.at / "made", to="safetensors", recipe=recipe, dry_run=True)
        self.assertEqual([(t["name"], t["shape"]) for t in planned["planned"]], [("ab", [16, 6]), ("model.b.weight", [4])])
        self.assertFalse((self.at / "made").exists())
        (self.at / "recipe.json").write_text(json.dumps(recipe))
        reshard.convert(self.at / "source", self.at / "made", to="safetensors", recipe=self.at / "recipe.json", side_files=False)
        self.assertEqual(read_safetensors(self.at / "made")["ab"][2], 2 * self.tensors["model.a.weight"][2])
        self.assertFalse((self.at / "made" / "config.json").exists())
        rules = {"mesh": "{tp:2}", "layouts": [["*a.weight", "[*, <tp>]"], ["*", "[...]"]]}
        reshard.convert(self.at / "source", self.at / "ruled", rules=rules)
        self.assertEqual(reshard.inspect(self.at / "ruled").tensors["model.a.weight"]["num_chunks"], 2)

    def test_errors(self):
        source, there = self.at / "source", self.at / "there"
        for kind, also, word, arguments in (
            (reshard.FileError, OSError, "nowhere", (self.at / "nowhere", there, {"to": "hf"})),
            (reshard.InputError, ValueError, "rules=", (source, there, {})),
            (reshard.InputError, ValueError, "whole", (source, there, {"to": "hf", "mesh": "{X:2}", "layout": "[<X>, ...]"})),
            (reshard.InputError, ValueError, "together", (source, there, {"mesh": "{X:2}"})),
            (reshard.InputError, ValueError, "nonsense", (source, there, {"to": "nonsense"})),
            (reshard.InputError, ValueError, "dtype", (source, there, {"to": "hf", "dtype": "f7"})),
            (reshard.InputError, ValueError, "", (source, there, {"to": "hf", "include": ["none*"]})),
            (reshard.InputError, ValueError, "$2", (source, there, {"to": "hf", "rename": {"a*": "$2"}})),
            (reshard.InputError, ValueError, "recipe", (source, there, {"to": "hf", "invert": True})),
            (reshard.LimitError, MemoryError, "memory", (source, there, {"to": "hf", "memory_limit": "1KiB"})),
            (reshard.FileError, OSError, "source", (source, source, {"to": "hf"})),
        ):
            with self.subTest(word=word), self.assertRaises(kind) as caught:
                reshard.convert(*arguments[:2], **arguments[2])
            self.assertIsInstance(caught.exception, also)
            self.assertIn(word, str(caught.exception))
            self.assertFalse(there.exists())
        (self.at / "damaged.safetensors").write_bytes((source / "model.safetensors").read_bytes()[:-1])
        with self.assertRaises(reshard.InputError):
            reshard.inspect(self.at / "damaged.safetensors")
        with self.assertRaises(TypeError):
            reshard.convert(source, there, to=3)
        with self.assertRaisesRegex(TypeError, "overwrite cannot be of type str"):
            reshard.convert(source, there, to="hf", overwrite="yes")
        self.assertEqual(sorted(path.name for path in self.at.iterdir()), ["damaged.safetensors", "source"])

    def big(self):
        # Enough for a conversion to be seen at work: 256 tensors of 1 MiB.
        (self.at / "big").mkdir()
        data = os.urandom(1 << 20)
        write_safetensors(self.at / "big" / "model.safetensors", {f"t{i}": ("F32", [512, 512], data) for i in range(256)})

    def test_an_exception_of_progress_stops_it(self):
        self.big()

        def refuse(done, total, seconds):
            raise KeyError("enough")

        with self.assertRaises((KeyError, AssertionError)):
            reshard.convert(self.at / "big", self.at / "there", mesh="{X:4}", layout="[<X>, ...]", threads=1, verify=True,
                            progress=refuse)
            self.fail("it was done before anybody looked")

    def test_ctrl_c_stops_it_and_the_same_call_continues(self):
        self.big()

        def interrupt(done, total, seconds):
            os.kill(os.getpid(), signal.SIGINT)

        try:
            reshard.convert(self.at / "big", self.at / "there", mesh="{X:4}", layout="[<X>, ...]", threads=1, verify=True,
                            progress=interrupt)
        except KeyboardInterrupt:
            self.assertFalse((self.at / "there").exists())
            resumed = reshard.convert(self.at / "big", self.at / "there", mesh="{X:4}", layout="[<X>, ...]")
            self.assertTrue(resumed["committed"])
        self.assertTrue(reshard.verify(self.at / "big", self.at / "there"))
        self.assertEqual(sorted(path.name for path in self.at.iterdir()), ["big", "source", "there"])

    def test_other_threads_run_meanwhile(self):
        self.big()
        ticks, stop = [], threading.Event()

        def tick():
            while not stop.wait(0.001):
                ticks.append(time.monotonic())

        ticker = threading.Thread(target=tick)
        ticker.start()
        reshard.convert(self.at / "big", self.at / "there", to="safetensors")
        stop.set()
        ticker.join()
        self.assertGreater(len(ticks), 1)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
