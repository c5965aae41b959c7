"""What this package raises. Each is also the Python exception that callers expect, and has the library's message."""


class ReshardError(Exception):
    """The base of all below."""


class InputError(ReshardError, ValueError):
    """Malformed text (a mesh, a layout, rules, a recipe), an unknown option, a problem without a plan,
    something that is not a checkpoint, or a damaged one."""


class UnsupportedError(ReshardError, NotImplementedError):
    """What the planner does not support, such as a target that is partial over a new axis."""


class LimitError(ReshardError, MemoryError):
    """Nothing fits the memory limit, or a limit of the library; the message has what is needed."""


class FileError(ReshardError, OSError):
    """The system or a server refused: a file is missing, something is in the way, the disk is full."""


class MissingFileError(FileError, FileNotFoundError):
    """There is nothing at a path."""


class ExistingFileError(FileError, FileExistsError):
    """There is something at a path, which is replaced only on request (`overwrite`)."""


class PeerError(ReshardError, TimeoutError):
    """Other workers of the same conversion, or other ranks of a joined group, did not arrive or did not finish."""


class UndeterminedError(ReshardError, RuntimeError):
    """It is unknown whether the other ranks of a refit have its new version or the old one, or only a part of a version
    is installed: do not serve from this rank."""
