"""What every error of Holdfast has: a message, a remedy, and details for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self


class HoldfastError(Exception):
    """Every error Holdfast raises on purpose."""

    code = "holdfast"
    message: str = ""
    """What failed, and why. A class may have it as a template, which `_fill` fills with the details."""

    hint: str = ""
    """What to do about it; likewise."""

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def _fill(self, words: Mapping[str, object] | None = None, /, **details: Any) -> None:
        """Begin as an error whose class has its message and hint as templates. `words` are for the text alone."""
        known = {**(words or {}), **details}
        HoldfastError.__init__(self, self.message.format_map(known), hint=self.hint.format_map(known), **details)

    @classmethod
    def _made(cls, message: str, *, hint: str, **details: Any) -> Self:
        """Make one whose text is another than that of its class."""
        error = cls.__new__(cls)
        HoldfastError.__init__(error, message, hint=hint, **details)
        return error

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.details)


def log_words(log: str) -> str:
    """Return what a log is, in words.

    >>> log_words("recap-42"), log_words("@user/ana")
    ("task 'recap-42'", "user 'ana'")
    """
    for prefix in ("@user/", "@thread/"):
        if log.startswith(prefix):
            return f"{prefix[1:-1]} {log.removeprefix(prefix)!r}"
    return f"task {log!r}"


def _rebuild(cls: type[HoldfastError], message: str, hint: str, details: dict[str, Any]) -> HoldfastError:
    return cls._made(message, hint=hint, **details)  # pyright: ignore[reportPrivateUsage]
