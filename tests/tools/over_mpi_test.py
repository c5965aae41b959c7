#!/usr/bin/env python3
"""`reshard run --over mpi` between the processes of an MPI program: right elements, the columns of nccl-tests, and errors
that all processes have said by one.

usage: over_mpi_test.py COMMAND SOURCE_DIR MPIRUN
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

RESHARD, SOURCE_DIR, MPIRUN = sys.argv[1:4]
ROWS_TO_COLUMNS = ["{X:4}", "[<X>64, 96]", "[64, <X>96]"]


def run(processes, *arguments, code=0, program=RESHARD, environment={}):
    """stdout and stderr of a program of so many processes."""
    done = subprocess.run([MPIRUN, "-n", str(processes), program, "run", *arguments, "--over", "mpi"], capture_output=True,
                          text=True, timeout=120, check=False, env=os.environ | environment)
    assert done.returncode == code, f"{done.returncode} instead of {code}: {arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout, [line for line in done.stderr.splitlines() if line.startswith("reshard:")]


def columns():
    out, said = run(4, *ROWS_TO_COLUMNS, "--dtype", "bf16", "--repeat", "3")
    assert not said, said
    lines = out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["#", "size"])
    assert lines[head].split()[1:] == ["size", "count", "type", "time", "algbw", "busbw", "#wrong"], lines
    size, count, dtype, time, algbw, busbw, wrong = lines[head + 2].split()
    elements = 64 * 96 // 4
    assert (int(size), int(count), dtype, wrong) == (2 * elements, elements, "bf16", "0"), lines
    assert float(time) > 0 and float(busbw) <= float(algbw), lines
    assert "agreement included" in out and f"verified: {2 * 2 * 64 * 96} elements checked, all correct" in out, out
    out, _ = run(4, *ROWS_TO_COLUMNS, "--no-verify", environment={"RESHARD_AGREEMENT": "off"})
    assert "agreement off" in out and "not verified" in out and out.splitlines()[head + 2].split()[-1] == "N/A", out


def as_json():
    import jsonschema
    with open(f"{SOURCE_DIR}/docs/run.schema.json", encoding="utf-8") as file:
        schema = json.load(file)
    cases = [(4, ROWS_TO_COLUMNS, 3 / 4),
             (4, ["{A:2,B:2}", "[<A>30, 31] sum<B>", "[<A,B>30, 31]"], None),
             (3, ["{X:2}", "[<X>7, 5]", "[7, 5]"], None),  # a process that holds nothing
             (1, ["{X:1}", "[<X>7, 5]", "[7, 5]"], None)]
    for processes, problem, part in cases:
        out, _ = run(processes, *problem, "--json", "--repeat", "2")
        result = json.loads(out)
        jsonschema.Draft7Validator(schema).validate(result)
        assert result["over"] == "mpi" and result["verified"] and result["processes"] == processes, result
        alone = json.loads(subprocess.run([RESHARD, "run", *problem, "--json", "--repeat", "2"], capture_output=True, check=True).stdout)
        for key in ("ranks", "ops", "bytes_moved", "recv_bytes_max", "recv_bytes_total", "elements_checked", "source", "target"):
            assert result[key] == alone[key], (key, result, alone)
        if part is not None:
            assert abs(result["busbw"] / result["algbw"] - part) < 1e-9, result


def errors():
    # Said once, whoever it is about.
    _, said = run(2, *ROWS_TO_COLUMNS, code=4)
    assert len(said) == 1 and "not one of the 2 ranks" in said[0] and "mpirun -n 4" in said[0], said
    _, said = run(2, "{X:2}", "[<X>64, 96]", "[64, <X>97]", code=4)
    assert len(said) == 1 and "different shapes" in said[0], said
    _, said = run(2, "{X:2}", "[<X>64]", "[64]", "--repeat", "0", code=2)
    assert len(said) == 1 and "--repeat" in said[0], said
    _, said = run(2, "{X:2}", "[<X>64]", "[64]", "--topology", "/nowhere.json", code=5)
    assert len(said) == 1 and "/nowhere.json" in said[0], said
    # One process is told something else.
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/differs"
        with open(program, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ] && set -- run "{{X:2}}" "[<X>64]" "[<X>64]" --over mpi\n'
                       f'exec {RESHARD} "$@"\n')
        os.chmod(program, 0o755)
        done = subprocess.run([MPIRUN, "-n", "2", program, "run", "{X:2}", "[<X>64]", "[64]", "--over", "mpi"], timeout=120,
                              capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if line.startswith("reshard:")]
        assert done.returncode != 0 and len(said) == 1 and "ranks disagree on target" in said[0], done
        # The command alone, without reshard-mpi beside it.
        shutil.copy(RESHARD, folder)
        done = subprocess.run([f"{folder}/reshard", "run", *ROWS_TO_COLUMNS, "--over", "mpi"], capture_output=True, text=True, check=False)
        assert done.returncode == 5 and "requires the program reshard-mpi" in done.stderr and folder in done.stderr, done
    done = subprocess.run([RESHARD, "run", *ROWS_TO_COLUMNS, "--over", "pigeons"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "threads or mpi" in done.stderr, done


def calibration():
    def calibrate(processes, *arguments, code=0):
        size = [] if "--size" in arguments else ["--size", "1MiB"]
        done = subprocess.run([MPIRUN, "-n", str(processes), RESHARD, "calibrate", "--repeat", "3", *size, *arguments],
                              capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done
        return done.stdout, [line for line in done.stderr.splitlines() if line.startswith("reshard:")]

    with tempfile.TemporaryDirectory() as folder:
        for arguments, devices in (((), [None]), (("--nodes", "2x2"), [2, None]), (("--nodes", "4x1"), [None])):
            network = f"{folder}/network.json"
            out, said = calibrate(4, *arguments, "--output", network)
            with open(network, encoding="utf-8") as file:
                topology = json.load(file)
            assert [level.get("devices") for level in topology["levels"]] == devices, topology
            assert json.loads(out.splitlines()[-1]) == topology and "inside nodes" in out or "between nodes" in out, out
            assert said == [f"reshard: wrote {network}; plan with --topology {network}"], said
            subprocess.run([RESHARD, "plan", *ROWS_TO_COLUMNS, "--topology", network], check=True, capture_output=True)
        out, _ = calibrate(2, "--json")
        assert len(json.loads(out)["levels"]) == 1, out
    for processes, arguments, reason in ((4, ["--nodes", "3x2"], "3x2, but the program has 4 processes"), (1, [], "at least two ranks"),
                                         (2, ["--size", "1"], "the size must be")):
        _, said = calibrate(processes, *arguments, code=2)
        assert len(said) == 1 and reason in said[0], said


columns()
as_json()
errors()
calibration()
