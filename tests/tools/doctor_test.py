#!/usr/bin/env python3
"""What `reshard doctor` and `reshard --version` tell of a machine.

usage: doctor_test.py COMMAND SOURCE_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

import jsonschema

from command import Command


def findings(told):
    return {finding["subject"]: finding for section in told["sections"] for finding in section["findings"]}


def told_about(reshard, path, **environment):
    done = subprocess.run([reshard.path, "doctor", "--json", path], capture_output=True, text=True, timeout=120, check=True,
                          env={**os.environ, **environment})
    return findings(json.loads(done.stdout))


def here(reshard, schema):
    with tempfile.TemporaryDirectory() as folder:
        told = reshard.json("doctor", "--json", folder)
        jsonschema.validate(told, schema)
        found = findings(told)
        assert found["cores"]["detail"].startswith(f"{len(os.sched_getaffinity(0))} usable"), found["cores"]
        for feature in ("durable files", "exchange of names", "locks"):
            assert found[feature]["state"] == "there", found[feature]
        assert all(("remedy" in finding) == (finding["state"] == "missing") for finding in found.values()), found
        assert os.listdir(folder) == []
        text = reshard("doctor", folder)
        for subject, finding in found.items():
            assert subject in text and finding.get("remedy", "") in text, subject


def pythons(reshard):
    with tempfile.TemporaryDirectory() as folder:
        nobody = {"PATH": "/nowhere", "VIRTUAL_ENV": ""}
        assert told_about(reshard, folder, **nobody)["PyTorch"]["state"] == "missing"
        packages = f"{folder}/env/lib/python3.12/site-packages"
        os.makedirs(f"{packages}/torch-9.8.7+cu130.dist-info")
        os.makedirs(f"{packages}/reshard-0.1.0.dist-info")
        found = told_about(reshard, folder, PATH="/nowhere", VIRTUAL_ENV=f"{folder}/env")
        assert found["PyTorch"]["detail"] == f"9.8.7+cu130, in {packages}", found["PyTorch"]
        assert found["import reshard"]["detail"] == "0.1.0, without its part for PyTorch", found["import reshard"]
        os.makedirs(f"{folder}/env/bin")
        with open(f"{folder}/env/bin/python3", "w", encoding="utf-8") as file:
            file.write("never run")
        found = told_about(reshard, folder, PATH=f"{folder}/env/bin", VIRTUAL_ENV="")
        assert found["PyTorch"]["state"] == "there"


def libraries(reshard):
    with tempfile.TemporaryDirectory() as folder:
        found = told_about(reshard, folder, RESHARD_NCCL_LIBRARY=f"{folder}/none.so", PATH="/nowhere", VIRTUAL_ENV="")
        assert found["NCCL"]["state"] == "missing" and "none.so" in found["NCCL"]["detail"], found["NCCL"]
        found = told_about(reshard, folder, SSL_CERT_FILE=f"{folder}/none.pem")
        if found["https"]["state"] == "there":
            assert found["certificates"]["state"] == "missing" and "none.pem" in found["certificates"]["detail"]


def bad_places(reshard):
    assert "there is no directory" in reshard.fails("doctor", "/nowhere/at/all", code=5)
    with tempfile.NamedTemporaryFile() as file:
        assert "there is no directory" in reshard.fails("doctor", file.name, code=5)
    # Where nobody can write, root included, the rest is told all the same.
    found = told_about(reshard, "/proc")
    assert found["durable files"]["state"] == "missing" and "locks" not in found, found


def version(reshard):
    lines = reshard("--version").splitlines()
    assert lines[0].startswith("reshard ") and lines[0].count(".") == 2, lines
    said = dict(line.split(": ", 1) for line in lines[1:])
    assert list(said) == ["commit", "compiler", "GPU kernels", "NCCL", "PyTorch"], lines
    assert said["commit"] == "unknown" or len(said["commit"].rstrip("+")) >= 7, said


if __name__ == "__main__":
    command = Command(sys.argv[1])
    with open(f"{sys.argv[2]}/docs/doctor.schema.json", encoding="utf-8") as schema_file:
        here(command, json.load(schema_file))
    for test in (pythons, libraries, bad_places, version):
        test(command)
        print(test.__name__, "passed")
