"""The state of a user or a thread from outside: every change is durable when it returns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import Summary
from holdfast.core.events import Changes, Event
from holdfast.core.state import paths, rules
from holdfast.core.state.shapes import State
from holdfast.engine.control import patches
from holdfast.engine.control.change import Decide, change
from holdfast.engine.definitions.lent import Lent
from holdfast.engine.definitions.state_versions import States, admit_patch
from holdfast.engine.logs.logs import Logs
from holdfast.engine.verbs.bag import Update, inside_of, updated
from holdfast.engine.verbs.user import typed_field, typed_found, typed_whole

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


def patched(
    logs: Logs,
    name: str,
    changes: Changes,
    states: States | None = None,
    *,
    expect: int | None = None,
    by: str = "",
    why: str = "",
) -> Decide:
    """Change a state, unless others changed the same since `expect`; it must fit the model if one is declared."""
    plain = patches.patch(logs, name, changes, expect, by, why, {})
    if states is None:
        return plain

    def decide(state: State) -> Sequence[Event]:
        (event,) = plain(state)
        assert isinstance(event, ev.StatePatched)
        return admit_patch(states, state, event, logs.blob)

    return decide


class OutsideFields:
    """The fields of a state that tasks share, as `app.user(id)` and `app.thread(id)` have them."""

    def __init__(self, logs: Logs, name: str, whose: str, id: str, first: First) -> None:
        self._logs = logs
        self._name = name
        self._first = first
        self.whose = whose
        self._handed_out = codec.HandedOut(f"app.{whose}({id!r}).state", logs.blob)
        self._lent = Lent(f"app.{whose}({id!r}).state")
        self.states: States | None = logs.users.states if whose == "user" and logs.users is not None else None
        """The model of users' state; a thread's has none."""

    def bag(self) -> Mapping[str, Raw]:
        """Return what is there."""
        found = known(self._logs, self._name)
        if found is None:
            return {}
        return found.bag if self.states is None else self.states.seen(found, self._logs.blob).bag

    def typed(self, name: str) -> Any:
        """Return a field as the model has it; a change of it in place is found out by the next verb."""
        assert self.states is not None
        self._lent.check()
        state = self._now()
        source = (state.state_version, state.bag.get(name))
        handed = self._lent.known(name, source)
        value = typed_field(self.states, state, name, self._logs.blob) if handed is None else handed[0]
        return self._lent.lend(name, source, value)

    def whole(self) -> Any:
        """Return all of it as an instance of the model."""
        assert self.states is not None
        return typed_whole(self.states, self._now(), self._logs.blob)

    def _now(self) -> State:
        found = known(self._logs, self._name)
        return State(summary=Summary(id=self._name, agent="")) if found is None else found

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
        for name in (*changes.set, *changes.delete):
            self._lent.returned(name)
        self._lent.check()
        return self._decided(patched(self._logs, self._name, changes, self.states))

    def update(self, name: str, fn: Update) -> Any:
        """Let a function make a new value."""
        check(ev.StateDeleted(name=name))
        self._lent.returned(name)
        if self.states is None:
            decide = patches.update(self._logs, self._name, name, lambda found: updated(fn, found, name))
            return paths.lookup(self._decided(decide), name, self.value)
        self._decided(self._typed_update(self.states, name, fn))
        top, *inside = paths.parts_of((), name)
        return functools.reduce(inside_of, inside, self.typed(top))

    def _typed_update(self, states: States, name: str, fn: Update) -> Decide:
        def decide(state: State) -> Sequence[Event]:
            made = updated(fn, typed_found(states, state, name, self._logs.blob), name)
            nested = (name,) if paths.is_path(name) else ()
            changes = Changes(set={name: codec.pack_typed(made, f"state.{name}")}, nested=nested)
            return patched(self._logs, self._name, changes, states)(state)

        return decide

    def _decided(self, decide: Decide) -> Mapping[str, Raw]:
        return changed(self._logs, self._name, self._first, decide).bag
