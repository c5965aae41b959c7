"""Finds and loads the library that registers torch.ops.reshard.*."""

import os
import pathlib

import torch

from ..stores.calls import take_over

LIBRARY_NAME = "libreshard_torch.so"
LIBRARY_VARIABLE = "RESHARD_TORCH_LIBRARY"
HOW_TO_BUILD = "pip install --no-build-isolation --config-settings=cmake.define.RESHARD_BUILD_TORCH=ON <the source of reshard>"


def _candidates() -> list[pathlib.Path]:
    chosen = os.environ.get(LIBRARY_VARIABLE)
    if chosen:
        return [pathlib.Path(chosen)]  # no fallback: a user who names a file wants that one
    package = pathlib.Path(__file__).resolve().parent
    above = package.parents[2]  # of an installation, or of a build
    return [package / LIBRARY_NAME, above / "lib" / LIBRARY_NAME, above / LIBRARY_NAME]


def _check_version(path: pathlib.Path) -> None:
    """C++ libraries of one minor version of PyTorch do not work with another.

    Raises:
        ImportError: with both versions, and how to build one for this PyTorch.
    """
    beside = path.with_suffix(".built-for")
    if not beside.is_file():
        return
    built_for, this = beside.read_text(encoding="utf-8").strip(), torch.__version__
    if built_for.split(".")[:2] != this.split(".")[:2]:
        raise ImportError(f"{path} is built for torch {built_for}, this is {this}; build it for this one: {HOW_TO_BUILD}")


def load_library() -> None:
    """Loads the library into this process, unless it is already loaded.

    The environment variable RESHARD_TORCH_LIBRARY names the file. If it is not set, the file is looked for in the
    package, where a wheel has it, in ../../../lib relative to this module's folder, where a build puts it, and in
    ../../.., where an installation does.

    Raises:
        ImportError: the file does not exist, or was built for another PyTorch.
        ValueError: an environment variable that the library cannot use.
    """
    if hasattr(torch.ops.reshard, "redistribute"):
        return  # by a C++ program that links to it, or torch.ops.load_library
    candidates = _candidates()
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        looked_at = ", ".join(str(path) for path in candidates)
        raise ImportError(
            f"this reshard was built without its part for PyTorch: {LIBRARY_NAME} is not there (looked at {looked_at}). "
            f"Build it: {HOW_TO_BUILD}; or name one with {LIBRARY_VARIABLE}"
        )
    _check_version(path)
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(f"cannot load {path} into PyTorch {torch.__version__}: {error}") from error
    torch.ops.reshard._check_environment()
    take_over(torch.ops.reshard._use_stores)
