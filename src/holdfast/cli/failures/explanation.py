"""Every code of an error, from the tree of errors itself: when it comes, what is on record, what to do."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.cli.failures.codes import CODES, OWN, remedies
from holdfast.cli.failures.refusal import CONFLICT, FAILED, USAGE, exit_code_of
from holdfast.cli.show.style import Style
from holdfast.core import errors
from holdfast.core.errors import HoldfastError, InvalidValue, values


class Explained(Struct, frozen=True):
    """All there is to say about a code."""

    code: str
    name: str
    when: str
    written: str
    do: list[str]
    exit: int

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    def lines(self, style: Style) -> list[str]:
        """For people."""
        head = style.paint(self.code, "bold") + (f"  (holdfast.{self.name})" if self.name else "")
        todo = [f"  {one}" for one in self.do]
        return [
            head,
            f"  {self.when}",
            f"  {self.written}",
            *(["", "what to do", *todo] if todo else []),
            "",
            f"exit code {self.exit}",
        ]


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
        hint = f"did you mean {close[0]!r}?" if close else "holdfast explain   lists them"
        raise InvalidValue(f"no error has the code {code!r}", hint=hint)
    does = remedies(code, {})
    if error is None:
        exits = {"usage": USAGE, "lease-lost": CONFLICT}.get(code, FAILED)
        return Explained(code, "", OWN[code], CODES[code].written, does, exits)
    when = (error.__doc__ or "").strip().splitlines()[0]
    return Explained(code, error.__name__, when, CODES[code].written, does, exit_code_of(error))
