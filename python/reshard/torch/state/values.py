"""Values that are not tensors: as the bytes that checkpoints have of them, and compared with those of other ranks."""

import copyreg
import hashlib
import io
import types
from collections import Counter, OrderedDict, defaultdict
from typing import Any

import torch

from ...errors import InputError
from ..stored import bytes_tensor

_DICTS = (dict, OrderedDict, defaultdict, Counter)


def pickled(value: Any) -> bytes:
    """As torch.save writes it."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpickled(name: str, content: bytes, more: str) -> Any:
    """The value, if it is plain data or of a class that the program allows.

    Args:
        name: of the value, for errors.
        more: what the caller may do about a value of another class, beside allowing it; a clause.

    Raises:
        ValueError: a value of a class, which is not loaded because that may run what the checkpoint says.
    """
    try:
        return torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:
        raise InputError(f"{name} {_why(content, error)}, {more}") from error


def _why(content: bytes, error: Exception) -> str:
    """What is wrong with a value, and how to allow it."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content))
    except Exception:  # damaged, or of another kind: the first error says so
        names = []
    if not names:
        return f"cannot be loaded as a plain value: {str(error).splitlines()[0]}; save it as plain data"
    classes = ", ".join(sorted(names))
    return (
        f"is not a plain value but needs {classes}, and loading it may run what the checkpoint says; "
        "if you trust the checkpoint, allow that by torch.serialization.add_safe_globals([...])"
    )


def bytes_sum(content: bytes) -> list[int]:
    """Two 64-bit numbers that other bytes do not have."""
    return tensor_sums([bytes_tensor(content)])[0]


def tensor_sums(tensors: list[torch.Tensor]) -> list[list[int]]:
    """Of each tensor two 64-bit numbers that one of another dtype, shape or contents does not have."""
    return torch.ops.reshard._local_fingerprints(tensors).tolist()


def value_sum(value: Any) -> str:
    """A text that is the same for equal values, though their pickles differ: in the order of sets and dicts, in which
    parts are one object, and in whether a whole number is an int. Values of classes are compared by what pickling them
    would say.
    """
    return _Sum().of(value).hex()


class _Sum:
    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bytes]] = {}  # by id; kept alive
        self._inside: list[int] = []
        self._returns = 0  # how often a value was met within itself

    def of(self, value: Any) -> bytes:
        if value is None:
            return _hash("none")
        if isinstance(value, (bool, int, float)):
            is_whole = not isinstance(value, float) or value.is_integer()
            return _hash("number", str(int(value) if is_whole else float(value)).encode())
        if type(value) is str:
            return _hash("text", value.encode("utf-8", "surrogatepass"))
        if type(value) in (bytes, bytearray):
            return _hash("bytes", bytes(value))
        if id(value) in self._known:
            return self._known[id(value)][1]
        if id(value) in self._inside:
            self._returns += 1
            return _hash("within itself", str(len(self._inside) - self._inside.index(id(value))).encode())
        returns = self._returns
        self._inside.append(id(value))
        result = self._of_object(value)
        self._inside.pop()
        if returns == self._returns:
            self._known[id(value)] = (value, result)
        return result

    def _of_object(self, value: Any) -> bytes:
        kind = type(value)
        if kind in (list, tuple):
            return _hash(kind.__name__, *map(self.of, value))
        if kind in (set, frozenset):
            return _hash("set", *sorted(map(self.of, value)))
        if kind in _DICTS:
            return self._of_pairs(value.items())
        if kind in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized:
            return _hash("tensor", str(value.dtype).encode(), *(str(half).encode() for half in tensor_sums([value.detach()])[0]))
        if isinstance(value, torch.Tensor):
            return _hash("pickle", pickled(value))
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            return _hash("name", f"{value.__module__}.{value.__qualname__}".encode())
        reduce = copyreg.dispatch_table.get(kind)
        said = reduce(value) if reduce else value.__reduce_ex__(2)
        if isinstance(said, str):
            return _hash("name", f"{kind.__module__}.{said}".encode())
        makes, arguments, state, members, pairs, *_ = (*said, None, None, None)
        return _hash(
            "object",
            self.of(makes),
            self.of(arguments),
            self.of(state),
            self.of(None if members is None else list(members)),
            b"" if pairs is None else self._of_pairs(pairs),
        )

    def _of_pairs(self, pairs: Any) -> bytes:
        return _hash("dict", *sorted(self.of(key) + self.of(member) for key, member in pairs))


def _hash(kind: str, *parts: bytes) -> bytes:
    result = hashlib.blake2b(kind.encode(), digest_size=16)
    for part in parts:
        result.update(len(part).to_bytes(8, "little") + part)
    return result.digest()
