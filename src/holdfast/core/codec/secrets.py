"""Values that stay out of the log, of errors and of screens."""

from __future__ import annotations

from typing import Any


class Secret:
    """A value that only the tool it is given to can see.

    >>> key = Secret("sk-123")
    >>> key
    <secret>
    >>> key.reveal()
    'sk-123'
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def reveal(self) -> Any:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(("secret", self._value))
