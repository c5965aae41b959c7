#!/usr/bin/env python3
"""Servers that do not speak S3, by fsspec: an emulator of Google Cloud Storage (gcsfs), and sshd where there is one (sftp).

usage: other_servers_test.py PACKAGES [TEST...]

PACKAGES is the folder with the Python package.
"""
import getpass
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

PACKAGES = sys.argv[1]
del sys.argv[1]
sys.path.insert(0, PACKAGES)

import numpy as np  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

import reshard  # noqa: E402
from reshard.stores import by_fsspec  # noqa: E402
from servers import answers, free_port  # noqa: E402


def descendants(pid):
    """The processes that a process has started, and those that they have."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return children + [one for child in children for one in descendants(child)]


class OtherServersTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.scratch)

    def start(self, port, *command):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(os.killpg, process.pid, signal.SIGKILL)
        answers(port, process)
        return process

    def model(self, seed):
        rng = np.random.default_rng(seed)
        folder = self.scratch / f"model-{seed}"
        folder.mkdir()
        save_file({f"layers.{i}.w": rng.standard_normal((64, 96), dtype=np.float32) for i in range(6)}, folder / "model.safetensors")
        return folder

    def check_round_trip(self, url):
        """Written, read, compared, refused where something is, replaced, and taken to a disk."""
        one, two = self.model(1), self.model(2)
        reshard.convert(one, f"{url}/dcp", mesh="{dp:4}", layout="[..., <dp>]", verify=True)
        self.assertEqual(len(reshard.inspect(f"{url}/dcp").tensors), 6)
        self.assertTrue(reshard.verify(one, f"{url}/dcp"))
        with self.assertRaises(reshard.ExistingFileError):
            reshard.convert(two, f"{url}/dcp", mesh="{dp:4}", layout="[..., <dp>]")
        reshard.convert(two, f"{url}/dcp", mesh="{dp:4}", layout="[..., <dp>]", overwrite=True)
        self.assertFalse(reshard.verify(one, f"{url}/dcp"))
        reshard.convert(f"{url}/dcp", f"{url}/hf", to="hf")
        reshard.convert(f"{url}/hf", self.scratch / "back", to="safetensors")
        self.assertTrue(reshard.verify(two, self.scratch / "back"))
        with self.assertRaisesRegex(reshard.MissingFileError, f"{url}/nothing"):
            reshard.inspect(f"{url}/nothing")

    def test_google_cloud_storage(self):
        port = free_port()
        emulator = pathlib.Path(sys.executable).parent / "gcp-storage-emulator"
        self.start(port, emulator, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=bucket")
        os.environ |= {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "GOOGLE_CLOUD_PROJECT": "tests", "NO_GCE_CHECK": "true"}
        logging.getLogger("gcsfs").setLevel(logging.ERROR)  # that it finds no credentials
        self.check_round_trip("gcs://bucket/runs")  # gs:// is obstore's, which does not speak what the emulator does

    def test_sftp(self):
        sshd, keygen = shutil.which("sshd", path="/usr/sbin"), shutil.which("ssh-keygen")
        if not (sshd and keygen):
            self.skipTest("there is no sshd and ssh-keygen")
        for name in ("host", "own"):
            subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", self.scratch / name], check=True)
        port = free_port()
        (self.scratch / "config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {self.scratch}/host\nAuthorizedKeysFile {self.scratch}/own.pub\n"
            "StrictModes no\nPermitRootLogin yes\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n"
        )
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # where sshd wants to be able to lock itself in
        server = self.start(port, sshd, "-D", "-f", self.scratch / "config")
        # paramiko looks for keys where OpenSSH's client does.
        (self.scratch / ".ssh").mkdir()
        shutil.copy(self.scratch / "own", self.scratch / ".ssh/id_ed25519")
        os.environ["HOME"] = str(self.scratch)
        by_fsspec._MOST_SILENT = 3
        url = f"sftp://{getpass.getuser()}@127.0.0.1:{port}{self.scratch}/runs"
        self.check_round_trip(url)
        self.assertEqual(list(self.scratch.glob("runs/*/.*reshard*")), [])
        stopped = [int(pid) for pid in descendants(server.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        with self.assertRaisesRegex(reshard.FileError, "the server did not answer in time"):
            reshard.inspect(f"{url}/dcp")
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(len(reshard.inspect(f"{url}/dcp").tensors), 6)  # over another connection


if __name__ == "__main__":
    unittest.main(verbosity=2)
