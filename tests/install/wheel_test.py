#!/usr/bin/env python3
"""The wheel: built by tools/wheel.sh, installed into a fresh environment, and there it plans and converts what the build
does, and with PyTorch redistributes.

usage: wheel_test.py ROOT RESHARD [--torch PYTHON]      (PYTHON has the PyTorch that the wheel's part is built for)
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile

root, reshard = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
torch_python = os.path.abspath(sys.argv[4]) if sys.argv[3:4] == ["--torch"] else None

MOST_BYTES = 10_000_000

# Two ranks, and a wheel that was built for another PyTorch.
WITH_TORCH = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

def work(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    import reshard
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("X",))
    whole = torch.arange(48.).reshape(6, 8)
    y = reshard.redistribute(distribute_tensor(whole, mesh, [Shard(0)]), mesh, [Shard(1)])
    assert y.placements == (Shard(1),) and torch.equal(y.full_tensor(), whole)
    assert "site-packages" in reshard.torch.__file__, reshard.torch.__file__
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
    print("redistributed")
"""


def run(*command, code=0, **options):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RESHARD"))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    assert done.returncode == code, (command, done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout + done.stderr


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


began = time.monotonic()
said = run(os.path.join(root, "tools/wheel.sh"), *(["--torch"] if torch_python else []), cwd=root)
wheel = max(glob.glob(os.path.join(root, "dist/reshard-*.whl")), key=os.path.getmtime)
size = os.path.getsize(wheel)
print(f"built {os.path.basename(wheel)}, {size / 1e6:.1f} MB, in {time.monotonic() - began:.0f} s")
# As the README says it: of Debian 12, with a Python of the same version wherever the C library is that old.
newest = 35 if torch_python else 34
tag = re.search(r"-manylinux_2_(\d+)_(x86_64|aarch64)\.whl$", wheel)
assert tag, wheel
with open("/etc/os-release") as release:
    if "VERSION_CODENAME=bookworm" in release.read():
        assert int(tag[1]) <= newest, wheel
        # The part for PyTorch may need a newer system, what works without it may not.
        for name in zipfile.ZipFile(wheel).namelist():
            if re.search(r"reshard/_core\..*\.so$", name):
                assert b"GLIBCXX_3.4.30" not in zipfile.ZipFile(wheel).read(name), f"{name} needs manylinux_2_35"
names = zipfile.ZipFile(wheel).namelist()
assert "reshard/py.typed" in names and "reshard/_core.pyi" in names, names
assert not any("__pycache__" in name for name in names), names
if not torch_python:
    assert size < MOST_BYTES, size

with tempfile.TemporaryDirectory() as folder:
    python, command = os.path.join(folder, "env/bin/python"), os.path.join(folder, "env/bin/reshard")
    began = time.monotonic()
    run("/usr/bin/python3", "-m", "venv", os.path.join(folder, "env"))
    made = time.monotonic()
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel)
    installed = time.monotonic()
    plan = run(command, "plan", "{X:4}", "[<X>8, 8]", "[8, <X>8]")
    print(f"from the install line to the first plan {time.monotonic() - made:.1f} s ({made - began:.1f} s for the empty "
          f"environment before), {size} bytes")
    assert "AllToAll" in plan, plan
    assert "GPU kernels: compiled in" in run(command, "--version")
    linked = run("ldd", command)
    assert "libabsl" not in linked, linked
    assert run(command, "--version").splitlines()[0] == run(reshard, "--version").splitlines()[0]

    # Byte by byte what the build answers, and the package what the command does; without PyTorch.
    print(run("python3", os.path.join(root, "tests/golden/many_plans_test.py"), command, root).strip().splitlines()[-1])
    for test in ("planning", "checkpoints"):
        print(run(python, os.path.join(root, f"tests/python/{test}_test.py"), command, cwd=folder).strip().splitlines()[-1])

    if torch_python:
        # An environment that sees that PyTorch, with the wheel in it.
        for packages in glob.glob(os.path.join(folder, "env/lib/python3*/site-packages")):
            with open(os.path.join(packages, "torch.pth"), "w") as file:
                file.write("".join(line + "\n" for line in glob.glob(os.path.join(os.path.dirname(torch_python), "../lib/python3*/site-packages"))))
            built_for = os.path.join(packages, "reshard/torch/libreshard_torch.built-for")
        script = os.path.join(folder, "ranks.py")
        with open(script, "w") as file:
            file.write(WITH_TORCH)
        print(run(python, script, free_port(), cwd=folder).strip().splitlines()[-1])
        with open(built_for, "w") as file:
            file.write("2.8.0+cu126\n")
        refused = run(python, "-c", "import reshard; print(reshard.plan('{X:2}', '[<X>8]', '[8]').bytes); reshard.redistribute()", code=1)
        assert refused.startswith("8\n"), refused
        assert re.search(r"ImportError: .* is built for torch 2\.8\.0\+cu126, this is 2\.11\.0.*; build it for this one: pip install", refused), refused
        print("another PyTorch is refused")
