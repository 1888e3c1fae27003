"""Templates: text with names in braces, filled with what a task knows.

    Hello {state.name}, the first of {facts.service} is {state.items.0}. A brace: {{

A name leads through objects and lists by dots and nothing else: no attribute of a Python object is ever looked at, and
nothing is called. Text is put in as it is, everything else as JSON. What is put in is not read as a template again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from holdfast.core import codec
from holdfast.core.errors import InvalidTemplate, UnknownName

Roots = Mapping[str, Callable[[], Any]]
"""What names may begin with, each with what gives its value: plain JSON values only."""

_MISSING = object()
_SHOWN = 20


def render(template: str, roots: Roots) -> str:
    """Fill in a template. A name that leads nowhere is UnknownName, a brace too many InvalidTemplate.

    >>> render("{state.city}: {state.tags} {{}}", {"state": lambda: {"city": "Oslo", "tags": ["a", 1]}})
    'Oslo: ["a",1] {}'
    """
    if not isinstance(template, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTemplate(f"{template!r} is not a template: it is not text", hint="give a str")
    return "".join(_shown(_look_up(name, roots)) if is_name else name for is_name, name in _parts(template))


def escape(text: str) -> str:
    """Text as a template that gives just this text.

    >>> escape("{x}")
    '{{x}}'
    """
    return text.replace("{", "{{").replace("}", "}}")


def _parts(template: str) -> Iterator[tuple[bool, str]]:
    """Names and the text between them."""
    at = 0
    while at < len(template):
        here = min((found for found in (template.find("{", at), template.find("}", at)) if found >= 0), default=-1)
        if here < 0:
            yield False, template[at:]
            return
        yield False, template[at:here]
        brace = template[here]
        if template[here + 1 : here + 2] == brace:
            yield False, brace
            at = here + 2
            continue
        end = template.find("}", here)
        name = template[here + 1 : end]
        if brace == "}" or end < 0 or "{" in name:
            what = "has no name before it" if brace == "}" else "is not closed"
            raise InvalidTemplate(
                f"the {brace!r} at character {here + 1} of the template {what}",
                hint=f"write {{name}} for a value, and {brace * 2} for a brace",
                at=here,
            )
        yield True, name
        at = end + 1


def _look_up(name: str, roots: Roots) -> Any:
    root, *path = name.split(".")
    if root not in roots:
        raise _unknown(name, root, list(roots), "is not a name a template knows")
    value = roots[root]()
    if value is None and not path:
        raise UnknownName(name, "is not set", hint=f"the task has no {root} yet: set it first, or leave it out")
    return _follow(value, path, name, root)


def _follow(value: Any, path: Sequence[str], name: str, behind: str) -> Any:
    """The value at the end of a path. A key may hold dots itself; the shortest that is there counts."""
    if not path:
        return value
    if isinstance(value, list):
        items = cast("list[Any]", value)
        inner = _item(items, path[0])
        if inner is _MISSING:
            raise _unknown(name, path[0], [], f"leads nowhere: {behind} is a list of {len(items)}, counted from 0")
        return _follow(inner, path[1:], name, f"{behind}.{path[0]}")
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        for length in range(1, len(path) + 1):
            key = ".".join(path[:length])
            if key in known:
                return _follow(known[key], path[length:], name, f"{behind}.{key}")
        raise _unknown(name, path[0], list(known), f"leads nowhere: {behind} has no {path[0]!r}")
    raise _unknown(name, path[0], [], f"leads nowhere: {behind} is neither a list nor an object")


def _item(items: list[Any], index: str) -> Any:
    if not (index.isascii() and index.isdigit()) or len(index) > len(str(len(items))):
        return _MISSING
    return items[int(index)] if int(index) < len(items) else _MISSING


def _unknown(name: str, wrong: str, known: list[str], why: str) -> UnknownName:
    import difflib  # only a mistake needs it

    close = difflib.get_close_matches(wrong, known, n=1)
    there = f"names: {', '.join(sorted(known)[:_SHOWN])}" if known else "look at what is there first"
    return UnknownName(name[:200], why, hint=f"did you mean {close[0]!r}? {there}" if close else there, known=known)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else codec.text(value)
