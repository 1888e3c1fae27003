"""The state of a user or a thread from outside: every change is durable when it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from holdfast.core import codec, events as ev, limits
from holdfast.core.events import Changes, Event
from holdfast.core.state import paths, rules
from holdfast.core.state.shapes import State
from holdfast.engine.control import patches
from holdfast.engine.control.change import Decide, change
from holdfast.engine.logs.logs import Logs
from holdfast.engine.verbs.bag import Update, updated

First = Callable[[], ev.UserCreated | ev.ThreadCreated]
"""Gives the event that begins a log."""


def known(logs: Logs, name: str) -> State | None:
    """The state of a user or a thread now; None if there is none."""
    return None if logs.store.origin(name) is None else logs.load(name).state


def changed(logs: Logs, name: str, first: First, decide: Decide) -> State:
    """The state as a decision about the present one makes it; the log is begun if it is not there."""
    logs.ensure(name, first())
    return change(logs, name, decide, tries=limits.MAX_UPDATE_TRIES).state


def check(event: Event) -> None:
    """Refuse what could not be written, before the log is begun."""
    rules.check_text(event)


class OutsideFields:
    """The fields of a state that tasks share, as `app.user(id)` and `app.thread(id)` have them."""

    def __init__(self, logs: Logs, name: str, whose: str, id: str, first: First) -> None:
        self._logs = logs
        self._name = name
        self._first = first
        self.whose = whose
        self._handed_out = codec.HandedOut(f"app.{whose}({id!r}).state", logs.blob)

    def bag(self) -> Mapping[str, Raw]:
        """Return what is there."""
        found = known(self._logs, self._name)
        return {} if found is None else found.bag

    def note(self, name: str | None) -> None:
        """What is read here binds no writer: `expect=` says what a change counts on."""

    def value(self, name: str, raw: Raw) -> Any:
        """Return a field's value, read-only."""
        return self._handed_out.value(name, raw)

    def default(self, name: str, value: Any) -> Any:
        """Return what stands for a field that is not set, read-only."""
        return self._handed_out.default(name, value)

    def change(self, changes: Changes) -> Mapping[str, Raw]:
        """Change it; gives what is there then."""
        check(ev.StatePatched(patch=changes))
        return self._decided(patches.patch(self._logs, self._name, changes, None, "", "", {}))

    def update(self, name: str, fn: Update) -> Any:
        """Let a function make a new value."""
        check(ev.StateDeleted(name=name))
        decide = patches.update(self._logs, self._name, name, lambda found: updated(fn, found, name))
        return paths.lookup(self._decided(decide), name, self.value)

    def _decided(self, decide: Decide) -> Mapping[str, Raw]:
        return changed(self._logs, self._name, self._first, decide).bag
