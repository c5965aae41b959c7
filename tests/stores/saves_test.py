#!/usr/bin/env python3
"""Jobs of three processes that save into a bucket: what is there afterwards, when all goes well, when the job is killed at
any of its requests, and when one of its processes is.

usage: saves_test.py PACKAGES TORCH [TEST...]

PACKAGES is the folder with the Python package, TORCH a Python with PyTorch. This one has the stores' packages. Jobs are
killed at every fifteenth request, from a random one on; with RESHARD_TEST_KILLS at every one.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import unittest

PACKAGES, TORCH = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, PACKAGES)
SEED = int(os.environ.get("RESHARD_TEST_SEED") or random.SystemRandom().randrange(1 << 30))
STEP = 1 if os.environ.get("RESHARD_TEST_KILLS") else 15
JOB = pathlib.Path(__file__).with_name("saving_job.py")
RANKS = 3
OLD, NEW = 10, 20  # steps, and seeds of what is saved then

import servers  # noqa: E402

MOTO, PROXY = servers.s3()

import obstore  # noqa: E402
from obstore.store import from_url  # noqa: E402

import reshard  # noqa: E402


class Jobs:
    """A process that starts jobs of three ranks, one after the other."""

    def __init__(self):
        environment = os.environ | {
            "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": sysconfig.get_path("purelib"), "RESHARD_TIMEOUT_MS": "20000",
        }  # fmt: skip
        self.process = subprocess.Popen([TORCH, str(JOB), PACKAGES], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ranks = []

    def run(self, how, url, seed, **environment):
        """How many ranks failed, and what they said."""
        self.begin(how, url, seed, **environment)
        return self.end()

    def begin(self, how, url, seed, **environment):
        print(json.dumps([how, url, seed, environment]), file=self.process.stdin, flush=True)
        self.ranks = json.loads(self.process.stdout.readline())

    def end(self):
        return json.loads(self.process.stdout.readline())

    def kill(self, rank=None):
        for pid in self.ranks if rank is None else [self.ranks[rank]]:
            os.kill(pid, signal.SIGKILL)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


JOBS = Jobs()


class _InABucket(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp())
        import boto3

        direct = {"endpoint": f"http://127.0.0.1:{MOTO.port}", "client_options": {"allow_http": True}}
        boto3.client("s3", endpoint_url=direct["endpoint"]).create_bucket(Bucket="bucket")  # twice does no harm
        cls.bucket = from_url("s3://bucket", **direct)
        for seed in (OLD, NEW):
            cls.check("save", f"{cls.scratch}/{seed}", seed)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def setUp(self):
        PROXY.set()
        self.place = self.id().rsplit(".", 1)[1]

    @staticmethod
    def check(*job, **environment):
        failed, said = JOBS.run(*job, **environment)
        assert failed == 0, said

    def names(self, prefix):
        return sorted(one["path"][len(prefix) + 1 :] for page in obstore.list(self.bucket, prefix + "/") for one in page)

    def state(self, url):
        """The step of the checkpoint that is there, whole; 0 where there is none."""
        for seed in (OLD, NEW):
            try:
                if reshard.verify(f"{self.scratch}/{seed}", url):
                    return seed
            except (reshard.InputError, reshard.FileError):
                return 0
        self.fail(f"{url} is neither of them, seed {SEED}")

    def copy_of(self, prefix):
        folder = self.scratch / "copies" / prefix
        folder.mkdir(parents=True)
        for name in self.names(prefix):
            (folder / name).write_bytes(bytes(obstore.get(self.bucket, f"{prefix}/{name}").bytes()))
        return folder


def tearDownModule():
    JOBS.close()
    PROXY.close()
    MOTO.close()


class SavesTest(_InABucket):
    def saved(self, how):
        url = f"s3://bucket/{self.place}"
        self.check(how, url, OLD)
        self.assertEqual(self.state(url), OLD)
        self.assertEqual(self.names(self.place), [".metadata", *(f"__{rank}_0.distcp" for rank in range(RANKS)), "reshard.json"])
        self.check(how, url, NEW)
        self.assertEqual(self.state(url), NEW)
        self.assertEqual(len(self.names(self.place)), RANKS + 2, self.names(self.place))
        self.check("load", url, NEW, COPY_OF_IT=str(self.copy_of(self.place)))

    def test_save(self):
        self.saved("save")

    def test_save_async(self):
        self.saved("save_async")

    def test_writer(self):
        self.saved("writer")


class KilledTest(_InABucket):
    def killed(self, how, url, at, rank, after):
        """Saves, and kills the job or one rank of it at its request `at`, before that is passed on or after."""
        def kill(request):
            if request.number == at:
                started.wait()
                JOBS.kill(rank)

        started = threading.Event()
        PROXY.set(fault=None if after else kill, after=kill if after else None)
        JOBS.begin(how, url, NEW)
        started.set()
        failed, said = JOBS.end()
        PROXY.set()
        return failed, said

    def kills(self, how, before, of_rank):
        rng = random.Random(SEED)
        states, at = [], rng.randrange(STEP) + 1 - STEP
        while True:
            at += STEP
            url = f"s3://bucket/{self.place}/{how}{int(before)}/{at}"
            if before:
                self.check(how, url, OLD)
            failed, said = self.killed(how, url, at, rng.randrange(RANKS) if of_rank else None, rng.random() < 0.5)
            states.append(self.state(url))
            self.assertIn(states[-1], (OLD if before else 0, NEW), f"request {at}, seed {SEED}\n{said}")
            if failed == 0:
                break
            self.check(how, url, NEW)
            self.assertEqual((self.state(url), len(self.names(url.removeprefix("s3://bucket/")))), (NEW, RANKS + 2), f"request {at}, seed {SEED}")
        print(f"{self.place}: {how}, {len(states)} kills, seed {SEED}: {states}", flush=True)
        self.assertEqual(states[-1], NEW)

    def test_killed_jobs(self):
        self.kills("save", before=False, of_rank=False)
        self.kills("save", before=True, of_rank=False)
        self.kills("writer", before=True, of_rank=False)

    def test_a_killed_rank(self):
        self.kills("save", before=True, of_rank=True)
        self.kills("writer", before=True, of_rank=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
