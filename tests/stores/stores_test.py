#!/usr/bin/env python3
"""Checkpoints in object stores: read, written, replaced, resumed; by processes that are killed at each of their requests,
over servers that fail in every way, by several workers.

usage: stores_test.py COMMAND PACKAGES SOURCE_DIR [TEST...]

COMMAND is the command reshard, PACKAGES the folder with the Python package. Processes are killed at every twelfth request,
from a random one on; with RESHARD_TEST_KILLS=N at every one, and N larger conversions at random ones.
"""
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

COMMAND, PACKAGES = sys.argv[1], sys.argv[2]
FIXTURES = pathlib.Path(sys.argv[3]) / "tests/checkpoint/fixtures"
del sys.argv[1:4]
sys.path.insert(0, PACKAGES)
SEED = int(os.environ.get("RESHARD_TEST_SEED") or random.SystemRandom().randrange(1 << 30))
KILLS = int(os.environ.get("RESHARD_TEST_KILLS") or 0)
TO_DCP = ["--mesh", "{dp:4}", "--layout", "[..., <dp>]"]

import numpy as np  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

import servers  # noqa: E402

MOTO, PROXY = servers.s3()

import obstore  # noqa: E402
from obstore.store import from_url  # noqa: E402

import reshard  # noqa: E402
from reshard import stores  # noqa: E402

DIRECT = {"endpoint": f"http://127.0.0.1:{MOTO.port}", "client_options": {"allow_http": True}}


def writes_contents(request):
    return request.method == "PUT" and ".safetensors" in request.path


def model(folder, seed, layers=6, rows=64, columns=96):
    """A Hugging Face model of two files and what lies beside it."""
    rng = np.random.default_rng(seed)
    tensors = {f"model.layers.{i}.w": rng.standard_normal((rows, columns), dtype=np.float32) for i in range(layers)}
    folder.mkdir(parents=True)
    names, index = sorted(tensors), {}
    for part in (0, 1):
        file = f"model-0000{part + 1}-of-00002.safetensors"
        own = names[part::2]
        save_file({name: tensors[name] for name in own}, folder / file, metadata={"format": "pt"})
        index |= {name: file for name in own}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "seed": seed}))
    return folder


class StoresTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp())
        cls.a, cls.b = model(cls.scratch / "a", 1), model(cls.scratch / "b", 2)
        import boto3

        boto3.client("s3", endpoint_url=DIRECT["endpoint"]).create_bucket(Bucket="bucket")
        cls.bucket = from_url("s3://bucket", **DIRECT)
        cls.upload(cls.a, "a")
        cls.upload(cls.b, "b")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)
        PROXY.close()
        MOTO.close()

    def setUp(self):
        PROXY.set()
        self.place = self.id().rsplit(".", 1)[1]  # in the bucket

    @classmethod
    def upload(cls, folder, prefix):
        for path in folder.rglob("*"):
            if path.is_file():
                obstore.put(cls.bucket, f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def names(self, prefix):
        return sorted(one["path"][len(prefix) + 1 :] for page in obstore.list(self.bucket, prefix + "/") for one in page)

    def run_command(self, *arguments, wait=True):
        environment = os.environ | {
            "PYTHONPATH": PACKAGES, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
        }  # fmt: skip
        child = subprocess.Popen([COMMAND, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if not wait:
            return child
        out, err = child.communicate(timeout=240)
        return subprocess.CompletedProcess(arguments, child.returncode, out, err)

    def check_command(self, *arguments):
        done = self.run_command(*arguments)
        self.assertEqual(done.returncode, 0, (arguments, done))
        return done

    def state(self, url):
        """ "a" or "b", as the checkpoint at the URL has the values of one of them, and all of them; "" where there is
        none."""
        for name, folder in (("a", self.a), ("b", self.b)):
            try:
                if reshard.verify(folder, url, side_files=False):
                    return name
            except (reshard.InputError, reshard.FileError):
                return ""
        self.fail(f"{url} is neither of them, seed {SEED}")

    def test_reading(self):
        listed = reshard.inspect("s3://bucket/a/")
        self.assertEqual((len(listed.tensors), listed.format), (6, "safetensors"))
        reshard.convert("s3://bucket/a", self.scratch / "cut", mesh="{dp:4}", layout="[<dp>, ...]")
        self.assertTrue(reshard.verify(self.a, self.scratch / "cut"))
        self.upload(self.scratch / "cut", "cut")
        self.assertTrue(reshard.verify("s3://bucket/cut", self.a))
        self.assertTrue(reshard.verify("s3://bucket/cut/.metadata", self.a, side_files=False))
        file = "s3://bucket/a/model-00001-of-00002.safetensors"
        self.assertEqual(len(reshard.inspect(file).tensors), 6)
        self.assertEqual(reshard.fingerprint("s3://bucket/cut"), reshard.fingerprint(self.a))
        for fixture in ("dcp_nested", "torch_save_plain"):
            if (FIXTURES / fixture).exists():
                self.upload(FIXTURES / fixture, fixture)
                self.assertEqual(reshard.inspect(f"s3://bucket/{fixture}").tensors, reshard.inspect(FIXTURES / fixture).tensors)
        obstore.put(self.bucket, "rules.json", json.dumps({"mesh": "{dp:2}", "layouts": [["*", "[<dp>, ...]"]]}).encode())
        self.check_command("convert", "s3://bucket/a", self.scratch / "by_rules", "--rules", "s3://bucket/rules.json")

    def test_what_is_wrong(self):
        for url, text in (
            ("s3://bucket/nothing", "no such file or directory"),
            ("s3://nobody/x", "404 Not Found"),
            ("nothing://x/y", "fsspec does not know them"),
            ("s3://key:secret@bucket/x", "with a password"),
            ("s3://bucket/a/../b", 'a part "." or ".."'),
        ):
            with self.assertRaises((reshard.FileError, reshard.InputError)) as raised:
                reshard.inspect(url)
            self.assertIn(text, str(raised.exception))
            self.assertNotIn("secret", str(raised.exception))
        without = subprocess.run([COMMAND, "inspect", "s3://bucket/a"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        self.assertEqual(without.returncode, 5, without)
        self.assertIn("pip install", without.stderr)

    def test_writing(self):
        url = f"s3://bucket/{self.place}"
        self.check_command("convert", "s3://bucket/a", f"{url}/dcp", *TO_DCP, "--verify")
        self.assertEqual(self.state(f"{url}/dcp"), "a")
        self.assertEqual(self.names(f"{self.place}/dcp"), [".metadata", "__0_0.distcp", "config.json", "reshard.json"])
        again = self.run_command("convert", "s3://bucket/a", f"{url}/dcp", *TO_DCP)
        self.assertEqual(again.returncode, 5, again)
        self.assertIn("--resume (in Python resume=True) takes for a success", again.stderr)
        self.assertIn("already complete", self.check_command("convert", "s3://bucket/a", f"{url}/dcp", *TO_DCP, "--resume").stdout)
        other = self.run_command("convert", "s3://bucket/b", f"{url}/dcp", *TO_DCP)
        self.assertEqual(other.returncode, 5, other)
        self.assertIn("already exists", other.stderr)
        self.check_command("convert", f"{url}/dcp", f"{url}/hf", "--to", "hf", "--file-size", "60KB", "--verify")
        self.assertEqual(self.state(f"{url}/hf"), "a")
        self.assertIn("model-00003-of-00003.safetensors", self.names(f"{self.place}/hf"))
        # What PyTorch's own reader makes of it is what it makes of the same result in a directory.
        reshard.convert(self.a, self.scratch / "local", mesh="{dp:4}", layout="[..., <dp>]")
        self.assertTrue(reshard.verify(f"{url}/dcp", self.scratch / "local"))

    def test_an_upload_in_parts(self):
        large = model(self.scratch / "large", 3, layers=4, rows=1024, columns=1024)
        url = f"s3://bucket/{self.place}"
        done = self.check_command("convert", large, url, "--to", "hf", "--memory-limit", "200MiB", "--json")
        self.assertTrue(any("partNumber=3" in path for _, path in PROXY.seen))
        self.assertTrue(reshard.verify(url, large))
        self.assertLessEqual(json.loads(done.stdout)["peak_resident_bytes"], 200 << 20)
        small = self.run_command("convert", large, url + "2", "--to", "hf", "--memory-limit", "100MiB")
        self.assertEqual(small.returncode, 3, small)

    def test_replacing(self):
        for number, to in enumerate((TO_DCP, ["--to", "hf"], ["--to", "hf", "--file-size", "60KB"])):
            url = f"s3://bucket/{self.place}/{number}"
            self.check_command("convert", "s3://bucket/a", url, *to)
            self.check_command("convert", "s3://bucket/b", url, *to, "--overwrite")
            self.assertEqual(self.state(url), "b")
            self.check_command("convert", "s3://bucket/a", url, *to, "--overwrite")
            self.assertEqual(self.state(url), "a")
            contents = [name for name in self.names(url.removeprefix("s3://bucket/")) if name.endswith((".distcp", ".safetensors"))]
            self.assertEqual(len(contents), (1, 1, 3)[number], contents)
        other = self.run_command("convert", "s3://bucket/b", url, *TO_DCP, "--overwrite")
        self.assertEqual((other.returncode, self.state(url)), (5, "a"), other)

    def killed(self, arguments, at, after):
        """Runs the command and kills it at its request `at`, a number or a condition, which is passed on before, or never."""
        child = None
        is_meant = at if callable(at) else lambda request: request.number == at

        def kill(request):
            if is_meant(request):
                child.send_signal(signal.SIGKILL)
                return "status", 503
            return None

        PROXY.set(fault=None if after else kill, after=kill if after else None)
        child = self.run_command(*arguments, wait=False)
        child.communicate(timeout=120)
        PROXY.set()
        return child.returncode

    def kills(self, source, arguments, before):
        rng = random.Random(SEED)
        step = 1 if KILLS else 12
        states, at = [], rng.randrange(step) + 1 - step
        while True:
            at += step
            url = f"s3://bucket/{self.place}/{at}"
            if before:
                self.check_command("convert", "s3://bucket/a", url, *arguments)
            command = ["convert", source, url, *arguments, *(["--overwrite"] if before else [])]
            code = self.killed(command, at, after=rng.random() < 0.5)
            states.append(self.state(url))
            self.assertIn(states[-1], ("a", "b") if before else ("", "b"), f"request {at}, seed {SEED}")
            if code == 0:
                break  # it had fewer requests
            again = self.run_command(*command, "--resume")
            self.assertEqual((again.returncode, self.state(url)), (0, "b"), (at, again, SEED))
            left = [name for name in self.names(f"{self.place}/{at}") if ".reshard-" in name]
            self.assertEqual(left, [], (at, SEED))
        print(f"{self.place}: {len(states)} kills, seed {SEED}: {''.join(state or '-' for state in states)}", flush=True)
        self.assertEqual(states[-1], "b")

    def test_killed_at_each_request(self):
        self.kills("s3://bucket/b", ["--to", "hf", "--file-size", "60KB"], before=False)

    def test_killed_at_each_request_while_it_replaces(self):
        self.kills("s3://bucket/b", TO_DCP, before=True)

    def test_orbax(self):
        to, url = ["--to", "orbax", "--file-size", "60KB"], f"s3://bucket/{self.place}/whole"
        self.check_command("convert", "s3://bucket/a", url, *to, "--verify")
        self.assertEqual(self.state(url), "a")
        again = self.run_command("convert", "s3://bucket/b", url, *to, "--overwrite")
        self.assertEqual((again.returncode, self.state(url)), (4, "a"), again)
        self.assertIn("write elsewhere", again.stderr)
        # What readers on buckets wait for comes last.
        puts = [path for method, path in PROXY.seen if method == "PUT" and "/whole/" in path and ".reshard-" not in path]
        self.assertTrue(puts[-1].split("?")[0].endswith("commit_success.txt"), puts)
        self.kills("s3://bucket/b", to, before=False)

    def test_clean(self):
        url = f"s3://bucket/{self.place}"
        written = itertools.count()

        def writes_the_second(request):
            return writes_contents(request) and next(written) > 0

        self.killed(["convert", "s3://bucket/a", url, "--to", "hf", "--file-size", "60KB"], writes_the_second, after=False)
        self.assertTrue(any(".reshard-" in name for name in self.names(self.place)), PROXY.seen)
        self.assertEqual(sum(name.endswith(".safetensors") for name in self.names(self.place)), 1)
        refused = self.run_command("convert", url, f"{url}-again", "--to", "hf")
        self.assertIn("1 of 3 parts are here", refused.stderr)
        self.check_command("convert", "s3://bucket/b", url, *TO_DCP, "--clean")
        self.assertEqual(self.names(self.place), [".metadata", "__0_0.distcp", "config.json", "reshard.json"])

    def test_faults(self):
        def first(matches, what, times=1):
            left = [times]

            def fault(request):
                if not matches(request) or not left[0]:
                    return None
                left[0] -= 1
                return what

            return fault

        def is_read(request):
            return request.method == "GET" and ".safetensors" in request.path

        passing = [
            (is_read, ("status", 500)), (is_read, ("status", 503)), (writes_contents, ("status", 503)), (is_read, ("cut", 1000)),
            (is_read, ("short", 100)), (writes_contents, ("cut", 0)), (lambda request: "list-type" in request.path, ("status", 500)),
            (lambda request: request.method == "GET" and "list-type" in request.path, ("hide", rb"reshard-")),
        ]  # fmt: skip
        for number, (matches, what) in enumerate(passing):
            url = f"s3://bucket/{self.place}/{number}"
            PROXY.set(fault=first(matches, what, times=10**9 if what[0] == "hide" else 2))
            self.check_command("convert", "s3://bucket/b", url, "--to", "hf", "--file-size", "60KB")
            PROXY.set()
            self.assertEqual(self.state(url), "b", what)
        # What does not pass is an error, with nothing half; the same command continues.
        for number, (matches, what, text) in enumerate(
            [
                (is_read, ("status", 403), "403"), (writes_contents, ("status", 403), "403"), (writes_contents, ("status", 400), "400"),
                (lambda request: request.number > 14, ("status", 403), "403"),
            ]
        ):  # fmt: skip
            url = f"s3://bucket/{self.place}/lasting{number}"
            PROXY.set(fault=first(matches, what, times=10**9))
            failed = self.run_command("convert", "s3://bucket/b", url, "--to", "hf", "--file-size", "60KB")
            PROXY.set()
            self.assertEqual(failed.returncode, 5, (what, failed))
            self.assertIn(text, failed.stderr)
            self.assertEqual(self.state(url), "")
            self.check_command("convert", "s3://bucket/b", url, "--to", "hf", "--file-size", "60KB")
            self.assertEqual(self.state(url), "b")

    def test_a_source_that_changes(self):
        changing = f"{self.place}/source"
        self.upload(self.a, changing)

        def change(request):
            if request.method == "PUT" and "00002-of-00003" in request.path:
                self.upload(self.b, changing)

        PROXY.set(fault=change)
        failed = self.run_command("convert", f"s3://bucket/{changing}", f"s3://bucket/{self.place}/to", "--to", "hf", "--file-size", "60KB")
        PROXY.set()
        self.assertEqual(failed.returncode, 4, failed)
        self.assertIn("the source was written to while it was read", failed.stderr)
        self.assertEqual(self.state(f"s3://bucket/{self.place}/to"), "")

    def test_workers(self):
        url = f"s3://bucket/{self.place}"
        arguments = ["convert", "s3://bucket/b", url, "--to", "hf", "--file-size", "30KB", "--workers", "3", "--worker-id"]
        children = [self.run_command(*arguments, str(k), wait=False) for k in range(3)]
        for child in children:
            out, err = child.communicate(timeout=120)
            self.assertEqual(child.returncode, 0, err)
        self.assertEqual(self.state(url), "b")
        self.assertEqual([name for name in self.names(self.place) if ".reshard-" in name], [])

    def test_workers_where_nothing_is_created_only_once(self):
        # As Swift answers.
        PROXY.set(fault=lambda request: ("status", 501) if request.headers.get("if-none-match") else None)
        self.test_workers()
        written = sum(method == "PUT" and ".safetensors" in path for method, path in PROXY.seen)
        objects = len([name for name in self.names(self.place) if name.endswith(".safetensors")])
        print(f"{objects} objects, {written} requests that wrote to one", flush=True)

    def test_a_worker_that_is_killed(self):
        url = f"s3://bucket/{self.place}"
        arguments = ["convert", "s3://bucket/b", url, "--to", "hf", "--file-size", "30KB", "--workers", "3", "--worker-id"]
        self.killed([*arguments, "0"], writes_contents, after=True)
        others = [self.run_command(*arguments, str(k), wait=False) for k in (1, 2)]
        for child in others:
            out, err = child.communicate(timeout=200)
            self.assertEqual(child.returncode, 0, err)
        self.assertEqual(self.state(url), "b")
        # One that comes late finds that there is nothing to do.
        self.assertIn("already complete", self.check_command(*arguments, "0").stdout)

    def test_other_stores(self):
        import fsspec

        memory = fsspec.filesystem("memory")
        memory.put(str(self.a), "/a", recursive=True)
        self.assertEqual(len(reshard.inspect("memory://a").tensors), 6)
        reshard.convert("memory://a", "memory://b", mesh="{dp:4}", layout="[<dp>, ...]", verify=True)
        self.assertTrue(reshard.verify("memory://b", self.a))
        reshard.convert("s3://bucket/b", "memory://b", mesh="{dp:4}", layout="[<dp>, ...]", overwrite=True)
        self.assertTrue(reshard.verify("memory://b", self.b))
        memory.pipe("/rules.json", json.dumps({"mesh": "{tp:8}", "layouts": [["*", "[<tp>, ...]"]]}).encode())
        self.assertEqual(
            str(reshard.plan_model({"w": [64, 64]}, "memory://rules.json", "[...]", mesh="{tp:8}")),
            str(reshard.plan_model({"w": [64, 64]}, "[<tp>, ...]", "[...]", mesh="{tp:8}")),
        )

    def test_chained_urls(self):
        import fsspec

        fsspec.filesystem("memory").put(str(self.a), f"/{self.place}", recursive=True)
        url = f"s3://bucket/{self.place}"
        runs = self.scratch / "runs"
        shutil.copytree(self.a, runs / "step-1")
        archive = shutil.make_archive(str(self.scratch / "runs"), "zip", runs)
        for chained in (f"zip://step-1::file://{archive}", f"simplecache::memory://{self.place}"):
            with self.subTest(chained):
                self.assertTrue(reshard.verify(chained, self.a, side_files=False))
        self.check_command("convert", f"zip://step-1::filecache::file://{archive}", f"{url}/b", "--to", "hf")
        self.assertTrue(reshard.verify(f"{url}/b", self.a))
        fsspec.filesystem("memory").put(str(self.a), f"/{self.place}!", recursive=True)
        self.assertTrue(reshard.verify(f"simplecache::memory://{self.place}!", self.a, side_files=False))
        with self.assertRaisesRegex(reshard.InputError, "write zip://PATH::..., or zip://::... for its root"):
            reshard.inspect(f"zip::file://{archive}")
        with self.assertRaisesRegex(reshard.ReshardError, "results are written to memory:// itself, not through a chain"):
            reshard.convert(self.a, f"simplecache::memory://{self.place}/c", to="hf")

    def test_a_store_of_ones_own(self):
        class Shelf:
            def __init__(self):
                self.objects = {}

            def find(self, url):
                if url not in self.objects:
                    raise stores.StoreError("not_found", f"{url}: nothing")
                return stores.Found(len(self.objects[url]), str(hash(self.objects[url])))

            def find_and_read(self, url, first):
                found = self.find(url)
                first[: min(len(first), found.bytes)] = self.objects[url][: len(first)]
                return found

            def read(self, url, found, at, out):
                out[:] = self.objects[url][at : at + len(out)]

            def list(self, url):
                below = {key[len(url) + 1 :]: value for key, value in self.objects.items() if key.startswith(url + "/")}
                files = [stores.Entry(key, stores.Found(len(value), "")) for key, value in below.items() if "/" not in key]
                if not below:
                    raise stores.StoreError("not_found", url)
                return files + [stores.Entry(folder, None) for folder in {key.split("/")[0] for key in below if "/" in key}]

            def put(self, url, data, create):
                self.objects[url] = bytes(data)
                return self.find(url)

            def begin(self, url, length, memory):
                parts = []

                class Upload:
                    def write(upload, data):
                        parts.append(bytes(data))

                    def finish(upload):
                        return self.put(url, b"".join(parts), False)

                    def give_up(upload):
                        pass

                return Upload()

            def remove(self, url):
                self.objects.pop(url, None)

        reshard.stores.register("shelf", Shelf())
        reshard.convert(self.a, "shelf://books/a", to="hf")
        self.assertTrue(reshard.verify("shelf://books/a", self.a))
        broken = Shelf()
        broken.find = lambda url: 1 / 0
        stores.register("shelf", broken)
        with self.assertRaisesRegex(reshard.ReshardError, "ZeroDivisionError in a store"):
            reshard.inspect("shelf://books/a")
        stores.register("shelf", None)

    @unittest.skipUnless(KILLS, "RESHARD_TEST_KILLS is not set")
    def test_random_kills(self):
        large = model(self.scratch / "for_kills", 3, layers=40, rows=256, columns=256)
        self.upload(large, "for_kills")
        rng = random.Random(SEED)
        arguments = ["--to", "hf", "--file-size", "300KB"]
        self.check_command("convert", "s3://bucket/for_kills", f"s3://bucket/{self.place}/whole", *arguments)
        requests = PROXY.count
        total = 0
        for number in range(KILLS):
            url = f"s3://bucket/{self.place}/{number}"
            command = ["convert", "s3://bucket/for_kills", url, *arguments]
            for _ in range(3):
                code = self.killed(command, rng.randrange(1, requests), after=rng.random() < 0.5)
                if code == 0:
                    break  # it had fewer requests than that
                self.assertEqual(code, -signal.SIGKILL, SEED)
                total += 1
                try:  # parts of a model are not taken for one, and without a part nothing is there
                    whole = reshard.verify(large, url, side_files=False)
                except (reshard.InputError, reshard.FileError):
                    continue
                self.assertTrue(whole, SEED)
                break
            self.check_command(*command, "--resume")
            self.assertTrue(reshard.verify(large, url, side_files=False), SEED)
        print(f"{KILLS} conversions of {requests} requests killed {total} times, seed {SEED}", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
