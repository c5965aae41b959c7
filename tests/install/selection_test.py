#!/usr/bin/env python3
"""The tests that tools/test.sh selects without a flag find every program that they run, although it builds few.

usage: selection_test.py ROOT BUILD

For each label of the selection, what the target test_LABEL builds is all that the label's tests may name of BUILD/bin; a
test that is given the whole folder could run anything there. The rule is first shown to fire.
"""
import json
import os
import re
import subprocess
import sys


def selection(root):
    """The labels that tools/test.sh runs without a flag."""
    with open(os.path.join(root, "tools/test.sh"), encoding="utf-8") as script:
        return re.search(r"^  only=([\w,]+)$", script.read(), re.MULTILINE).group(1).split(",")


def not_built(words, programs, built):
    """What of the folder `programs` a test's words name and `built`, a set of paths, does not have."""
    for word in words:
        for path in re.findall(re.escape(programs) + r"[\w./-]*", word):
            if path.rstrip("/") == programs or path not in built:
                yield path


def main():
    root, build = (os.path.realpath(path) for path in sys.argv[1:])
    programs = os.path.join(build, "bin")
    one = os.path.join(programs, "one")
    assert list(not_built([f"BIN={programs}"], programs, {one})) == [programs]
    assert list(not_built([one, programs + "/two"], programs, {one})) == [programs + "/two"]

    labels = selection(root)
    built = {}
    for label in labels:
        commands = subprocess.run(["ninja", "-C", build, "-t", "commands", f"test_{label}"], check=True, capture_output=True, text=True)
        built[label] = {os.path.join(build, path) for path in re.findall(r" -o (bin/\S+)", commands.stdout)}
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    faults, tests = [], 0
    for test in json.loads(listed.stdout)["tests"]:
        properties = {one["name"]: one["value"] for one in test.get("properties", [])}
        for label in set(properties.get("LABELS", [])) & set(labels):
            tests += 1
            words = [*test.get("command", []), *properties.get("ENVIRONMENT", [])]
            faults += [f"{test['name']}: tools/test.sh does not build {path}" for path in not_built(words, programs, built[label])]
    print("\n".join(faults))
    print(f"{tests} tests of {', '.join(labels)}, {len(faults)} that lack a program")
    return 1 if faults or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
