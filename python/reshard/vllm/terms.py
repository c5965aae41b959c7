"""Where vLLM's processes find what is published: the members of model_loader_extra_config."""

from collections.abc import Mapping
from typing import Any

from ..errors import InputError

_MEMBERS = {"place": str, "store": str, "name": str, "wait": (int, float), "share": bool}


def terms_of(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The members of model_loader_extra_config.

    Raises:
        InputError: other members, or values of another kind; neither a place nor a store, or both.
    """
    terms = dict(extra or {})
    for member, value in terms.items():
        if member not in _MEMBERS or not isinstance(value, _MEMBERS[member]):
            raise InputError(
                f"model_loader_extra_config: {member}={value!r}; known are place, store and name (text), wait (seconds) and share (true)"
            )
    if ("place" in terms) == ("store" in terms):
        raise InputError(
            'model_loader_extra_config says where weights are published: {"place": "DIRECTORY or URL"}, or {"store": "HOST:PORT"} of '
            "the trainer's TCPStore"
        )
    return terms
