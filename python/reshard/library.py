"""Finds and loads the library that registers torch.ops.reshard.*."""

import os
import pathlib

import torch

LIBRARY_NAME = "libreshard_torch.so"
LIBRARY_VARIABLE = "RESHARD_TORCH_LIBRARY"


def _candidates() -> list[pathlib.Path]:
    chosen = os.environ.get(LIBRARY_VARIABLE)
    if chosen:
        return [pathlib.Path(chosen)]  # no fallback: a user who names a file wants that one
    package = pathlib.Path(__file__).resolve().parent
    above = package.parent.parent
    return [above / "lib" / LIBRARY_NAME, above / LIBRARY_NAME, package / LIBRARY_NAME]


def load_library() -> None:
    """Loads the library into this process, unless it is already loaded.

    The environment variable RESHARD_TORCH_LIBRARY names the file. If it is not set, the file is looked for in ../../lib
    relative to this package, where a build puts it, in ../.., where an installation does, and then in the package.

    Raises:
        ImportError: the file does not exist, or was built for another PyTorch.
    """
    if hasattr(torch.ops.reshard, "redistribute"):
        return  # by a C++ program that links to it, or torch.ops.load_library
    candidates = _candidates()
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        looked_at = ", ".join(str(path) for path in candidates)
        raise ImportError(f"{LIBRARY_NAME} is not there (looked at {looked_at}); build it, or set {LIBRARY_VARIABLE}")
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(f"cannot load {path}, PyTorch being {torch.__version__}: {error}") from error
