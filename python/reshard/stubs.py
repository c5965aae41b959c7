"""Stand-ins for names that need PyTorch, where it is missing."""

from typing import Any


class Stub:
    """Stands in for a name that needs PyTorch where that part cannot be imported: help() and hasattr() see it; a call
    says what is missing.
    """

    def __init__(self, name: str, error: ImportError):
        self.__name__ = self.__qualname__ = name
        self.__module__ = "reshard"
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            self._why = f"reshard.{name} needs PyTorch, which is not installed here: pip install 'reshard[torch]'"
        else:
            self._why = f"reshard.{name} cannot be used: {error}"
        self.__doc__ = self._why
        self._error = error

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise ImportError(self._why) from self._error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Stub(f"{self.__name__}.{name}", self._error)

    def __repr__(self) -> str:
        return f"<{self._why}>"
