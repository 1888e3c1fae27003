"""The type variables of agents, tools and steps. Written without arguments, `Agent` means an agent of any kind."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Generator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from typing_extensions import ParamSpec as ParamSpecWithDefault, TypeVar as TypeVarWithDefault

    P = ParamSpecWithDefault("P", default=...)
    R = TypeVarWithDefault("R", default=Any)
    R_co = TypeVarWithDefault("R_co", default=Any, covariant=True)
else:
    P = ParamSpec("P")
    R = TypeVar("R")
    R_co = TypeVar("R_co", covariant=True)

TextStream = Generator[str, Any, None] | AsyncIterable[str] | Awaitable[AsyncIterable[str]]
"""What gives texts one after the other, and nothing in the end: its result is all of them, joined."""
