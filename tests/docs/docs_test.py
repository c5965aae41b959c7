#!/usr/bin/env python3
"""Every shell block and every Python block of the README, of the pages of docs/ and of the examples does what it says it does.

usage: docs_test.py [--example NAME | --no-examples] ROOT RESHARD [PYTHONPATH [TORCHRUN]]

Blocks that need what is not given are not run. --example: only the page of examples/NAME; --no-examples: all other pages.

The blocks of a page run in order, in one folder of its own that has what a reader has: the command, the examples and,
where the page speaks of them, what examples/toy_checkpoint makes: `step-1000`, and `iter_0000100` as Megatron has it. A block
of `text` after one that ran is what that printed on stdout, `...` being anything. A block with a title, ```python title="order.py", is the contents of that file. A block after
`<!-- not run: REASON -->` is not run, and the reason printed. Those of examples/NAME/README.md run in a copy of that folder.
"""
import argparse
import os
import re
import shutil
import subprocess
import tempfile

parser = argparse.ArgumentParser()
selection = parser.add_mutually_exclusive_group()
selection.add_argument("--example")
selection.add_argument("--no-examples", action="store_true")
parser.add_argument("root", type=os.path.abspath)
parser.add_argument("reshard", type=os.path.abspath)
parser.add_argument("package", type=os.path.abspath, nargs="?")
parser.add_argument("torchrun", type=os.path.abspath, nargs="?")
arguments = parser.parse_args()
root, reshard, package, torchrun = arguments.root, arguments.reshard, arguments.package, arguments.torchrun

# `srun -N 4 COMMAND...` starts them here, side by side.
SRUN = """#!/bin/sh
count=$2; shift 2
for i in $(seq 0 $((count - 1))); do SLURM_STEP_NUM_TASKS=$count SLURM_PROCID=$i "$@" & all="$all $!"; done
for one in $all; do wait "$one" || exit 1; done
"""


def blocks(text):
    """(language, title or None, code, why it is not run or None, the number of its first line)"""
    pattern = r"(?:<!-- not run: ([^\n]*?) -->\n+)?^```(\w*)(?: title=\"([^\"\n]+)\")?\n(.*?)^```$"
    for match in re.finditer(pattern, text, flags=re.S | re.M):
        yield match.group(2), match.group(3), match.group(4), match.group(1), text.count("\n", 0, match.start(4)) + 1


def furnish(folder, text):
    os.makedirs(os.path.join(folder, "bin"))
    os.symlink(reshard, os.path.join(folder, "bin/reshard"))
    if torchrun:
        os.symlink(torchrun, os.path.join(folder, "bin/torchrun"))
    with open(os.path.join(folder, "bin/srun"), "w") as file:
        file.write(SRUN)
    os.chmod(os.path.join(folder, "bin/srun"), 0o755)
    place = os.path.join(folder, "place")
    os.makedirs(place)
    shutil.copytree(os.path.join(root, "examples"), os.path.join(place, "examples"))
    make = [os.path.join(root, "examples/toy_checkpoint/make.py")]
    path = {**os.environ, "PATH": os.path.join(folder, "bin") + ":" + os.environ["PATH"]}
    if "step-1000" in text:
        subprocess.run([*make, os.path.join(place, "step-1000")], check=True, capture_output=True, env=path)
    if "iter_0000100" in text:
        subprocess.run([*make, "--megatron", os.path.join(place, "iter_0000100")], check=True, capture_output=True, env=path)
    return place


def calls_package(code, folder):
    """Whether a shell block runs a script of that folder which imports the package."""
    for name in re.findall(r"[\w./]+\.py\b", code):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                if re.search(r"^import reshard\b", file.read(), flags=re.M):
                    return True
    return False


def run_page(path, environment):
    """Counts of what was done with the blocks of a page, which run where a reader of it would be."""
    inside = os.path.dirname(os.path.relpath(path, root))
    inside = inside if inside.startswith("examples/") else ""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    counts = {"run": 0, "compared": 0, "not": 0}
    with tempfile.TemporaryDirectory() as folder:
        place, printed, ended = None, None, None
        for language, title, code, reason, line in blocks(text):
            where = f"{os.path.relpath(path, root)}:{line}"
            if language == "text" and printed is not None:
                wanted = ".*".join(re.escape(part) for part in code.strip().split("..."))
                assert re.fullmatch(wanted, printed.strip(), flags=re.S), f"{where} says\n{code}\nbut it printed\n{printed}"
                counts["compared"] += 1
            printed = None
            if title or language in ("sh", "python"):
                place = place or furnish(folder, text)
            if title:
                with open(os.path.join(place, title), "w", encoding="utf-8") as file:
                    file.write(code)
            if title or language not in ("sh", "python"):
                continue
            lacking = None
            if package is None and (language == "python" or calls_package(code, os.path.join(place, inside))):
                lacking = "this build has no Python package"
            if re.search(r"^torchrun --", code, flags=re.M) and torchrun is None:
                lacking = lacking or "this build has no part for PyTorch"
            # The blocks of an example are one after the other what is done with it.
            ended = ended or (lacking if inside else None)
            reason = reason or lacking or ended
            if reason:
                counts["not"] += 1
                print(f"{where} is not run: {reason}")
                continue
            command = ["bash", "-euo", "pipefail", "-c", code] if language == "sh" else ["/usr/bin/python3", "-c", code]
            done = subprocess.run(command, cwd=os.path.join(place, inside), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  env={**environment, "PATH": os.path.join(folder, "bin") + ":" + environment["PATH"]})
            assert done.returncode == 0, f"{where} ended with {done.returncode}\n{code}\n{done.stdout[-2000:]}{done.stderr[-8000:]}"
            counts["run"] += 1
            printed = done.stdout
    return counts


def links_of(path):
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", file.read(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target, os.path.normpath(os.path.join(os.path.dirname(path), target))


pages = [os.path.join(root, name) for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
for folder, _, names in os.walk(os.path.join(root, "docs")):
    pages += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".md")]
for name in sorted(os.listdir(os.path.join(root, "examples"))):
    pages.append(os.path.join(root, "examples", name, "README.md"))
    assert os.path.exists(pages[-1]), f"examples/{name} has no README.md"
broken = [f"{os.path.relpath(page, root)}: {target}" for page in pages for target, there in links_of(page) if not os.path.exists(there)]
assert not broken, broken


# The source files that the design pages and CONTRIBUTING name, by the end of their path.
sources = [os.path.relpath(os.path.join(folder, name), root) for place in
           "check checkpoint cmake examples include json layout page planner python runtime status tests tools".split()
           for folder, _, names in os.walk(os.path.join(root, place)) for name in names]
for page in [page for page in pages if os.path.join("docs", "design") in page or page.endswith("CONTRIBUTING.md")]:
    with open(page, encoding="utf-8") as file:
        named = re.findall(r"`([\w./-]+\.(?:cc|h|cu|py|sh))`", file.read())
    gone = sorted({name for name in named if not any(("/" + source).endswith("/" + name) for source in sources)})
    assert not gone, f"{os.path.relpath(page, root)} names files that are gone: {gone}"


def missing(names, *files):
    """Which of the names none of the files of docs/ has."""
    text = "".join(open(os.path.join(root, "docs", file), encoding="utf-8").read() for file in files)
    return [name for name in names if not re.search(rf"(?<![\w/]){re.escape(name)}(?!\w)", text)]


# The reference is complete.
headers = [name for _, _, names in os.walk(os.path.join(root, "include")) for name in names if name.endswith(".h")]
assert not missing(headers, "cpp.md"), missing(headers, "cpp.md")
schemas = [name for name in os.listdir(os.path.join(root, "docs")) if name.endswith(".schema.json")]
assert not missing(schemas, "schemas.md"), missing(schemas, "schemas.md")
with open(os.path.join(root, "planner/plan/topology.cc"), encoding="utf-8") as file:
    presets = [f"`{name}`" for name in re.findall(r"^ {6}\{\"([\w-]+)\", \{\{", file.read(), flags=re.M)]
assert len(presets) > 5 and not missing(presets, "topologies.md"), missing(presets, "topologies.md")
assert not missing(presets, "tasks/my_network.md"), missing(presets, "tasks/my_network.md")
with open(os.path.join(root, "python/reshard/__init__.py"), encoding="utf-8") as file:
    public = re.search(r"^_MODULES = (\{.*?^\})", file.read(), flags=re.S | re.M)
calls = [name for names in eval(public.group(1)).values() for name in names.split()]
assert not missing(calls, "python.md", "pytorch.md"), missing(calls, "python.md", "pytorch.md")
assert os.path.getsize(pages[0]) <= 8000, "the README has more than 8 kB"

# torchrun takes a free port, so that another test's does not meet it.
environment = {**os.environ, "PYTHONPATH": package or "", "PYTHONDONTWRITEBYTECODE": "1", "PET_STANDALONE": "1"}
total = {"run": 0, "compared": 0, "not": 0}
if arguments.example:
    pages = [os.path.join(root, "examples", arguments.example, "README.md")]
elif arguments.no_examples:
    pages = [page for page in pages if not page.startswith(os.path.join(root, "examples", ""))]
for page in pages:
    for key, count in run_page(page, environment).items():
        total[key] += count
print(f"{len(pages)} pages, {total['run']} blocks run, {total['compared']} outputs compared, {total['not']} not run")
