"""What a tool of the server is: its name, parameters and hints, who may use it, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as types

from holdfast.core.errors import InvalidValue
from holdfast.mcp.reading.scope import Scope

Role = Literal["read", "write", "decide"]
Type = Literal["string", "integer", "object", "array", "any"]

_PYTHON: dict[Type, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "object": (dict,),
    "array": (list,),
    "any": (object,),
}
_OPTIONS: dict[Role, str] = {"read": "", "write": "--allow-writes", "decide": "--allow-decisions"}


def may(scope: Scope, role: Role) -> bool:
    """Return whether a server was started for verbs of a role."""
    return {"read": True, "write": scope.writes, "decide": scope.decisions}[role]


def refuse_unless(scope: Scope, role: Role, verb: str) -> None:
    """Refuse a verb that the server was not started for."""
    if not may(scope, role):
        raise InvalidValue(
            f"this server may not {verb}", hint=f"start it with {_OPTIONS[role]}, or use the command line"
        )


@dataclass(frozen=True)
class Parameter:
    """One argument of a tool."""

    name: str
    type: Type
    about: str
    required: bool = True

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"description": self.about} | ({} if self.type == "any" else {"type": self.type})


@dataclass(frozen=True)
class Request:
    """One call of a tool: what is served, the arguments, and the name to record."""

    scope: Scope
    arguments: Mapping[str, Any]
    by: str

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An argument, or the default if it was not given."""
        return self.arguments.get(name, default)


@dataclass(frozen=True)
class ServerTool:
    """A tool of the server. `run` gives a document; a verb without `run` asks a person first."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    run: Callable[[Request], dict[str, Any]] | None = None
    role: Role = "read"
    destructive: bool = False
    idempotent: bool = True

    starts: bool = False
    """Whether it leaves a task to an agent: what becomes of it is worth waiting for."""

    def allowed(self, scope: Scope) -> bool:
        """Return whether a server offers it."""
        return may(scope, self.role)

    def tool(self) -> types.Tool:
        """The annotations that clients get. All hints are given: those left out count as the worst."""
        return types.Tool(
            name=self.name,
            description=self.about,
            input_schema={
                "type": "object",
                "properties": {one.name: one.schema() for one in self.parameters},
                "required": [one.name for one in self.parameters if one.required],
                "additionalProperties": False,
            },
            annotations=types.ToolAnnotations(
                title=self.name.replace("_", " ").capitalize(),
                read_only_hint=self.role == "read",
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent,
                open_world_hint=False,
            ),
        )

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, without those that are null. Refuses what is missing, unknown or of another type."""
        known = {one.name: one for one in self.parameters}
        arguments = {name: value for name, value in given.items() if value is not None or name not in known}
        for name, value in arguments.items():
            if name not in known:
                raise InvalidValue(f"{self.name} takes no {name!r}", hint=f"it takes {', '.join(known)}")
            odd = isinstance(value, bool) and known[name].type == "integer"
            if odd or not isinstance(value, _PYTHON[known[name].type]):
                raise InvalidValue(f"{name}={value!r} of {self.name} is not of type {known[name].type}")
        missing = [one.name for one in self.parameters if one.required and one.name not in arguments]
        if missing and not (known[missing[0]].type == "any" and missing[0] in given):
            raise InvalidValue(f"{self.name} needs {missing[0]!r}", hint=known[missing[0]].about)
        return arguments


TASK = Parameter("task", "string", "The task's id.")
WHY = Parameter("why", "string", "The reason, kept in the log.", required=False)
AGENT = Parameter("agent", "string", "The agent's name.", required=False)
