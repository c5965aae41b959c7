"""Private parts of PyTorch are named in two files only, and one that is missing is said with the releases that were
tried."""

import ast
import importlib.util
import pathlib
import sys
import unittest

import torch

PACKAGE = pathlib.Path(importlib.util.find_spec("reshard").origin).resolve().parent
ALLOWED = {"torch/private_pytorch.py", "torch/pytorch_hooks.py"}
OF_TUPLES = {"_replace", "_asdict", "_fields", "_make"}  # of NamedTuple, public in spite of the underscore


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def trees() -> dict[str, ast.Module]:
    files = sorted(PACKAGE.rglob("*.py"))
    return {str(file.relative_to(PACKAGE)): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def own_names(tree: ast.Module) -> set[str]:
    """What a file itself defines: functions, classes, variables and attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def is_ours(node: ast.expr) -> bool:
    """Whether this is torch.ops.reshard or torch.classes.reshard, or the operators of ATen."""
    text = ast.unparse(node)
    return text.startswith(("torch.ops.", "torch.classes.reshard", "_aten"))


def uses(tree: ast.Module, known: set[str]) -> list[str]:
    """Private names of PyTorch in a file; `known`: those that are the package's own."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("torch"):
            path = [*node.module.split("."), *(alias.name for alias in node.names)]
            found += [f"line {node.lineno}: {node.module} {name}" for name in path if is_private(name)]
        elif isinstance(node, ast.Import):
            names = [name for alias in node.names for name in alias.name.split(".")]
            found += [f"line {node.lineno}: {name}" for name in names if is_private(name)]
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and not is_ours(node.value):
            if node.attr not in known | OF_TUPLES:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


class PrivatePartsTest(unittest.TestCase):
    def test_named_in_two_files(self):
        files = trees()
        self.assertLessEqual(ALLOWED, files.keys())
        known = set().union(*(own_names(tree) for name, tree in files.items() if name not in ALLOWED))
        for name, tree in files.items():
            if name not in ALLOWED:
                self.assertEqual(uses(tree, known), [], name)
        for name in ALLOWED:
            self.assertNotEqual(uses(files[name], known), [], f"{name}: nothing was found where something is")

    def test_each_is_there(self):
        from reshard.torch import private_pytorch

        private_pytorch.require()

    def test_one_that_is_not(self):
        from reshard.torch import private_pytorch

        for owner, names in private_pytorch.REQUIRED:
            for name in names:
                with self.assertRaises(ImportError) as raised:
                    private_pytorch.require(((owner, (name, f"{name}_of_another_release")),))
                text = str(raised.exception)
                self.assertIn(f"{name}_of_another_release", text)
                self.assertIn(torch.__version__, text)
                self.assertIn("tried with PyTorch 2.11", text)
                self.assertNotIn("\n", text)

    def test_a_module_that_is_not(self):
        from reshard.torch import private_pytorch

        name = "torch.distributed.tensor._dtensor_spec"
        module = sys.modules[name]
        sys.modules[name] = None  # importing it fails
        try:
            spec = importlib.util.spec_from_file_location("private_once_more", private_pytorch.__file__)
            with self.assertRaisesRegex(ImportError, "tried with PyTorch 2.11.*_dtensor_spec"):
                spec.loader.exec_module(importlib.util.module_from_spec(spec))
        finally:
            sys.modules[name] = module


if __name__ == "__main__":
    unittest.main()
