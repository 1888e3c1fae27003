"""What events are made of: an event itself, failures, usage, limits."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Raw, Struct, field

from holdfast.core.wording import shown

Value = Raw
Fields = dict[str, Raw]
WaitKind = Literal["person", "timer", "signal", "child", "doubt", "budget", "quarantined", "diverged", "no_worker"]

FOR_PEOPLE: tuple[WaitKind, ...] = ("person", "doubt", "budget", "quarantined", "diverged")
"""Kinds of waits that a person can end. A task that has several of all kinds shows one of these."""


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """An exception as data: what, where, and because of what. `step` is the step that failed, of a StepFailed."""

    type: str
    message: str
    traceback: tuple[str, ...] = ()
    code: str = ""
    notes: tuple[str, ...] = ()
    cause: Failure | None = None
    group: tuple[Failure, ...] = ()
    step: str = ""


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a model's answer took: tokens in and out, money if it is known, and whose answer it was."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    model: str = ""


class Limits(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """A budget as it is written."""

    turns: int | None = None
    steps: int | None = None
    calls: int | None = None
    wall_us: int | None = None
    tokens: int | None = None
    cost: float | None = None
    artifact_bytes: int | None = None
    on_exceed: Literal["fail", "ask"] = "fail"


class Event(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One immutable fact.

    `branch` is the branch of the agent whose immediate verb recorded it, `.` for the agent's own line; events from
    outside have none. With the kind, the subject and how often that came before, it tells on replay that the event was
    recorded already. Without the nonce, the hash of an erased body would show what it was.
    """

    branch: str = field(name="@", default="")
    nonce: str = field(name="~", default="")

    def __repr__(self) -> str:
        return shown(self, kind_of(type(self)))


def kind_of(cls: type[Event]) -> str:
    """The stored name of an event's class: its own, in snake case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
