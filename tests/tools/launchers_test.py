#!/usr/bin/env python3
"""Conversions by several workers under real launchers, of which one is killed at a random moment: the same command then continues.

usage: launchers_test.py COMMAND PACKAGES [TORCHRUN]

mpirun where it is installed, srun where a Slurm with three nodes answers, and torchrun. RESHARD_TEST_KILLS=N kills N times under
each, by default twice.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND, PACKAGES, *TORCHRUN = sys.argv[1:]
SEED = int(os.environ.get("RESHARD_TEST_SEED") or random.SystemRandom().randrange(1 << 30))
KILLS = int(os.environ.get("RESHARD_TEST_KILLS") or 2)
TENSORS, BYTES = 96, 2 << 20


def has_slurm():
    try:
        nodes = subprocess.run(["sinfo", "--noheader", "--format=%D"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return nodes.returncode == 0 and sum(map(int, nodes.stdout.split())) >= 3


LAUNCHERS = {}
if shutil.which("mpirun.openmpi"):
    LAUNCHERS["mpirun"] = (["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "3", COMMAND], "Open MPI")
if has_slurm():
    LAUNCHERS["srun"] = (["srun", "--nodes=3", "--ntasks=3", "--kill-on-bad-exit=1", COMMAND], "Slurm")
if TORCHRUN:
    LAUNCHERS["torchrun"] = ([TORCHRUN[0], "--standalone", "--nproc-per-node=3", "-m", "reshard"], "torchrun")


def write_checkpoint(path, seed):
    rng = random.Random(seed)
    header = {f"w{i}": {"dtype": "U8", "shape": [BYTES], "data_offsets": [i * BYTES, (i + 1) * BYTES]} for i in range(TENSORS)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(TENSORS):
            file.write(rng.randbytes(BYTES))


def workers_into(destination):
    """The ids of the processes that convert into it, without those that have launched them."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0") if entry.name.isdigit() else []
        except OSError:
            continue
        program = os.path.basename(words[0]) if words else ""
        is_worker = program == "reshard" or (program.startswith("python") and words[2:4] == ["-m", "reshard"])
        if is_worker and str(destination) in words:
            found.append(int(entry.name))
    return found


class LaunchersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.source = cls.folder / "source.safetensors"
        write_checkpoint(cls.source, SEED)

    def start(self, words, destination):
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        environment |= {"PYTHONPATH": PACKAGES, "OMP_NUM_THREADS": "1"}
        environment["PATH"] = os.path.dirname(COMMAND) + os.pathsep + os.environ["PATH"]
        flags = ["--mesh", "{dp:4}", "--layout", "[<dp>]", "--threads", "1", "--resume"]
        return subprocess.Popen(
            [*words, "convert", str(self.source), str(destination), *flags], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @unittest.skipUnless(LAUNCHERS, "neither mpirun nor srun nor torchrun")
    def test_one_is_killed(self):
        rng = random.Random(SEED)
        for name, (words, said) in LAUNCHERS.items():
            begin = time.monotonic()
            whole = self.start(words, self.folder / "whole")
            printed = whole.communicate(timeout=120)[0]
            self.assertEqual(whole.returncode, 0, printed)
            for worker in range(3):
                self.assertIn(f"worker {worker} of 3 ({said})", printed)
            took = time.monotonic() - begin
            shutil.rmtree(self.folder / "whole")
            killed = 0
            for number in range(KILLS):
                destination = self.folder / f"{name}.{number}"
                run = self.start(words, destination)
                moment = time.monotonic() + took * rng.random()
                while run.poll() is None and (time.monotonic() < moment or not workers_into(destination)):
                    time.sleep(0.005)
                victims = workers_into(destination)
                if victims:
                    try:
                        os.kill(rng.choice(victims), signal.SIGKILL)
                        killed += 1
                    except ProcessLookupError:
                        pass  # it had just ended
                run.communicate(timeout=120)
                again = self.start(words, destination)
                printed = again.communicate(timeout=120)[0]
                self.assertEqual(again.returncode, 0, (name, SEED, printed))
                compared = subprocess.run([COMMAND, "verify", self.source, destination], capture_output=True, text=True, check=False)
                self.assertEqual(compared.returncode, 0, (name, SEED, compared))
                shutil.rmtree(destination)
                self.assertEqual([path.name for path in self.folder.iterdir()], [self.source.name], (name, SEED))
            print(f"{name}: a conversion of {took:.1f} s, {killed} of {KILLS} runs with a worker killed, seed {SEED}", flush=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
