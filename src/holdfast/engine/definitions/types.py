"""The type variables of agents, tools and steps. Written without arguments, `Agent` means an agent of any kind."""

from __future__ import annotations

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
