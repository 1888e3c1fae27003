"""What adapters refuse by name before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import InvalidValue


def refuse_unless_mapping(given: Any, what: str, example: str) -> None:
    """Refuse what is not a mapping by the name of a tool."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidValue(f"{what}={given!r} is not a dict by the name of a tool", hint=f"give {what}={example}")
