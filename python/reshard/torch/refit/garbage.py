"""Python's collector of cycles, held back for a while."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """While very many objects are made that stay, and no cycles: each full collection looks at all of them, and together
    they take as long as what makes them. Whatever has no more references is freed as ever."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
