"""The types that a function declares, as objects: annotations may be text, and may name what is not there."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from holdfast.core.errors import UnresolvedType


class Annotations:
    """The annotations of one function. Its surroundings are looked at when it is declared, its types when needed."""

    def __init__(self, fn: Callable[..., Any], *, quiet: Collection[str] | None = None) -> None:
        """`quiet` are parameters whose types don't matter; None: of a function that is not ours to warn about."""
        self._fn = _annotated(fn)
        self._quiet = quiet
        self._locals = _surroundings(self._fn)

    def types(self) -> dict[str, Any]:
        """Return the types by name, `return` among them; names that can't be resolved are left out, with a warning."""
        try:
            return typing.get_type_hints(self._fn, localns=dict(self._locals) or None, include_extras=True)
        except (NameError, TypeError, AttributeError):
            return dict(self._one_by_one())

    def _one_by_one(self) -> typing.Iterator[tuple[str, Any]]:
        given: Mapping[str, Any] = getattr(self._fn, "__annotations__", {})
        for name, annotation in given.items():
            alone = type("alone", (), {"__annotations__": {name: annotation}})
            everything = {**getattr(self._fn, "__globals__", {}), **self._locals}
            try:
                yield name, typing.get_type_hints(alone, everything, include_extras=True)[name]
            except (NameError, TypeError, AttributeError) as error:
                if self._quiet is not None and name not in self._quiet:
                    self._warn(name, annotation, error)

    def _warn(self, name: str, annotation: object, error: Exception) -> None:
        what = "returns" if name == "return" else f"takes {name} as"
        told = (
            f"{getattr(self._fn, '__qualname__', self._fn)} {what} {annotation!r}, which can't be looked up: {error}. "
            "Its values stay plain JSON. Import the type outside of `if TYPE_CHECKING:`"
        )
        warnings.warn(told, UnresolvedType, stacklevel=2)


def _annotated(fn: Callable[..., Any]) -> Any:
    """Return the function whose annotations count: inside of partials, wrappers and callable objects."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    return inspect.unwrap(inner)


def _surroundings(fn: Any) -> Mapping[str, Any]:
    """Return the local names around a function that was made inside another one, if its annotations are text."""
    outer = getattr(fn, "__qualname__", "").rpartition(".<locals>.")[0].rpartition(".")[2]
    if not outer or not any(isinstance(one, str) for one in getattr(fn, "__annotations__", {}).values()):
        return {}
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] — the function is being declared in one of these
    while frame is not None:
        if frame.f_code.co_name == outer and frame.f_globals is getattr(fn, "__globals__", None):
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}
