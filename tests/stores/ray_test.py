#!/usr/bin/env python3
"""Conversions by the workers of a Ray cluster of three nodes, of which one is killed, and of which one loses its worker.

usage: ray_test.py PACKAGES
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

PACKAGES = sys.argv[1]
del sys.argv[1:2]
sys.path.insert(0, PACKAGES)
os.environ["PYTHONPATH"] = PACKAGES  # of the nodes, too
os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112, its name; what else runs here ends no worker
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

import servers  # noqa: E402

MOTO, PROXY = servers.s3()

import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

import reshard  # noqa: E402
import reshard.ray  # noqa: E402


def workers():
    """Process numbers of the workers that convert now."""
    found = subprocess.run(["pgrep", "-f", "^ray::_work"], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import boto3

        boto3.client("s3", endpoint_url=f"http://127.0.0.1:{MOTO.port}").create_bucket(Bucket="bucket")
        cls.scratch = pathlib.Path(tempfile.mkdtemp())
        rng = np.random.default_rng(1)
        save_file({f"layers.{i}.w": rng.standard_normal((64, 128), dtype=np.float32) for i in range(12)}, cls.scratch / "model.safetensors")
        cls.source = str(cls.scratch / "model.safetensors")
        node = {"num_cpus": 1, "object_store_memory": 80_000_000}
        # Nodes as Ray's own tests have them: processes of their own on this machine.
        cls.cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        cls.nodes = [cls.cluster.add_node(**node) for _ in range(2)]
        ray.init(address=cls.cluster.address, logging_level="error", log_to_driver=False)

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()
        cls.cluster.shutdown()
        shutil.rmtree(cls.scratch)
        PROXY.close()
        MOTO.close()

    def setUp(self):
        PROXY.set()
        self.url = f"s3://bucket/{self.id().rsplit('.', 1)[1]}"

    def test_a_directory(self):
        seen = []
        done = reshard.ray.convert(
            self.source, self.scratch / "cut", mesh="{dp:4}", layout="[<dp>, ...]", progress=lambda *told: seen.append(told)
        )
        self.assertTrue(reshard.verify(self.source, self.scratch / "cut"))
        self.assertEqual((done["workers"], done["committed"], seen[-1][:2]), (3, True, (done.bytes, done.bytes)))

    def test_what_is_wrong(self):
        with self.assertRaisesRegex(reshard.FileError, "no such file"):
            reshard.ray.convert(self.scratch / "nothing", self.url, to="hf")
        with self.assertRaisesRegex(reshard.InputError, "4 workers need 8 CPUs"):
            reshard.ray.convert(self.source, self.url, workers=4, options={"num_cpus": 2}, to="hf")
        with self.assertRaisesRegex(reshard.InputError, "have their numbers from here"):
            reshard.ray.convert(self.source, self.url, worker=1, to="hf")
        with self.assertRaises(ZeroDivisionError):
            reshard.ray.convert(self.source, self.url, to="hf", progress=lambda *told: 1 / 0)

    def convert_while(self, happens):
        """A conversion into the bucket, and what happens once at one of its uploads."""
        once = threading.Lock()

        def fault(request):
            if request.method == "PUT" and ".safetensors" in request.path and once.acquire(blocking=False):
                happens()

        PROXY.set(fault=fault)
        done = reshard.ray.convert(self.source, self.url, to="hf", file_size=40_000, progress=lambda *told: None)
        self.assertFalse(once.acquire(blocking=False), "it has not happened")
        self.assertTrue(done["committed"] or done["was_complete"], done)
        self.assertTrue(reshard.verify(self.source, self.url))

    def test_a_worker_that_is_killed(self):
        self.convert_while(lambda: os.kill(workers()[0], signal.SIGKILL))

    def test_the_node_that_is_killed(self):  # last: there is one less
        self.convert_while(lambda: self.cluster.remove_node(self.nodes[0], allow_graceful=False))


if __name__ == "__main__":
    unittest.main(verbosity=2)
