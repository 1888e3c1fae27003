"""Every error code, from the tree of errors itself: what failed, why, what is on record, what to do."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.cli.failures.causes import CAUSES
from holdfast.cli.failures.codes import CODES, OWN, remedies
from holdfast.cli.failures.refusal import CONFLICT, FAILED, NOT_FOUND, STORE, USAGE, exit_code_of
from holdfast.cli.show.style import Style
from holdfast.core import errors
from holdfast.core.errors import HoldfastError, InvalidValue, values

EXITS = {
    FAILED: "the work failed",
    USAGE: "the command was not understood",
    NOT_FOUND: "not found",
    CONFLICT: "another writer was first, or the task does not allow it",
    STORE: "the store",
}
"""What exit codes of errors mean."""


class Explained(Struct, frozen=True):
    """All there is to say about a code."""

    code: str
    name: str
    when: str
    why: str
    written: str
    do: list[str]
    exit: int

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    def lines(self, style: Style) -> list[str]:
        """Return it for people."""
        sections = {
            "What failed": [self.when],
            "Why": [self.why],
            "What is on record": [self.written],
            "What to do": self.do,
            "In a program": [f"except holdfast.{self.name} as error: error.message, error.hint, error.details"]
            if self.name
            else [],
            "In a shell": [f"exit code {self.exit}: {EXITS[self.exit]}"],
        }
        told = [style.paint(self.code, "bold")]
        for name, lines in sections.items():
            told += [style.paint(name, "head"), *(f"  {one}" for one in lines)] if lines else []
        return told


def classes() -> dict[str, type[HoldfastError]]:
    """Every error of the tree, by its code."""
    found: dict[str, type[HoldfastError]] = {}
    waiting: list[type[HoldfastError]] = [HoldfastError]
    assert errors and values, "imported, so that the tree is whole"
    while waiting:
        one = waiting.pop(0)
        if one.__module__.startswith("holdfast.core."):
            found.setdefault(one.code, one)
            waiting += one.__subclasses__()
    return found


def known() -> list[str]:
    """Every code there is."""
    return sorted({*classes(), *OWN})


def explained(code: str) -> Explained:
    """Return the meaning of a code. An unknown code is refused, with the codes that are close."""
    error = classes().get(code)
    if error is None and code not in OWN:
        import difflib

        close = difflib.get_close_matches(code, known(), 1)
        hint = f"did you mean {close[0]!r}?" if close else "to list all codes: holdfast explain"
        raise InvalidValue(f"no error has the code {code!r}", hint=hint)
    does = remedies(code, {})
    if error is None:
        exits = {"usage": USAGE, "lease-lost": CONFLICT}.get(code, FAILED)
        return Explained(code, "", OWN[code], CAUSES[code], CODES[code].written, does, exits)
    when = (error.__doc__ or "").strip().splitlines()[0]
    return Explained(code, error.__name__, when, CAUSES[code], CODES[code].written, does, exit_code_of(error))
