#!/usr/bin/env python3
"""The folders of the library as rooms: which may include which, and that a name means one thing.

usage: rooms_test.py ROOT [--compiler CXX FLAG...]

 - A room includes only rooms that stand before it in ROOMS, so that no two include each other, at any depth. A public
   header belongs to the room that implements it.
 - A class, struct or enum has one definition; two of one name in one namespace are undefined behaviour that no linker
   reports.
 - What a private header declares is in the namespace of its folder.
 - No Python modules of the package import each other in a circle, also not inside functions or for types alone.
 - An include guard is the path of its file, a room has at most 25 files, a file at most 500 lines.
 - With --compiler: every public header compiles alone. A source that includes a header before anything else shows that
   too, and tools/tidy.sh parses each source alone; the compiler is asked about the other headers.

Each rule is first shown to fire on a small tree that breaks it.
"""
import ast
import collections
import concurrent.futures
import graphlib
import os
import re
import subprocess
import sys
import tempfile

# From the bottom up.
ROOMS = """
    status layout layout/notation json page
    check/plan_text check
    planner/plan planner/digits planner/transfers planner/cost planner/candidates/sequence planner/candidates planner/choice
    planner/batch planner/relabel planner/simulate planner/report planner/page
    runtime/host runtime/program runtime/fingerprint runtime/execute runtime/packed runtime/shared runtime/peers runtime/local runtime/self_test runtime/mpi runtime/cuda runtime/nccl runtime/groups runtime/pytorch
    checkpoint/https checkpoint/stores checkpoint/io checkpoint/hash checkpoint/tasks checkpoint/catalog checkpoint/recipe checkpoint/views checkpoint/model
    checkpoint/formats/pickle checkpoint/formats/zip
    checkpoint/formats/safetensors checkpoint/formats/torch_save checkpoint/formats/dcp checkpoint/formats/listing checkpoint/formats/orbax checkpoint/formats/deepspeed checkpoint/formats/megatron checkpoint/formats checkpoint/source checkpoint/output checkpoint/into_store
    checkpoint/auxiliary_files checkpoint/verify checkpoint/fingerprint checkpoint/convert checkpoint/report checkpoint/live checkpoint/pytorch
    tools/reshard tools/reshard/checkpoint tools/reshard/run tools/reshard/mpi tools/reshard/help tools/reshard/doctor python/core
""".split()
# Public headers (below include/reshard) whose room is not the folder of the same name.
PUBLIC = {
    "check/finding.h": "check/plan_text",
    "layout/notation.h": "layout/notation",
    "planner/batch.h": "planner/batch",
    "planner/calibrate.h": "planner/plan",
    "planner/chunks.h": "planner/plan",
    "planner/html.h": "planner/page",
    "planner/option_text.h": "planner/plan",
    "planner/plan.h": "planner/plan",
    "planner/planner.h": "planner/choice",
    "planner/problem.h": "planner/plan",
    "planner/problem_text.h": "planner/plan",
    "planner/relabel.h": "planner/relabel",
    "planner/report.h": "planner/report",
    "planner/simulate.h": "planner/simulate",
    "planner/topology.h": "planner/plan",
    "planner/traffic.h": "planner/transfers",
    "planner/units.h": "planner/plan",
    "planner/environment.h": "planner/plan",
    "planner/version.h": "planner/plan",
    "runtime/communicator.h": "runtime/execute",
    "runtime/executor.h": "runtime/execute",
    "runtime/fingerprint.h": "runtime/fingerprint",
    "runtime/local_world.h": "runtime/local",
    "runtime/peer_options.h": "runtime/peers",
    "runtime/program.h": "runtime/program",
    "runtime/recent_operations.h": "runtime/execute",
    "runtime/redistributor.h": "runtime/execute",
    "runtime/rendezvous_store.h": "runtime/execute",
    "runtime/signature.h": "runtime/program",
    "runtime/strided_copy.h": "runtime/host",
    "runtime/tensor_view.h": "runtime/host",
    "runtime/verify_run.h": "runtime/self_test",
    "mpi/mpi_communicator.h": "runtime/mpi",
    "nccl/gpus.h": "runtime/nccl",
    "nccl/nccl_api.h": "runtime/nccl",
    "nccl/nccl_communicator.h": "runtime/nccl",
    "torch/bound_batch.h": "runtime/pytorch",
    "torch/c10d_communicator.h": "runtime/groups",
    "torch/redistribute.h": "runtime/pytorch",
    "torch/sequence_parallel.h": "runtime/pytorch",
    "torch/topology.h": "runtime/pytorch",
    "checkpoint/catalog.h": "checkpoint/catalog",
    "checkpoint/convert.h": "checkpoint/convert",
    "checkpoint/describe.h": "checkpoint/catalog",
    "checkpoint/error.h": "checkpoint/io",
    "checkpoint/filesystem.h": "checkpoint/io",
    "checkpoint/https.h": "checkpoint/https",
    "checkpoint/leavings.h": "checkpoint/convert",
    "checkpoint/expression.h": "checkpoint/recipe",
    "checkpoint/model.h": "checkpoint/model",
    "checkpoint/pattern.h": "checkpoint/catalog",
    "checkpoint/progress.h": "checkpoint/tasks",
    "checkpoint/recipe.h": "checkpoint/recipe",
    "checkpoint/recorded_layouts.h": "checkpoint/source",
    "checkpoint/report.h": "checkpoint/report",
    "checkpoint/rules.h": "checkpoint/catalog",
    "checkpoint/selection.h": "checkpoint/catalog",
    "checkpoint/side_files.h": "checkpoint/auxiliary_files",
    "checkpoint/fingerprint.h": "checkpoint/fingerprint",
    "checkpoint/store.h": "checkpoint/stores",
    "checkpoint/store_calls.h": "checkpoint/stores",
    "checkpoint/verify.h": "checkpoint/verify",
    "checkpoint/wrappers.h": "checkpoint/catalog",
    "live/load.h": "checkpoint/live",
    "live/save.h": "checkpoint/live",
    "live/stored_checkpoint.h": "checkpoint/live",
}
MOST_FILES, MOST_LINES = 25, 500
SUFFIXES = (".h", ".cc", ".cu")


def room_of(path):
    if path.startswith("include/reshard/"):
        name = path[len("include/reshard/") :]
        return PUBLIC.get(name, name.split("/")[0])
    return os.path.dirname(path)


def without_text(source):
    """The code with comments, strings, characters and preprocessor lines blanked."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*'
    return re.sub(pattern, lambda m: "\n" * m.group(0).count("\n"), source, flags=re.S | re.M)


def definitions(source):
    """Full names of classes and enums defined at namespace scope, but for hidden ones."""
    scopes, out, statement = [], [], ""
    for part in re.split(r"([{};])", without_text(source)):
        if part == "{":
            if match := re.search(r"\bnamespace\b([\s\w:]*)$", statement):
                scopes.append(("namespace", match.group(1).strip()))
            else:
                match = re.search(r"\b(?:class|struct|union|enum(?: class| struct)?)\s+(?:alignas\([^)]*\)\s+)?(\w+)(?:\s+final)?\s*(?::[^:].*)?$", statement, re.S)
                if match and all(kind == "namespace" and name for kind, name in scopes) and "(" not in statement[: match.start()]:
                    out.append("::".join([name for _, name in scopes] + [match.group(1)]))
                scopes.append(("block", ""))
        elif part == "}":
            scopes.pop()
        statement = "" if part in "{};" else part
    return out


def judge(root):
    files = {}
    for top in sorted({room.split("/")[0] for room in ROOMS} | {"include"}):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    path = os.path.relpath(os.path.join(folder, name), root)
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        files[path] = file.read()
    place = {room: i for i, room in enumerate(ROOMS)}
    members, defined, reasons = collections.Counter(), collections.defaultdict(list), []
    for path, source in files.items():
        room = room_of(path)
        if room not in place:
            reasons.append(f"{path}: no room {room}; rooms, and the rooms of public headers, are listed in tests/install/rooms_test.py")
            continue
        if not path.startswith("include/"):
            members[room] += 1
        for name in re.findall(r'^\s*#\s*include\s*[<"]([^">]+)[">]', source, re.M):
            target = "include/" + name if name.startswith("reshard/") else name
            other = room_of(target)
            if other in place and place[other] > place[room]:
                reasons.append(f"{path}: {room} includes {name} of {other}, which is above it")
        for name in definitions(source):
            defined[name].append(path)
        if source.count("\n") > MOST_LINES:
            reasons.append(f"{path}: {source.count(chr(10))} lines, more than {MOST_LINES}")
        if path.endswith(".h"):
            inner = path[len("include/") :] if path.startswith("include/") else path if path.startswith("reshard/") else "reshard/" + path
            guard = re.sub(r"\W", "_", inner).upper() + "_"
            if f"#ifndef {guard}\n#define {guard}\n" not in source:
                reasons.append(f"{path}: the include guard is not {guard}")
            if not path.startswith(("include/", "tools/")):
                want = "reshard::" + os.path.basename(os.path.dirname(path))
                for space in re.findall(r"^namespace ([\w:]+) \{", source, re.M):
                    if space != want and not space.startswith(want + "::"):
                        reasons.append(f"{path}: namespace {space}, which is not {want}")
    for room, count in members.items():
        if count > MOST_FILES:
            reasons.append(f"{room}: {count} files, more than {MOST_FILES}")
    for name, paths in defined.items():
        if len(paths) > 1:
            reasons.append(f"{name} is defined in {' and in '.join(paths)}")
    return reasons, files


def imports_of(module, path, modules):
    """The modules among `modules` that the file imports anywhere."""
    package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join(above + ([node.module] if node.module else []))
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in modules:
                    yield inner
                elif base in modules and not alias.name.startswith("_"):  # those are compiled modules
                    yield base


def python_circle(root):
    """One circle of imports below python/, as text, or None."""
    paths = {}
    for folder, _, names in os.walk(os.path.join(root, "python")):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                parts = os.path.relpath(path, os.path.join(root, "python"))[:-3].split(os.sep)
                paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {module: set(imports_of(module, path, paths)) - {module} for module, path in paths.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return " <- ".join(error.args[1])
    return None


def included_first(files):
    """The headers that some source includes before anything else, by their paths below include/."""
    firsts = (re.search(r'^\s*#\s*include\s*[<"]([^">]+)[">]', source, re.M) for path, source in files.items() if path.endswith(".cc"))
    return {first.group(1) for first in firsts if first}


def compile_alone(root, compiler, headers):
    def check(path):
        done = subprocess.run([*compiler, "-std=c++20", "-fsyntax-only", "-I", os.path.join(root, "include"), "-x", "c++", os.path.join(root, path)],
                              capture_output=True, text=True)
        return None if done.returncode == 0 else f"{path} does not compile alone:\n{done.stderr[:2000]}"

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [reason for reason in pool.map(check, headers) if reason]


def header(path, text="", namespace=None):
    inner = path[len("include/") :] if path.startswith("include/") else "reshard/" + path
    guard = re.sub(r"\W", "_", inner).upper() + "_"
    namespace = namespace or ("reshard" if path.startswith("include/") else "reshard::" + os.path.basename(os.path.dirname(path)))
    includes = "".join(line + "\n" for line in text.splitlines() if line.startswith("#"))
    body = "".join(line + "\n" for line in text.splitlines() if not line.startswith("#"))
    return f"#ifndef {guard}\n#define {guard}\n{includes}namespace {namespace} {{\n{body}}}\n#endif\n"


def self_test():
    good = {path: header(path, text) for path, text in {
        "include/reshard/layout/layout.h": "class Layout {};",
        "include/reshard/planner/plan.h": '#include "reshard/layout/layout.h"\nstruct Plan { struct Part {}; };',
        "layout/cut.h": "struct Cut { int a; };",
        "planner/digits/digits.h": '#include "reshard/planner/plan.h"\n#include "layout/cut.h"\nclass Cut;\nstruct Digit {};\nint F(struct Digit d);',
        "checkpoint/convert/run.h": "class Run : public Plan { };",
        "planner/transfers/run.h": 'struct Run {\n  const char* text = "class Run {";  // class Run {\n};',
    }.items()}
    good["layout/a.cc"] = "namespace reshard { namespace { struct Hidden {}; } }\n"
    good["layout/b.cc"] = "namespace reshard { namespace { struct Hidden {}; } }\n"
    bad = [
        ("layout/x.cc", '#include "planner/digits/digits.h"\n', "which is above it"),
        ("planner/digits/x.cc", '#include "planner/transfers/run.h"\n', "which is above it"),
        ("planner/digits/x.cc", '#include "reshard/planner/traffic.h"\n', "which is above it"),
        ("planner/new/x.cc", "", "no room planner/new"),
        ("include/reshard/planner/new.h", header("include/reshard/planner/new.h"), "no room planner"),
        ("layout/x.h", header("layout/x.h", "struct Cut {};"), "reshard::layout::Cut is defined in"),
        ("layout/x.h", header("layout/x.h", "enum class Cut : int { kA };"), "reshard::layout::Cut is defined in"),
        ("layout/x.cc", "namespace reshard {\nclass Layout final {};\n}\n", "reshard::Layout is defined in"),
        ("layout/x.h", header("layout/x.h", "struct X {};", "reshard"), "which is not reshard::layout"),
        ("layout/x.h", "#pragma once\n", "the include guard is not RESHARD_LAYOUT_X_H_"),
        ("layout/x.cc", "\n" * 501, "501 lines"),
    ]
    with tempfile.TemporaryDirectory() as root:
        def write(path, text):
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)

        for path, text in good.items():
            write(path, text)
        reasons, _ = judge(root)
        assert not reasons, reasons
        assert included_first({"a.cc": '// A.\n#include "reshard/x.h"\n#include "y.h"\n', "b.h": '#include "z.h"'}) == {"reshard/x.h"}
        for path, text, want in bad:
            write(path, text)
            reasons, _ = judge(root)
            assert len(reasons) == 1 and want in reasons[0], (path, text, want, reasons)
            os.remove(os.path.join(root, path))
        write("python/pack/__init__.py", "def f():\n    from . import low\n")
        write("python/pack/low.py", "from . import _compiled\nfrom .lowest import x\n")
        write("python/pack/lowest.py", "x = 1\n")
        assert python_circle(root) is None
        write("python/pack/lowest.py", "def f():\n    from .low import y\n")
        assert "pack.low <- pack.lowest" in python_circle(root), python_circle(root)
        for i in range(25):
            write(f"layout/{i}.cc", "")
        reasons, _ = judge(root)
        assert len(reasons) == 1 and "layout: 28 files" in reasons[0], reasons
        write("include/reshard/layout/x.h", "std::string f();\n")
        assert compile_alone(root, ["c++"], ["include/reshard/layout/x.h"])
        write("include/reshard/layout/x.h", "#include <string>\nstd::string f();\n")
        assert not compile_alone(root, ["c++"], ["include/reshard/layout/x.h"])
    return len(bad) + 3


def main():
    root, compiler = sys.argv[1], sys.argv[3:]
    shown = self_test()
    reasons, files = judge(root)
    if circle := python_circle(root):
        reasons.append(f"Python modules import each other in a circle: {circle}")
    public = sorted(path for path in files if path.startswith("include/"))
    if compiler:
        torch = any("/torch/include" in flag for flag in compiler)
        public = [path for path in public if torch or not path.startswith("include/reshard/torch/")]
        mpi = any("mpi" in flag for flag in compiler)
        public = [path for path in public if mpi or not path.startswith("include/reshard/mpi/")]
        first = included_first(files)
        first = {name for name in first if not name.startswith("reshard/torch/")}  # tools/tidy.sh has no PyTorch
        reasons += compile_alone(root, compiler, [path for path in public if path.removeprefix("include/") not in first])
    for reason in reasons:
        print(reason)
    print(f"{len(files)} files in {len(ROOMS)} rooms, {len(public)} public headers, {len(reasons)} rules broken; {shown} ways to break one were caught")
    return 1 if reasons or not files else 0


if __name__ == "__main__":
    sys.exit(main())
