#!/usr/bin/env python3
"""The borders between the modules, as #include lines and as links; and where text becomes types.

    layout <- json <- check, planner, checkpoint;   page <- check, planner;   layout <- planner <- runtime <- cuda <- nccl <- torch;   runtime <- mpi;   checkpoint -> layout, planner, runtime;   live -> checkpoint, runtime;
    torch -> live;   tools, python -> everything public;   python -> tools, the command itself

usage: borders_test.py ROOT [--links TARGET=LIB,LIB...]...

Each rule is first shown to fire on a small tree that breaks it, so that a rule that never fires cannot pass for a border
that holds.
"""
import os
import re
import sys
import tempfile

# Module -> the modules it may include. A file belongs to the module with the longest matching folder.
FOLDERS = {
    "include/reshard/layout": "layout",
    "layout": "layout",
    "status": "layout",
    "json": "json",
    "page": "page",
    "include/reshard/check": "check",
    "check": "check",
    "include/reshard/planner": "planner",
    "planner": "planner",
    "include/reshard/runtime": "runtime",
    "runtime": "runtime",
    "runtime/cuda": "cuda",
    "include/reshard/nccl": "nccl",
    "runtime/nccl": "nccl",
    "include/reshard/mpi": "mpi",
    "runtime/mpi": "mpi",
    "include/reshard/torch": "torch",
    "runtime/groups": "torch",
    "runtime/pytorch": "torch",
    "checkpoint/pytorch": "torch",
    "include/reshard/checkpoint": "checkpoint",
    "checkpoint": "checkpoint",
    "include/reshard/live": "live",
    "checkpoint/live": "live",
    "tools": "tools",
    "tools/reshard/mpi": "ranks of mpi",
    "python": "python",
    "tests": "tests",
    "examples": "examples",
}
ALLOWED = {
    "layout": {"layout"},
    "json": {"json", "layout"},
    "page": {"page"},
    "check": {"check", "json", "page", "layout"},
    "planner": {"planner", "json", "page", "layout"},
    "runtime": {"runtime", "planner", "layout"},
    "cuda": {"cuda", "runtime", "planner", "layout"},
    "nccl": {"nccl", "cuda", "runtime", "planner", "layout"},
    "mpi": {"mpi", "runtime", "planner", "layout"},
    "torch": {"torch", "nccl", "cuda", "live", "checkpoint", "runtime", "planner", "json", "layout"},
    "checkpoint": {"checkpoint", "runtime", "planner", "json", "layout"},
    "live": {"live", "checkpoint", "runtime", "planner", "layout"},
    "tools": {"tools", "json", "layout", "check", "planner", "runtime", "nccl", "checkpoint", "live"},
    "ranks of mpi": {"ranks of mpi", "tools", "mpi", "layout", "planner", "runtime"},
    "python": {"python", "layout", "check", "planner", "checkpoint", "tools"},
}
LINKS = {
    "reshard_layout": set(),
    "reshard_json": {"reshard_layout"},
    "reshard_page": set(),
    "reshard_check": {"reshard_layout", "reshard_json", "reshard_page"},
    "reshard_planner": {"reshard_layout", "reshard_json", "reshard_page"},
    "reshard_runtime": {"reshard_layout", "reshard_planner"},
    "reshard_cuda": {"reshard_layout", "reshard_planner", "reshard_runtime"},
    "reshard_nccl": {"reshard_layout", "reshard_planner", "reshard_runtime", "reshard_cuda"},
    "reshard_mpi": {"reshard_layout", "reshard_planner", "reshard_runtime"},
    "reshard_torch": {"reshard_layout", "reshard_json", "reshard_planner", "reshard_runtime", "reshard_live", "reshard_cuda", "reshard_nccl"},
    "reshard_checkpoint": {"reshard_layout", "reshard_planner", "reshard_json", "reshard_runtime"},
    "reshard_live": {"reshard_layout", "reshard_planner", "reshard_runtime", "reshard_checkpoint"},
    "reshard_command": {"reshard_layout", "reshard_json", "reshard_check", "reshard_planner", "reshard_runtime", "reshard_cuda", "reshard_nccl", "reshard_checkpoint"},
    "reshard_core": {"reshard_layout", "reshard_planner", "reshard_check", "reshard_checkpoint", "reshard_command"},
    "nanobind-static": set(),
    "reshard_precompiled": set(),
    "reshard_precompiled_O1": set(),
    "test_oracle": set(),
}
# Where the text of a mesh or a layout enters the runtime and the checkpoint part. Below them everything is typed.
TEXT_ENTERS = {
    "checkpoint/catalog/rules.cc",  # --to's rules
    "runtime/pytorch/layout_texts.cc",  # arguments of the dispatcher's operators
    "runtime/pytorch/planning.cc",  # queries from Python
}
PARSES = re.compile(r"\b(Parse(?:Layout|Mesh|Problem)|ImportLayout)\(")
HEAVY = re.compile(r"^(nlohmann/|CLI/|cuda|cupti|nccl|torch/|c10/|ATen/|catch2/|rapidcheck)")
TORCH = re.compile(r"^(torch/|c10/|ATen/)")
MPI = re.compile(r"^mpi\.h$")
INCLUDE = re.compile(r"^\s*#\s*(?:include|include_next|import)\b\s*(.*)$")
SUFFIXES = (".h", ".hpp", ".cc", ".cpp", ".cu", ".cuh", ".inc")
SKIPPED = {"build", ".git", "__pycache__", ".venv"}


def module_of(path):
    """The module that the file at `path` (relative to the root) belongs to, or None for the world outside."""
    best = ""
    for folder in FOLDERS:
        if path.startswith(folder + "/") and len(folder) > len(best):
            best = folder
    return FOLDERS.get(best)


def resolve(root, path, name):
    """The file of this tree, relative to its root, that `#include "name"` in the file at `path` means; or None."""
    for candidate in (os.path.join(os.path.dirname(path), name), name, "include/" + name):
        candidate = os.path.normpath(candidate)
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    # Not there (a generated file, or a mistake): its name still says where it would be.
    if name.startswith("reshard/"):
        return "include/" + name
    return name if module_of(name) else None


def judge(root, path, text):
    """Yields a reason for every #include of one file that crosses a border."""
    module = module_of(path)
    public = path.startswith("include/")
    oracle = path.startswith("tests/oracle/") and not path.endswith("_test.cc")
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        where = f"{path}:{number}: "
        name = re.match(r"""[<"]([^>"]+)[>"]""", match.group(1))
        if not name:
            yield where + "an #include that is not a plain name cannot be checked"
            continue
        name = name.group(1)
        target = resolve(root, path, name)
        other = module_of(target) if target else None
        if other and module in ALLOWED and other not in ALLOWED[module]:
            yield where + f"{module} must not include {other} ({name})"
        elif public and target and not target.startswith("include/"):
            yield where + f"a public header includes a private one ({name})"
        elif module in ("tools", "ranks of mpi") and target and not target.startswith(("include/", "tools/", "json/")):
            yield where + f"a tool includes a private header ({name})"
        elif oracle and not (target or name).startswith("tests/oracle/") and (target or "/" in name or "." in name):
            yield where + f"the oracle includes more than itself and the standard library ({name})"
        if TORCH.match(name):
            if module not in ("torch", "tests", "examples"):
                yield where + f"LibTorch outside the module torch ({name})"
        elif MPI.match(name):
            if module not in ("mpi", "ranks of mpi", "tests", "examples"):
                yield where + f"MPI outside the module mpi ({name})"
        elif HEAVY.match(name):
            if public:
                yield where + f"a public header includes {name}"
            elif name.startswith("nlohmann/") and not path.endswith((".cc", ".cpp")):
                yield where + f"nlohmann outside a .cc file ({name})"
            elif name.startswith("CLI/") and module != "tools":
                yield where + f"CLI11 outside tools/ ({name})"
            elif name.startswith("catch2/") and path != "tests/catch.h":
                yield where + f"Catch2 outside tests/catch.h ({name})"
    if path.startswith(("runtime/", "checkpoint/")) and path not in TEXT_ENTERS:
        for number, line in enumerate(text.splitlines(), 1):
            match = PARSES.search(line.partition("//")[0])
            if match:
                yield f"{path}:{number}: {match.group(1)}: text is parsed where it enters, not here"


def judge_tree(root):
    reasons = []
    files = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if not name.endswith(SUFFIXES) or module_of(path) is None:
                continue
            files += 1
            with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                reasons.extend(judge(root, path, file.read()))
    return reasons, files


def judge_links(target, libraries):
    """Reasons for every library of ours that `target` links and may not."""
    if target not in LINKS:
        return [f"no rule says what target {target} may link"]
    allowed = LINKS[target] | {"reshard_build_flags", "reshard_precompiled", "reshard_precompiled_O1"}
    names = [(library, name) for library in libraries for name in re.findall(r"\breshard(?:::|_)(\w+)", library)]
    return [f"target {target} must not link {library}" for library, name in names if f"reshard_{name}" not in allowed]


GOOD = {
    "include/reshard/layout/a.h": '#include <vector>\n#include "absl/status/status.h"\n',
    "include/reshard/planner/b.h": '#include "reshard/layout/a.h"\n',
    "include/reshard/torch/t.h": '#include <ATen/core/Tensor.h>\n#include "reshard/runtime/c.h"\n',
    "runtime/pytorch/t.h": '#include "reshard/torch/t.h"\n#include <torch/library.h>\n',
    "include/reshard/runtime/c.h": '#include "reshard/planner/b.h"\n',
    "include/reshard/check/c.h": '#include "reshard/layout/a.h"\n',
    "check/c.cc": '#include <nlohmann/json.hpp>\n#include "reshard/check/c.h"\n',
    "include/reshard/checkpoint/d.h": '#include "reshard/planner/b.h"\n',
    "layout/a.cc": '#include "reshard/layout/a.h"\n// #include "planner/transfers/s.h"\n#include "part.h"\n',
    "layout/part.h": "",
    "planner/transfers/s.h": '#include "layout/part.h"\n',
    "planner/report/r.cc": '#include <nlohmann/json.hpp>\n#include "planner/transfers/s.h"\n',
    "runtime/execute/c.cc": '#include "reshard/runtime/c.h"\n#include "reshard/layout/a.h"\n',
    "checkpoint/io/d.cc": '#include "reshard/checkpoint/d.h"\n',
    "tools/reshard/main.cc": '#include <CLI/CLI.hpp>\n#include "reshard/runtime/c.h"\n#include "tools/reshard/m.h"\n',
    "tools/reshard/m.h": "#pragma once\n",
    "tests/catch.h": "#include <catch2/catch.hpp>\n",
    "tests/oracle/o.cc": '#include <map>\n#include "tests/oracle/o.h"\n#include "o.h"\n',
    "tests/oracle/o.h": "",
    "tests/oracle/o_test.cc": '#include "tests/catch.h"\n#include "tests/oracle/o.h"\n',
    "tests/planner/p_test.cc": '#include "planner/transfers/s.h"\n#include "tests/catch.h"\n',
    "build/core/x.h": '#include "runtime/execute/c.h"\n',
}
# (file, include, part of the reason). `?` in the file name keeps it from colliding with the good ones.
BAD = [
    ("include/reshard/layout/x.h", '"reshard/planner/b.h"', "layout must not include planner"),
    ("layout/x.cc", '"planner/transfers/s.h"', "layout must not include planner"),
    ("layout/x.cc", '"../planner/transfers/s.h"', "layout must not include planner"),
    ("layout/x.cc", '"planner/cost/missing.h"', "layout must not include planner"),
    ("layout/x.cc", '"planner/report/missing.h"', "layout must not include planner"),
    ("layout/x.cc", "<reshard/runtime/c.h>", "layout must not include runtime"),
    ("layout/x.cc", '"reshard/checkpoint/d.h"', "layout must not include checkpoint"),
    ("layout/x.cc", '"tools/reshard/m.h"', "layout must not include tools"),
    ("check/x.cc", '"reshard/planner/b.h"', "check must not include planner"),
    ("check/x.cc", '"planner/transfers/s.h"', "check must not include planner"),
    ("planner/transfers/x.cc", '"reshard/check/c.h"', "planner must not include check"),
    ("include/reshard/planner/x.h", '"reshard/runtime/c.h"', "planner must not include runtime"),
    ("planner/transfers/x.cc", '"runtime/execute/missing.h"', "planner must not include runtime"),
    ("planner/cost/x.cc", '"checkpoint/io/missing.h"', "planner must not include checkpoint"),
    ("planner/report/x.cc", '"tools/reshard/m.h"', "planner must not include tools"),
    ("planner/report/x.cc", '"tests/oracle/o.h"', "planner must not include tests"),
    ("runtime/execute/x.cc", '"tools/reshard/m.h"', "runtime must not include tools"),
    ("runtime/local/x.cc", '"reshard/checkpoint/d.h"', "runtime must not include checkpoint"),
    ("checkpoint/io/x.cc", '"runtime/cuda/missing.h"', "checkpoint must not include cuda"),
    ("checkpoint/convert/x.cc", '"reshard/live/s.h"', "checkpoint must not include live"),
    ("runtime/execute/x.cc", '"reshard/live/s.h"', "runtime must not include live"),
    ("checkpoint/live/x.cc", '"reshard/torch/t.h"', "live must not include torch"),
    ("include/reshard/planner/x.h", '"planner/transfers/s.h"', "a public header includes a private one"),
    ("include/reshard/planner/x.h", "<nlohmann/json_fwd.hpp>", "a public header includes nlohmann"),
    ("include/reshard/runtime/x.h", "<cuda_runtime.h>", "a public header includes cuda"),
    ("include/reshard/runtime/x.h", '"nccl.h"', "a public header includes nccl"),
    ("include/reshard/runtime/x.h", "<torch/torch.h>", "LibTorch outside the module torch"),
    ("runtime/execute/x.cc", "<ATen/core/Tensor.h>", "LibTorch outside the module torch"),
    ("runtime/peers/x.cc", "<mpi.h>", "MPI outside the module mpi"),
    ("tools/reshard/x.cc", '"reshard/mpi/m.h"', "tools must not include mpi"),
    ("tools/reshard/mpi/x.cc", '"runtime/execute/missing.h"', "a tool includes a private header"),
    ("runtime/peers/x.cc", '"reshard/mpi/t.h"', "runtime must not include mpi"),
    ("runtime/execute/x.cc", '"runtime/pytorch/t.h"', "runtime must not include torch"),
    ("include/reshard/torch/x.h", '"runtime/pytorch/t.h"', "a public header includes a private one"),
    ("include/reshard/torch/x.h", "<cuda_runtime.h>", "a public header includes cuda"),
    ("checkpoint/io/x.cc", '"reshard/torch/t.h"', "checkpoint must not include torch"),
    ("include/reshard/runtime/x.h", "<CLI/CLI.hpp>", "a public header includes CLI"),
    ("planner/report/x.h", "<nlohmann/json.hpp>", "nlohmann outside a .cc file"),
    ("planner/report/x.cc", "<CLI/CLI.hpp>", "CLI11 outside tools/"),
    ("tests/planner/x_test.cc", "<catch2/catch.hpp>", "Catch2 outside tests/catch.h"),
    ("tools/reshard/x.cc", '"planner/transfers/s.h"', "a tool includes a private header"),
    ("tests/oracle/x.cc", '"reshard/planner/b.h"', "the oracle includes more"),
    ("tests/oracle/x.h", '"reshard/layout/a.h"', "the oracle includes more"),
    ("tests/oracle/x.cc", '"../catch.h"', "the oracle includes more"),
    ("tests/oracle/x.cc", '"layout/part.h"', "the oracle includes more"),
    ("tests/oracle/x.cc", '"absl/strings/str_cat.h"', "the oracle includes more"),
    ("planner/transfers/x.cc", "SOME_MACRO", "cannot be checked"),
]
# (file, line, part of the reason)
BAD_LINES = [
    ("runtime/execute/x.cc", "auto layout = ParseLayout(text, mesh);", "text is parsed where it enters"),
    ("checkpoint/live/x.cc", "  return ParseMesh(text);", "text is parsed where it enters"),
]
BAD_LINKS = [
    ("reshard_layout", "reshard_planner"),
    ("reshard_layout", "reshard::runtime"),
    ("reshard_check", "reshard::planner"),
    ("reshard_planner", "reshard_check"),
    ("reshard_planner", "(BUILD_INTERFACE:reshard_runtime>"),
    ("reshard_planner", "reshard::checkpoint"),
    ("reshard_runtime", "reshard_checkpoint"),
    ("reshard_runtime", "reshard::torch"),
    ("reshard_runtime", "reshard_live"),
    ("reshard_checkpoint", "reshard_live"),
    ("reshard_live", "reshard::torch"),
    ("reshard_checkpoint", "reshard::cuda"),
    ("test_oracle", "reshard_layout"),
    ("reshard_runtime", "reshard_cuda"),
    ("reshard_planner", "reshard::cuda"),
    ("reshard_planner", "reshard_new"),
    ("reshard_new", "reshard_layout"),
]


def self_test():
    """Fails unless the rules accept the good tree and each bad line is caught by the rule meant for it, and only once."""

    def write(root, path, text):
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)

    with tempfile.TemporaryDirectory() as root:
        for path, text in GOOD.items():
            write(root, path, text)
        reasons, files = judge_tree(root)
        assert not reasons, reasons
        assert files == len(GOOD) - 1, files
        lines = [(path, f"#include {include}", want) for path, include, want in BAD]
        for path, line, want in lines + BAD_LINES:
            write(root, path, line + "\n")
            reasons, _ = judge_tree(root)
            assert len(reasons) == 1 and want in reasons[0] and path in reasons[0], (path, line, want, reasons)
            os.remove(os.path.join(root, path))
    for target, library in BAD_LINKS:
        assert judge_links(target, ["absl::status", library]), (target, library)
    assert not judge_links("reshard_planner", ["reshard_layout", "(BUILD_INTERFACE:reshard_build_flags>", "absl::status"])
    assert not judge_links("reshard_nccl", ["reshard::cuda", "dl"])
    return len(BAD) + len(BAD_LINES) + len(BAD_LINKS)


def main():
    root, rest = sys.argv[1], sys.argv[2:]
    shown = self_test()
    reasons, files = judge_tree(root)
    for flag, value in zip(rest[0::2], rest[1::2]):
        assert flag == "--links", flag
        target, _, libraries = value.partition("=")
        reasons.extend(judge_links(target, libraries.split(",")))
    for reason in reasons:
        print(reason)
    print(f"{files} files, {len(rest) // 2} targets, {len(reasons)} borders crossed; {shown} ways to cross one were caught")
    return 1 if reasons or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
