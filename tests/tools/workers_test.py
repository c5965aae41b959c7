#!/usr/bin/env python3
"""`reshard checkpoint` by several processes at once: started in any order, killed, missing, started twice or too late.
Also with more files than a process may open.

usage: workers_test.py COMMAND SOURCE_DIR
"""

import json
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND, FIXTURES = sys.argv[1], pathlib.Path(sys.argv[2]) / "tests/checkpoint/fixtures"
SEED = int(os.environ.get("RESHARD_TEST_SEED") or random.SystemRandom().randrange(1 << 30))
TO_DCP = ("--mesh", "{a:2,b:3}", "--layout", "[<b>, ...]", "--threads", "1")
TO_SAFETENSORS = ("--format", "safetensors", "--file-size", "3MiB", "--threads", "1")


def write_safetensors(path, sizes, rng):
    """A file of f32 tensors with random bits."""
    header, at = {}, 0
    for i, (rows, columns) in enumerate(sizes):
        header[f"w{i}"] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [at, at + 4 * rows * columns]}
        at += 4 * rows * columns
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rng.randbytes(at))


class Workers:
    """Processes that do one job."""

    def __init__(self, folder, arguments, workers, timeout_ms=20000):
        self.folder, self.arguments, self.workers = folder, arguments, workers
        self.environment = os.environ | {"RESHARD_TIMEOUT_MS": str(timeout_ms)}
        self.started = []

    def start(self, worker, *more, of=None):
        out = tempfile.TemporaryFile("w+", dir=self.folder)
        err = tempfile.TemporaryFile("w+", dir=self.folder)
        child = subprocess.Popen(
            [COMMAND, "checkpoint", *map(str, self.arguments), "--json", "--workers", str(of or self.workers),
             "--worker-id", str(worker), *more],
            env=self.environment, stdout=out, stderr=err,
        )  # fmt: skip
        child.worker, child.out, child.err = worker, out, err
        self.started.append(child)
        return child

    def end(self):
        """(worker, exit code, summary or None, stderr) of every process."""
        ended = []
        for child in self.started:
            child.wait(timeout=120)
            child.out.seek(0)
            child.err.seek(0)
            text = child.out.read()
            ended.append((child.worker, child.returncode, json.loads(text) if text else None, child.err.read()))
            child.out.close()
            child.err.close()
        self.started = []
        return ended


class WorkersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"RESHARD_TEST_SEED={SEED}", flush=True)
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="reshard_workers."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.source = cls.folder / "source"
        cls.source.mkdir()
        write_safetensors(
            cls.source / "model.safetensors", [(300, 512), (7, 3), (1024, 700), (1, 1)] * 6, random.Random(SEED)
        )
        cls.whole = {}
        for name, arguments in (("dcp", TO_DCP), ("safetensors", TO_SAFETENSORS)):
            cls.whole[name] = cls.folder / f"whole_{name}"
            subprocess.run([COMMAND, "checkpoint", cls.source, cls.whole[name], *arguments], check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip

    def setUp(self):
        self.rng = random.Random(SEED)
        self.place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        self.target = self.place / "target"

    def group(self, workers, arguments=TO_DCP, **options):
        return Workers(self.folder, (self.source, self.target, *arguments), workers, **options)

    def assert_whole(self, name="dcp"):
        want = {p.name: p.read_bytes() for p in self.whole[name].iterdir()}
        got = {p.name: p.read_bytes() for p in self.target.iterdir()}
        self.assertEqual(want.keys(), got.keys(), f"seed {SEED}")
        for file, content in want.items():
            self.assertTrue(content == got[file], f"{file} differs, seed {SEED}")
        self.assertEqual(["target"], [p.name for p in self.place.iterdir()], f"seed {SEED}")
        subprocess.run([COMMAND, "verify", self.source, self.target], check=True, stdout=subprocess.DEVNULL)

    def test_any_number_in_any_order(self):
        for name, arguments in (("dcp", TO_DCP), ("safetensors", TO_SAFETENSORS)):
            for workers in (1, 2, 3, 5):
                for delay in (0, 0.1):
                    group = self.group(workers, (*arguments, *(["--verify"] if delay else [])))
                    for worker in self.rng.sample(range(workers), workers):
                        group.start(worker)
                        time.sleep(self.rng.random() * delay)
                    ended = group.end()
                    self.assertEqual({0}, {code for _, code, _, _ in ended}, f"{ended}, seed {SEED}")
                    self.assert_whole(name)
                    summaries = [summary for _, _, summary, _ in ended]
                    self.assertEqual(1, sum(s["committed"] for s in summaries), f"{summaries}, seed {SEED}")
                    self.assertEqual({s["bytes"] for s in summaries}, {sum(s["own_bytes"] for s in summaries)})
                    self.assertEqual({s["pieces"] for s in summaries}, {sum(s["own_pieces"] for s in summaries)})
                    largest = max(s["own_bytes"] for s in summaries)
                    self.assertLess(largest, summaries[0]["bytes"] / workers + 2 * 4 * 1024 * 700)
                    shutil.rmtree(self.target)

    def test_more_workers_than_pieces(self):
        group = Workers(self.folder, (FIXTURES / "single", self.target, "--mesh", "{a:2}", "--layout", "[...]"), 40)
        for worker in self.rng.sample(range(40), 40):
            group.start(worker)
        self.assertEqual({0}, {code for _, code, _, _ in group.end()})
        subprocess.run([COMMAND, "verify", FIXTURES / "single", self.target], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(["target"], [p.name for p in self.place.iterdir()])

    def test_over_something_that_is_there(self):
        self.target.mkdir()
        (self.target / "old").write_text("old")
        group = self.group(2)
        for worker in range(2):
            group.start(worker)
        self.assertEqual({5}, {code for _, code, _, _ in group.end()})
        self.assertEqual(["old"], [p.name for p in self.target.iterdir()])
        self.assertEqual(["target"], [p.name for p in self.place.iterdir()])
        for worker in range(2):
            group.start(worker, "--overwrite")
        self.assertEqual({0}, {code for _, code, _, _ in group.end()})
        self.assert_whole()

    def test_after_the_commit(self):
        group = self.group(2)
        for worker in range(2):
            group.start(worker)
        group.end()
        before = {p.name: p.stat().st_ino for p in self.target.iterdir()}
        for worker, more in ((0, ()), (1, ("--resume",)), (1, ("--overwrite",))):
            group.start(worker, *more)
            ((_, code, summary, _),) = group.end()
            self.assertEqual((0, True, False), (code, summary["was_complete"], summary["committed"]))
        self.assertEqual(before, {p.name: p.stat().st_ino for p in self.target.iterdir()})
        self.assert_whole()

    def test_numbered_by_the_launcher(self):
        plain = {name: value for name, value in os.environ.items() if "RANK" not in name and "SLURM" not in name}
        arguments = [COMMAND, "convert", self.source, self.target, *TO_DCP]

        def says(*more, **variables):
            done = subprocess.run([*arguments, *more, "--dry-run"], env=plain | variables, capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

        slurm = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3"}
        torchrun = {"RANK": "1", "WORLD_SIZE": "3"}
        for variables, more, expected in (
            (slurm, (), "worker 2 of 3 (Slurm)"),
            ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, (), "worker 0 of 4 (Open MPI)"),
            ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (), "worker 1 of 2 (MPI)"),
            (torchrun | {"RESHARD_RUN_AS_MODULE": "1"}, (), "worker 1 of 3 (torchrun)"),
            ({"JOB_COMPLETION_INDEX": "1"}, ("--workers", "2"), "worker 1 of 2 (Kubernetes)"),
            (slurm, ("--workers", "4"), "worker 2 of 4 (Slurm)"),
            (slurm | torchrun, ("--workers", "4"), "worker 1 of 4 (torchrun)"),
            (slurm, ("--workers", "4", "--worker-id", "3"), "worker 3 of 4"),
        ):
            code, said = says(*more, **variables)
            self.assertEqual(0, code, said)
            self.assertIn(expected, said)
        for variables, more in (
            (torchrun, ()),  # a rank of a training job that runs the command
            ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, ()),  # what a batch script inherits
            (slurm, ("--workers", "1")),
            ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, ()),
        ):
            code, said = says(*more, **variables)
            self.assertEqual((0, False), (code, "worker" in said), said)
        for variables, more, expected in (
            ({}, ("--workers", "2"), "--worker-id, from 0 to 1"),
            ({}, ("--worker-id", "1"), "needs --workers"),
            (slurm, ("--workers", "2"), "SLURM_PROCID=2"),
            (slurm | {"SLURM_PROCID": "two"}, (), "not a number"),
            ({}, ("--workers", "0"), "between 1 and 4096"),
        ):
            code, said = says(*more, **variables)
            self.assertEqual(2, code, said)
            self.assertIn(expected, said)
        # Three tasks of srun do one conversion.
        tasks = [subprocess.Popen(arguments, env=plain | slurm | {"SLURM_PROCID": str(task)}, stdout=subprocess.DEVNULL)
                 for task in range(3)]  # fmt: skip
        self.assertEqual([0, 0, 0], [task.wait() for task in tasks])
        self.assert_whole()

    def wait_for(self, what, pattern):
        for _ in range(2000):
            found = list(self.place.glob(f".target.reshard-*/{pattern}"))
            if found:
                return
            time.sleep(0.01)
        self.fail(f"{what} did not come")

    def test_twice_missing_and_otherwise(self):
        group = self.group(3, timeout_ms=1500)
        begin = time.monotonic()
        group.start(0)
        group.start(2)
        self.wait_for("worker 0", "done-0")
        self.wait_for("worker 2", "done-2")
        others = self.group(3, timeout_ms=1500)
        others.start(0)  # twice
        others.start(1, of=2)  # of another number
        others.start(1, "--resume", of=4)
        for worker, code, summary, err in others.end():
            self.assertEqual((5, None), (code, summary), err)
            # Both of the other kind have the number 1, and may meet each other.
            self.assertRegex(err, "another process is doing the same" + ("|running processes have other options" if worker else ""))
        ended = group.end()
        seconds = time.monotonic() - begin
        self.assertEqual([6, 6], [code for _, code, _, _ in ended], ended)
        for _, _, summary, err in ended:
            self.assertIsNone(summary)
            self.assertIn("worker 1 of 3 did not finish", err)
        self.assertGreater(seconds, 1.4)
        self.assertFalse(self.target.exists())
        # The missing one alone ends it: the others have done their share, and write nothing when started again.
        files = list(self.place.glob(".target.reshard-*/data/*"))
        times = [path.stat().st_mtime_ns for path in files]
        group.start(0, "--resume")
        self.assertEqual([6], [code for _, code, _, _ in group.end()])
        self.assertEqual(times, [path.stat().st_mtime_ns for path in files])
        group.start(1, "--resume")
        ((_, code, summary, _),) = group.end()
        self.assertEqual((0, True), (code, summary["committed"]))
        self.assert_whole()

    def test_who_gets_on_is_waited_for(self):
        group = self.group(4, timeout_ms=4000)
        begin = time.monotonic()
        for worker in self.rng.sample(range(4), 4):
            group.start(worker)
            time.sleep(1.8)
        for _, code, _, err in group.end():
            self.assertEqual(0, code, err)
        self.assertGreater(time.monotonic() - begin, 5.4)
        self.assert_whole()

    def test_killed_at_any_time(self):
        for round_ in range(12):
            workers = self.rng.choice((2, 3, 5))
            name, arguments = self.rng.choice((("dcp", TO_DCP), ("safetensors", TO_SAFETENSORS)))
            where = f"round {round_}, seed {SEED}"
            if self.rng.random() < 0.3:
                self.target.mkdir()
                (self.target / "old").write_text("old")
            group = self.group(workers, (*arguments, "--overwrite"), timeout_ms=5000)
            for attempt in range(self.rng.randrange(1, 4)):
                for worker in self.rng.sample(range(workers), workers):
                    group.start(worker, *(["--resume"] if attempt else []))
                for child in self.rng.sample(group.started, self.rng.randrange(1, workers + 1)):
                    time.sleep(self.rng.random() * 0.12)
                    child.send_signal(signal.SIGKILL)
                # The remaining workers would wait for the dead until their stall timeout.
                for child in group.started:
                    child.send_signal(signal.SIGKILL)
                group.end()
            if self.rng.random() < 0.3:
                workers = self.rng.choice((1, 4))  # goes on with another number
            group = self.group(workers, (*arguments, "--overwrite"))
            for worker in self.rng.sample(range(workers), workers):
                group.start(worker, "--resume")
            for _, code, _, err in group.end():
                self.assertEqual(0, code, f"{where}: {err}")
            self.assert_whole(name)
            shutil.rmtree(self.target)

    def test_killed_and_started_again_while_others_wait(self):
        for _ in range(4):
            group = self.group(3)
            started = {worker: group.start(worker) for worker in range(3)}
            for _ in range(4):
                worker = self.rng.randrange(3)
                time.sleep(self.rng.random() * 0.08)
                started[worker].send_signal(signal.SIGKILL)
                started[worker].wait()
                started[worker] = group.start(worker, "--resume")
            for _, code, _, err in group.end():
                self.assertIn(code, (0, -signal.SIGKILL), f"seed {SEED}: {err}")
            self.assert_whole()
            shutil.rmtree(self.target)

    def test_source_written_between_runs(self):
        source = self.place / "source"
        shutil.copytree(self.source, source)
        file = source / "model.safetensors"
        group = Workers(self.folder, (source, self.target, *TO_DCP), 2, timeout_ms=300)
        group.start(0)
        ((_, code, _, _),) = group.end()
        self.assertEqual(6, code)
        # The same size and header, other contents, in the same file.
        with file.open("r+b") as opened:
            opened.seek(1 << 20)
            opened.write(self.rng.randbytes(1 << 20))
        for workers in (2, 1):
            group = Workers(self.folder, (source, self.target, *TO_DCP), workers)
            for worker in range(workers):
                group.start(worker, "--resume")
            for _, code, summary, err in group.end():
                self.assertEqual((0, 0), (code, summary["kept_bytes"]), err)
            subprocess.run([COMMAND, "verify", source, self.target], check=True, stdout=subprocess.DEVNULL)
            self.assertEqual({"source", "target"}, {p.name for p in self.place.iterdir()})
            shutil.rmtree(self.target)
        # A result of the source as it was is not complete.
        group.start(0)
        group.end()
        os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
        group.start(0, "--resume")
        ((_, code, _, err),) = group.end()
        self.assertEqual(5, code, err)
        group.start(0, "--resume", "--overwrite")
        ((_, code, summary, err),) = group.end()
        self.assertEqual((0, False), (code, summary["was_complete"]), err)

    def test_more_files_than_may_be_open(self):
        arguments = ("--mesh", "{a:300}", "--layout", "[<a>, ...]")
        limit = (290, 290)

        def start(*more):
            return subprocess.Popen(
                [COMMAND, "checkpoint", self.source, self.target, *arguments, *more], stdout=subprocess.DEVNULL,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
            )  # fmt: skip

        for _ in range(30):  # on a fast machine one may end before it is killed
            child = start()
            while child.poll() is None and not list(self.place.glob(".target.reshard-*/data/__299_0.distcp")):
                time.sleep(0.002)
            time.sleep(self.rng.random() * 0.1)
            child.send_signal(signal.SIGKILL)
            if child.wait(timeout=120) != 0:
                break
            shutil.rmtree(self.target)
        self.assertEqual(-signal.SIGKILL, child.returncode)
        self.assertEqual(0, start("--resume").wait(timeout=120))
        self.assertEqual(300, len(list(self.target.glob("*.distcp"))))
        subprocess.run([COMMAND, "verify", self.source, self.target], check=True, stdout=subprocess.DEVNULL)

    def test_refused_flags(self):
        for arguments in (("0", "0"), ("5000", "0"), ("2", "2"), ("2", "-1"), ("two", "1")):
            done = subprocess.run(
                [COMMAND, "checkpoint", self.source, self.target, *TO_DCP, "--workers", arguments[0], "--worker-id",
                 arguments[1]], capture_output=True, check=False,
            )  # fmt: skip
            self.assertEqual((2, b""), (done.returncode, done.stdout), done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
