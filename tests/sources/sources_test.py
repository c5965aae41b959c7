#!/usr/bin/env python3
"""Checkpoints of other kinds as sources: NumPy, HDF5, GGUF, Orbax, and classes of one's own.

usage: sources_test.py COMMAND PACKAGES [TEST...]

COMMAND is the command reshard, PACKAGES the folder with the Python package. fixtures/ was written by make_orbax.py.
"""
import json
import math
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import zipfile

COMMAND, PACKAGES = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
sys.path.insert(0, PACKAGES)
FIXTURES = pathlib.Path(__file__).parent / "fixtures"
SEED = int(os.environ.get("RESHARD_TEST_SEED") or random.SystemRandom().randrange(1 << 30))

import gguf  # noqa: E402
import h5py  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from safetensors import safe_open  # noqa: E402

import reshard  # noqa: E402
from arrays import Arrays  # noqa: E402
from reshard.sources.as_store import SourceStore  # noqa: E402
from reshard.sources.cells import boxes_of, cell_of  # noqa: E402
from reshard.sources.orbax import OrbaxSource  # noqa: E402

OF_ORBAX = {
    "params.decoder.layers.mlp.wi.kernel": np.arange(16 * 8 * 4, dtype=np.float32).reshape(16, 8, 4),
    "params.decoder.norm.scale": np.arange(32).astype(ml_dtypes.bfloat16).reshape(8, 4),
    "opt.0": np.arange(8, dtype=np.int32),
    "step": np.array(7),
}


def stored(folder):
    """{name: array} of the safetensors in a folder, and their metadata."""
    arrays, notes = {}, {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "numpy") as file:
            arrays |= {name: file.get_tensor(name) for name in file.keys()}
            notes |= file.metadata() or {}
    return arrays, notes


class SourcesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.scratch)
        self.rng = np.random.default_rng(SEED)

    def run_command(self, *arguments):
        environment = os.environ | {
            "PYTHONPATH": PACKAGES, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
        }  # fmt: skip
        return subprocess.run([COMMAND, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=240)

    def check_is(self, source, arrays, **terms):
        """The source converts to these arrays, through another layout, too."""
        out = self.scratch / f"out-{len(list(self.scratch.iterdir()))}"
        out.mkdir()
        reshard.convert(source, out / "one", to="safetensors", **terms)
        got, notes = stored(out / "one")
        self.assertEqual(sorted(got), sorted(arrays))
        for name, array in arrays.items():
            self.assertEqual((got[name].dtype, got[name].shape), (array.dtype, array.shape), name)
            self.assertEqual(got[name].tobytes(), np.ascontiguousarray(array).tobytes(), (name, SEED))
        reshard.convert(source, out / "cut", mesh="{a:2,b:2}", layout="[..., <a>]", threads=3, **terms)
        self.assertTrue(reshard.verify(source, out / "cut", **terms), SEED)
        return notes

    def test_cells_cover_and_have_a_size(self):
        rng = random.Random(SEED)
        for _ in range(300):
            shape = [rng.choice((0, 1, 2, 7, 100, 3000, 70_000)) for _ in range(rng.randrange(4))]
            chunk = rng.choice((None, [rng.randrange(1, s + 2) for s in shape]))
            itemsize = rng.choice((1, 2, 4, 8))
            cell = cell_of(shape, chunk, itemsize)
            if math.prod(-(-s // c) for s, c in zip(shape, cell)) > 3000:
                continue
            counted, most = 0, 0
            for offset, size in boxes_of(shape, cell):
                self.assertTrue(all(0 <= o and 0 < n and o + n <= s for o, n, s in zip(offset, size, shape)))
                counted, most = counted + math.prod(size), max(most, math.prod(size))
            self.assertEqual(counted, math.prod(shape), (shape, cell, SEED))
            self.assertLessEqual(most * itemsize, 64 << 20, (shape, chunk, cell, SEED))
            if chunk and math.prod(chunk) * itemsize <= 64 << 20:
                self.assertTrue(all(c % min(k, s) == 0 or c == s for c, k, s in zip(cell, chunk, shape) if s), (shape, chunk, cell))
        self.assertEqual(cell_of([4096, 4096], None, 4), [256, 4096])
        self.assertEqual(cell_of([4096, 4096], [512, 1], 4), [512, 2048])

    def test_a_source_of_ones_own(self):
        arrays = {
            "rows": self.rng.standard_normal((5000, 700), dtype=np.float32),
            "columns": self.rng.standard_normal((300, 9000)).astype(np.float16),
            "empty": np.zeros((0, 3), np.int64),
            "one": np.array(5, np.int8),
            "half": self.rng.standard_normal((3, 5)).astype(ml_dtypes.bfloat16),
        }
        source = Arrays(arrays, {"columns": (300, 64)})
        notes = self.check_is(source, arrays)
        self.assertEqual(notes["made_by"], "hand")
        self.assertTrue(source.closed)
        for name, offset, shape in source.reads:
            if name == "columns":  # whole cells, whatever was asked for
                self.assertEqual((offset[0], shape[0], offset[1] % 64), (0, 300, 0))
        listed = reshard.inspect(Arrays(arrays))
        self.assertEqual((listed.format, listed.tensors["half"]["dtype"]), ("listing", "bf16"))
        self.assertEqual(reshard.fingerprint(Arrays(arrays)), reshard.fingerprint(self.scratch / "out-0/cut"))

    def test_any_range_of_the_contents(self):
        arrays = {
            "a": np.array(3.5), "b": self.rng.standard_normal((1, 1, 300, 7)), "c": np.array(7, np.uint8),
            "d": self.rng.integers(0, 99, (40, 30), dtype=np.int16), "e": np.zeros((0, 2)), "f": self.rng.standard_normal(900),
        }  # fmt: skip
        store = SourceStore(lambda path: Arrays(arrays, {"d": (7, 30)}))
        found = store.find("x://y/contents")
        whole = b"".join(array.tobytes() for array in arrays.values())
        self.assertEqual(found.bytes, len(whole))
        rng = random.Random(SEED)
        for _ in range(500):
            begin, end = sorted(rng.choices(range(len(whole) + 1), k=2))
            out = bytearray(end - begin)
            store.read("x://y/contents", found, begin, memoryview(out))
            self.assertEqual(bytes(out), whole[begin:end], (begin, end, SEED))

    def test_what_a_source_says(self):
        class Failing(Arrays):
            def read(self, name, offset, shape, out):
                raise RuntimeError("the tape is torn")

        with self.assertRaisesRegex(reshard.FileError, "RuntimeError: the tape is torn"):
            reshard.convert(Failing({"w": np.ones(3)}), self.scratch / "a", to="hf")

        class Changing(Arrays):
            def read(self, name, offset, shape, out):
                super().read(name, offset, shape, out)
                self.state = "2"

        with self.assertRaisesRegex((reshard.FileError, reshard.InputError), "written to while it was read|changed"):
            reshard.convert(Changing({"w": np.ones(3)}), self.scratch / "b", to="hf")
        with self.assertRaisesRegex(reshard.InputError, "the name appears twice"):
            twice = Arrays({"w": np.ones(3)})
            tensors = list(twice.tensors()) * 2
            twice.tensors = lambda: tensors
            reshard.inspect(twice)
        with self.assertRaisesRegex(reshard.ReshardError, "sources are read, not written"):
            reshard.convert(Arrays({"w": np.ones(3)}), "numpy:///tmp/nothing", to="hf")
        self.assertFalse((self.scratch / "a").exists() or (self.scratch / "b").exists())

    def test_numpy(self):
        arrays = {
            "c": self.rng.standard_normal((700, 900)),
            "f": np.asfortranarray(self.rng.integers(0, 99, (30, 20), dtype=np.int16)),
            "big": self.rng.standard_normal((4, 5)).astype(">f4"),
            "scalar": np.array(3, np.uint8),
            "empty": np.zeros((3, 0), np.float16),
            "sub/bool": np.array([True, False]),
        }
        wanted = arrays | {"big": arrays["big"].astype("<f4")}
        np.savez(self.scratch / "plain.npz", **arrays)
        np.savez_compressed(self.scratch / "small.npz", **arrays)
        for name in ("plain", "small"):
            self.check_is(self.scratch / f"{name}.npz", wanted)
        for name in ("c", "f", "big", "scalar"):
            np.save(self.scratch / f"{name}.npy", arrays[name])
            self.check_is(self.scratch / f"{name}.npy", {"array": wanted[name]})
        np.savez(self.scratch / "objects.npz", a=np.ones(2), o=np.array([{}], object))
        with self.assertRaisesRegex(reshard.InputError, '"?o"?.*object'):
            reshard.convert(self.scratch / "objects.npz", self.scratch / "x", to="hf")
        self.check_is(self.scratch / "objects.npz", {"a": np.ones(2)}, exclude=["o"])
        done = self.run_command("convert", self.scratch / "plain.npz", self.scratch / "by_command", "--to", "hf", "--verify")
        self.assertEqual(done.returncode, 0, done)
        data = bytearray((self.scratch / "plain.npz").read_bytes())
        (self.scratch / "torn.npz").write_bytes(data[: len(data) // 2])
        with self.assertRaisesRegex(reshard.ReshardError, "torn.npz"):
            reshard.inspect(self.scratch / "torn.npz")

    def test_hdf5(self):
        arrays = {
            "layers/dense/vars/0": self.rng.standard_normal((900, 300), dtype=np.float32),
            "layers/dense/vars/1": self.rng.standard_normal(300),
            "big": self.rng.standard_normal((4, 5)).astype(">f8"),
            "scalar": np.array(3, np.int32),
        }
        with h5py.File(self.scratch / "m.h5", "w") as file:
            file.create_dataset("layers/dense/vars/0", data=arrays["layers/dense/vars/0"], chunks=(100, 70), compression="gzip")
            for name in ("layers/dense/vars/1", "big", "scalar"):
                file[name] = arrays[name]
            file["null"] = h5py.Empty("f4")
        wanted = arrays | {"big": arrays["big"].astype("<f8")}
        self.check_is(self.scratch / "m.h5", wanted)
        with zipfile.ZipFile(self.scratch / "m.keras", "w") as archive:
            archive.writestr("config.json", "{}")
            archive.write(self.scratch / "m.h5", "model.weights.h5")
        self.check_is(self.scratch / "m.keras", wanted)
        with h5py.File(self.scratch / "linked.h5", "w") as file:
            file["own"] = np.ones(3)
            file["other"] = h5py.ExternalLink("m.h5", "/big")
        self.check_is(self.scratch / "linked.h5", {"own": np.ones(3)})
        with h5py.File(self.scratch / "external.h5", "w") as file:
            file.create_dataset("e", (4,), "u1", external=[("/etc/passwd", 0, 4)])
        with self.assertRaisesRegex(reshard.FileError, "data set e lies in other files"):
            reshard.inspect(self.scratch / "external.h5")
        with h5py.File(self.scratch / "text.h5", "w") as file:
            file["t"], file["a"] = "hello", np.ones(2)
        with self.assertRaisesRegex(reshard.InputError, '"?t"?.*object'):
            reshard.convert(self.scratch / "text.h5", self.scratch / "x", to="hf")

    def write_gguf(self, path, tensors):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_name("tiny")
        for name, (array, kind) in tensors.items():
            writer.add_tensor(name, array, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def test_gguf(self):
        kinds = gguf.GGMLQuantizationType
        arrays = {
            "token_embd.weight": self.rng.standard_normal((640, 96), dtype=np.float32),
            "blk.0.ffn.weight": self.rng.standard_normal((32, 64)).astype(np.float16),
            "norm": self.rng.standard_normal(64).astype(ml_dtypes.bfloat16),
        }
        plain = {name: (array, None) for name, array in arrays.items() if name != "norm"}
        plain["norm"] = (arrays["norm"].view(np.uint8), kinds.BF16)
        self.write_gguf(self.scratch / "m.gguf", plain)
        notes = self.check_is(self.scratch / "m.gguf", arrays)
        self.assertEqual((notes["general.architecture"], notes["general.name"]), ("llama", "tiny"))
        packed = gguf.quants.quantize(self.rng.standard_normal((8, 64), dtype=np.float32), kinds.Q8_0)
        self.write_gguf(self.scratch / "q.gguf", plain | {"packed": (packed, kinds.Q8_0)})
        with self.assertRaisesRegex(reshard.InputError, "packed.*Q8_0"):
            reshard.convert(self.scratch / "q.gguf", self.scratch / "x", to="hf")
        listed = reshard.inspect(self.scratch / "q.gguf").tensors["packed"]
        self.assertEqual((listed["dtype"], listed["shape"]), ("Q8_0", [8, 64]))
        self.check_is(self.scratch / "q.gguf", arrays, exclude=["packed"])
        for number, name in enumerate(plain, 1):
            self.write_gguf(self.scratch / f"s-{number:05}-of-00003.gguf", {name: plain[name]})
        self.check_is(self.scratch / "s-00002-of-00003.gguf", arrays)
        (self.scratch / "s-00003-of-00003.gguf").unlink()
        with self.assertRaisesRegex(reshard.FileError, "one of 3 parts; missing: s-00003-of-00003.gguf"):
            reshard.inspect(self.scratch / "s-00002-of-00003.gguf")

    def test_orbax(self):
        for form in ("ocdbt", "plain", "zarr3"):
            notes = self.check_is(FIXTURES / f"orbax_{form}", OF_ORBAX)
            self.assertEqual(notes["name"], "hello")
        steps = FIXTURES / "orbax_steps"
        of_step = {name: array for name, array in OF_ORBAX.items() if name.startswith("params")} | {"step": OF_ORBAX["step"]}
        notes = self.check_is(steps / "3", of_step)
        self.assertEqual(json.loads(notes["extra"]), {"a": 1})
        self.check_is(steps / "3/state", of_step)
        with self.assertRaisesRegex(reshard.InputError, 'has in "3" a checkpoint of Orbax; name that directory'):
            reshard.inspect(steps)
        done = self.run_command("convert", FIXTURES / "orbax_ocdbt", self.scratch / "hf", "--to", "hf", "--include", "params.*",
                                "--strip-prefix", "params.decoder.", "--verify")  # fmt: skip
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(sorted(stored(self.scratch / "hf")[0]), ["layers.mlp.wi.kernel", "norm.scale"])
        shutil.copytree(steps / "3", self.scratch / "two")
        shutil.copytree(steps / "3/state", self.scratch / "two/other")
        with self.assertRaisesRegex(reshard.FileError, "several items with arrays .other, state."):
            reshard.inspect(self.scratch / "two")

    def test_orbax_in_a_bucket(self):
        stores = pathlib.Path(sys.prefix).parent / "stores"  # tools/setup.sh makes both; this one has obstore and moto
        if not stores.is_dir():
            self.skipTest(f"there is no {stores}")
        sys.path += [str(pathlib.Path(__file__).parent.parent / "stores"), *map(str, stores.glob("lib/python*/site-packages"))]
        import boto3
        import servers

        for server in servers.s3(stores):
            self.addCleanup(server.close)
        bucket = boto3.resource("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).Bucket("bucket")
        bucket.create()
        for path in FIXTURES.rglob("*"):
            if path.is_file():
                bucket.upload_file(str(path), f"runs/{path.relative_to(FIXTURES)}")
        for form in ("ocdbt", "plain", "zarr3"):
            reshard.convert(f"s3://bucket/runs/orbax_{form}", self.scratch / form, to="safetensors")
            arrays, notes = stored(self.scratch / form)
            self.assertEqual({name: array.tobytes() for name, array in arrays.items()},
                             {name: array.tobytes() for name, array in OF_ORBAX.items()})  # fmt: skip
            self.assertEqual(notes["name"], "hello")
        reshard.convert("s3://bucket/runs/orbax_steps/3", "s3://bucket/out", mesh="{a:2}", layout="[<a>, ...]", include="params.*")
        self.assertTrue(reshard.verify("s3://bucket/runs/orbax_steps/3", "s3://bucket/out", include="params.*"))
        with self.assertRaisesRegex(ValueError, "az://runs/3: Orbax and Zarr are read from directories, s3:// and gs://"):
            OrbaxSource("az://runs/3")

    def test_a_server_that_never_answers(self):
        program = f"import sys; sys.path.insert(0, {PACKAGES!r}); from reshard.sources.orbax import OrbaxSource as s; s('s3://bucket/run')"
        with socket.create_server(("127.0.0.1", 0)) as server:
            environment = os.environ | {
                "AWS_ENDPOINT_URL": "http://127.0.0.1:%d" % server.getsockname()[1], "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "RESHARD_HTTPS_TIMEOUT_S": "1",
            }  # fmt: skip
            done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=240)
        self.assertIn("TimeoutError: no answer within 4 s: try again, or set RESHARD_HTTPS_TIMEOUT_S", done.stderr)

    def test_zarr(self):
        import tensorstore as ts

        array = self.rng.standard_normal((90, 40), dtype=np.float32)
        for driver, name in (("zarr", "v2"), ("zarr3", "v3")):
            group = self.scratch / name
            for at in ("a/b", "c"):
                spec = {"driver": driver, "kvstore": f"file://{group}/{at}/"}
                ts.open(spec, dtype=ts.float32, shape=array.shape, create=True).result().write(array).result()
            (group / (".zgroup" if driver == "zarr" else "zarr.json")).write_text(
                json.dumps({"zarr_format": 2} if driver == "zarr" else {"zarr_format": 3, "node_type": "group"})
            )
            self.check_is(group, {"a/b": array, "c": array})

    def test_memory(self):
        program = f"""
import sys; sys.path.insert(0, {PACKAGES!r})
import reshard
class Large:
    def tensors(self):
        for i in range(4): yield reshard.SourceTensor(str(i), "f32", (8192, 8192), (8192, 512) if i % 2 else None)
    def read(self, name, offset, shape, out): out[:1] = b"x"
    def notes(self): return {{}}
    def version(self): return ""
    def close(self): pass
def peak(): return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) << 10
before = peak()
reshard.convert(Large(), sys.argv[1], to="safetensors", memory_limit="300MiB", threads=2)
print(peak() - before)
"""
        done = subprocess.run([sys.executable, "-c", program, self.scratch / "out"], capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done)
        self.assertLessEqual(int(done.stdout), 300 << 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
