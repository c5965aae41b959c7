"""Finds and loads the library that registers torch.ops.reshard.*."""

import os
import pathlib

import torch

LIBRARY_NAME = "libreshard_torch.so"
LIBRARY_VARIABLE = "RESHARD_TORCH_LIBRARY"


def _candidates() -> list[pathlib.Path]:
    chosen = os.environ.get(LIBRARY_VARIABLE)
    if chosen:
        return [pathlib.Path(chosen)]  # nothing else: who names a file wants that one
    package = pathlib.Path(__file__).resolve().parent
    return [package.parent.parent / "lib" / LIBRARY_NAME, package / LIBRARY_NAME]


def load_library() -> None:
    """Loads the library into this process; once it is loaded, does nothing.

    RESHARD_TORCH_LIBRARY names the file. Without it, it is looked for in ../../lib beside this package, where a build
    puts it, then in the package.

    Raises:
        ImportError: the file is not there, or was built for another PyTorch.
    """
    if hasattr(torch.ops.reshard, "redistribute"):
        return  # a C++ program that links the library, or torch.ops.load_library
    candidates = _candidates()
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        looked_at = ", ".join(str(path) for path in candidates)
        raise ImportError(f"{LIBRARY_NAME} is not there (looked at {looked_at}); build it, or set {LIBRARY_VARIABLE}")
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(f"cannot load {path}, PyTorch being {torch.__version__}: {error}") from error
