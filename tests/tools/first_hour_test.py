#!/usr/bin/env python3
"""What a newcomer types in the first hour: accepted where it is plain what was meant, or answered with what to type.

usage: first_hour_test.py COMMAND SOURCE_DIR
"""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from command import Command


def plan_words(reshard):
    exact = reshard("plan", "{dp:8,tp:8}", "[<dp>4096,16384]", "[4096,<tp>16384]", "--dtype", "bf16")
    for dtype in ("bfloat16", "BF16", "torch.bfloat16"):
        assert exact == reshard("plan", "{dp=8,tp=8}", "[<dp>4096,16384]", "[4096,<tp>16384]", "--dtype", dtype)
    assert "{dp:8,tp:8}" in exact, exact  # the canonical form
    rule = ["plan", "{dp:8,tp:8}", "[<dp>, *]", "[*, <tp>]", "--shape"]
    shapes = {reshard(*rule, shape) for shape in ("4096,16384", "4096x16384", "(4096, 16384)", "[4096, 16384]")}
    assert len(shapes) == 1, shapes
    for names in ("fp8", "float8_e4m3fn", "F8_E4M3"):
        assert "f8e4m3fn" in reshard("plan", "{x:2}", "[<x>8]", "[8]", "--dtype", names, "--json")
    said = reshard("plan", "{x:2}", "[<x>8]", "[8]", "--dtype", "float33", code=2, stream="err")
    assert "bool, i8" in said and "f4e2m1x2" in said, said


def notations(reshard):
    said = reshard("plan", "{dp:8,tp:8}", "P('dp','tp')", "P('tp','dp')", code=4, stream="err")
    assert "jax notation" in said and "give the shape" in said, said
    said = reshard("plan", "{dp:8,tp:8}", "[<dp>64, 64]", "Shard(0)", code=4, stream="err")
    assert "dtensor notation" in said and "give the shape" in said, said
    said = reshard("show", "{dp:8,tp:8}", "P('dp','tp')", code=4, stream="err")
    assert "give the shape" in said, said
    words = ["plan", "{dp:8,tp:8}", "P('dp','tp')", "P('tp','dp')", "--shape", "64x64"]
    assert reshard(*words) == reshard(*words, "--format", "jax") == reshard(*words, "--from-format", "jax", "--to-format", "jax")
    assert reshard("show", "{dp:8,tp:8}", "P('dp','tp')", "--shape", "64x64", "--from-format", "jax")


def domains(reshard):
    words = ["[<dp>64, 64]", "[64, <tp>64]", "--topology", "dgx-h100"]
    assert "15 devices = 1 of 8 and 1 of 7" in reshard("plan", "{dp:5,tp:3}", *words)
    assert "tp stays inside; dp crosses them" in reshard("plan", "{dp:8,tp:8}", *words)
    assert "tp stays inside; dp crosses them" in reshard("plan", "{dp:8,tp:8}", *words, "--explain")
    assert "dp stays inside; tp crosses them" in reshard("plan", "{tp:8,dp:8}", *words)
    assert "domains of 4" in reshard("plan", "{dp:8,tp:8}", *words, "--nodes", "16x4")
    assert "are 32 devices" in reshard("plan", "{dp:8,tp:8}", *words, "--nodes", "4x8", code=2, stream="err")
    assert "has 1 level" in reshard("plan", "{x:2}", "[<x>8]", "[8]", "--nodes", "1x2", code=2, stream="err")
    assert "domains" not in reshard("plan", "{dp:8,tp:8}", *words[:2])


def memory(reshard):
    said = reshard("plan", "{x:8}", "[<x>4096,4096]", "[4096,<x>4096]", "--memory-limit", "1MiB", code=3, stream="err")
    assert "(1 MiB)" in said and "MiB) are needed" in said, said


def conversions(reshard, source):
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "out")
        rows = ["--mesh", "{x:2}", "--layout", "[<x>, ...]"]
        assert "equal" in reshard("convert", source, target, *rows, "--verify")
        verified = json.loads(reshard("convert", source, target + "2", *rows, "--verify", "--json"))
        assert verified["verified"] is True, verified
        assert json.loads(reshard("convert", source, target + "3", *rows, "--json"))["verified"] is False
        said = reshard("convert", source, target + "4", *rows, "--to", "safetensors", code=2, stream="err")
        assert "have them whole" in said, said


def interruption(command, reshard):
    """A conversion that is told to end says how to go on, and what it left is named until --clean."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "big.safetensors"), os.path.join(folder, "out")
        size = 6 << 30  # a hole: nothing is on the disk
        header = json.dumps({"w": {"dtype": "F32", "shape": [size >> 12, 1024], "data_offsets": [0, size]}}).encode()
        with open(source, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + size)
        def staged():
            """When the journal was last written, and its size."""
            for path in glob.glob(f"{folder}/.out.reshard-*/journal-0"):
                try:
                    facts = os.stat(path)
                    return facts.st_mtime_ns, facts.st_size
                except FileNotFoundError:  # it was thrown away meanwhile
                    pass
            return 0, 0

        def interrupted(*more):
            """What it says when it is told to end after it has written something."""
            before = staged()
            process = subprocess.Popen([command, "convert", source, target, "--mesh", "{x:2}", "--layout", "[<x>, ...]", *more],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            # A run that begins anew has a shorter journal at first.
            while staged()[0] <= before[0] or staged()[1] <= (0 if "--restart" in more else before[1]):
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            assert process.returncode == -signal.SIGINT, process.returncode
            assert "The same command continues" in said and "--restart" in said, said
            assert not os.path.exists(target)
            return said

        assert "continuing" not in interrupted()
        assert "continuing the interrupted run in" in interrupted()
        assert "continuing" not in interrupted("--restart")

        small = os.path.join(folder, "small.safetensors")
        header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
        with open(small, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + bytes(16))
        flags = ["--mesh", "{x:2}", "--layout", "[<x>, ...]"]
        said = reshard("convert", small, target, *flags, stream="err")
        assert "has left" in said and ".out.reshard-" in said, said
        said = reshard("convert", small, target, *flags, "--overwrite", "--clean", stream="err")
        assert "removed what 1 interrupted" in said, said
        assert sorted(os.listdir(folder)) == ["big.safetensors", "out", "small.safetensors"]


def main():
    command, root = sys.argv[1:3]
    run = Command(command)

    def reshard(*words, code=0, stream="out"):
        if stream == "out":
            return run(*words, code=code)
        done = subprocess.run([command, *words], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == code, (words, done)
        return done.stderr

    plan_words(reshard)
    notations(reshard)
    domains(reshard)
    memory(reshard)
    conversions(reshard, os.path.join(root, "tests/checkpoint/fixtures/single"))
    interruption(command, reshard)


if __name__ == "__main__":
    main()
