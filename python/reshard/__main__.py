"""`python -m reshard` is the command `reshard` of the same installation, plus what needs Python: URLs of stores
(reshard.stores), checkpoints of other kinds (reshard.sources), and `record`, which runs Python programs.

Under torchrun (`torchrun -m reshard convert ...`) the processes are the workers of one conversion.
"""

import os
import shutil
import signal
import sys
import sysconfig
from importlib import metadata

from . import _core
from .errors import MissingFileError
from .stores.calls import take_over


def _command() -> str:
    """The path of the command.

    Raises:
        MissingFileError: it is neither in this installation nor on the PATH.
    """
    candidates = [os.path.join(sysconfig.get_path("scripts"), "reshard")]
    try:
        files = metadata.files("reshard") or []
        candidates = [str(file.locate()) for file in files if file.name == "reshard" and "bin" in file.parts] + candidates
    except metadata.PackageNotFoundError:
        pass  # a build folder, not an installation
    found = next(filter(os.path.isfile, candidates), None) or shutil.which("reshard")
    if found is None:
        raise MissingFileError(f"the command reshard is not installed: not one of {candidates}, and not on the PATH")
    return found


def main() -> None:
    """Replaces this process with the command, or runs the command in it where an argument needs a store."""
    if sys.argv[1:2] == ["record"]:
        from .torch.record.command import main as record

        sys.exit(record(sys.argv[2:]))
    if "TORCHELASTIC_RUN_ID" in os.environ:
        os.environ["RESHARD_RUN_AS_MODULE"] = "1"  # RANK and WORLD_SIZE are about this process, not its parent
    if any(map(_core.store_needed_for, sys.argv[1:])):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command prints its own message on Ctrl-C
        take_over(_core.use_stores)
        sys.stdout.flush()
        sys.exit(_core.command(["reshard", *sys.argv[1:]]))
    command = _command()
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
