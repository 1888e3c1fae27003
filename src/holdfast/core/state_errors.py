"""Errors of typed state and of templates.

InvalidValue
├── InvalidState          a value does not fit the model of the state; says where
│   └── StateNotMigrated  the state is of another version than the agent's, and cannot become it
└── InvalidTemplate       a template cannot be read
    └── UnknownName       a template names something that is not there
"""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import InvalidValue


class InvalidState(InvalidValue):
    """A value does not fit the model of the state; says where."""

    code = "invalid-state"

    def __init__(self, path: str, why: str, *, hint: str, **details: Any) -> None:
        super().__init__(f"{path} {why}", hint=hint, path=path, **details)


class StateNotMigrated(InvalidState):
    """The state is of another version than the agent's, and cannot become it."""

    code = "state-not-migrated"

    def __init__(self, why: str, *, hint: str, path: str = "state", **details: Any) -> None:
        super().__init__(path, why, hint=hint, **details)


class InvalidTemplate(InvalidValue):
    """A template cannot be read."""

    code = "invalid-template"


class UnknownName(InvalidTemplate):
    """A template names something that is not there."""

    code = "unknown-name"

    def __init__(self, name: str, why: str, *, hint: str, **details: Any) -> None:
        super().__init__(f"{{{name}}} {why}", hint=hint, name=name, **details)
