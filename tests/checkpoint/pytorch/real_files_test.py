"""Weight files that packages ship: each is listed, converted, compared and fingerprinted, and every tensor is what PyTorch loads.

Run by CTest with a Python that has torch: real_files_test.py RESHARD FOLDER
FOLDER is what tools/real_files.sh has filled; without it nothing is tested.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile

import torch
from safetensors.torch import load_file

COMMAND, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
ENDINGS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")

warnings.filterwarnings("ignore")


def flat(value, name=""):
    """The tensors in nested containers, by the names that a catalog gives them."""
    if isinstance(value, torch.Tensor):
        return {name: value}
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, (list, tuple)):
        members = enumerate(value)
    else:
        return {}
    return {k: v for key, member in members for k, v in flat(member, f"{name}.{key}" if name else str(key)).items()}


def loaded(file):
    """What PyTorch, or safetensors, finds in a file. Nothing in it is run, so far as PyTorch can without."""
    if file.suffix == ".safetensors":
        return load_file(file)
    try:
        return flat(torch.load(file, map_location="cpu", weights_only=True))
    except Exception:  # a TorchScript archive, or values of classes that are not there
        try:
            module = torch.jit.load(file, map_location="cpu")
        except Exception:
            return None
        return dict(module.state_dict())


def run(*words):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False, timeout=300)


def check(file, result):
    """How many tensors of the file are as PyTorch loads them; a text that says why it is refused."""
    listed = run("inspect", file, "--json")
    if listed.returncode != 0:
        return listed.stderr.strip()
    names = [tensor["name"] for tensor in json.loads(listed.stdout)["tensors"]]
    done = run("convert", file, result, "--to", "safetensors", "--drop-byte-items", "--verify")
    if done.returncode != 0:
        return done.stderr.strip()
    ours = load_file(result / "model.safetensors")
    assert sorted(ours) == sorted(names), file
    theirs = loaded(file)
    if theirs is None:
        print(f"{file.name}: {len(ours)} tensors, which PyTorch does not load without running what is in the file")
    else:
        missing = theirs.keys() - ours.keys()
        assert not missing, (file, missing)
        for name, tensor in theirs.items():
            assert tensor.dtype == ours[name].dtype and tensor.shape == ours[name].shape, (file, name)
            one, other = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (tensor, ours[name]))
            assert torch.equal(one, other), (file, name)
    prints = [run("fingerprint", path, "--drop-byte-items", "--json") for path in (file, result)]
    assert all(one.returncode == 0 for one in prints), prints
    assert json.loads(prints[0].stdout)["fingerprint"] == json.loads(prints[1].stdout)["fingerprint"], file
    return len(ours)


def main():
    if not (FOLDER / "complete").exists():
        print("test skipped: tools/real_files.sh has fetched no files")
        sys.exit(77)
    right, tensors, refused = 0, 0, {}
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        for package in sorted(FOLDER.glob("*.whl")):
            with zipfile.ZipFile(package) as archive:
                for member in archive.namelist():
                    if not member.endswith(ENDINGS):
                        continue
                    archive.extract(member, place)
                    found = check(place / member, place / "result")
                    shutil.rmtree(place / "result", ignore_errors=True)
                    if isinstance(found, int):
                        right, tensors = right + 1, tensors + found
                    else:
                        refused[member] = found
    print(f"{right} files with {tensors} tensors as PyTorch loads them, {len(refused)} refused")
    for member, why in refused.items():
        print(f"  {member}: {why}")
    assert right >= 10 and not refused, "files that are refused"


if __name__ == "__main__":
    main()
