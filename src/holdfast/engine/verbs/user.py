"""A task's user and its thread, from inside: their state when the turn began, and what the task has changed since."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from msgspec import Raw

from holdfast.core import codec, events as ev
from holdfast.core.events import Changes
from holdfast.core.flows import writers
from holdfast.core.flows.requests import Condition, Linked, Unsettled
from holdfast.core.state import merge, paths, rules
from holdfast.core.state.patch import Patch, StatePatch, changes_of
from holdfast.core.state.paths import is_path
from holdfast.core.state.shapes import State
from holdfast.engine.definitions.lent import USER
from holdfast.engine.definitions.state_versions import States, fit_patch
from holdfast.engine.reading.steps import Values
from holdfast.engine.reading.task_state import FactState
from holdfast.engine.verbs.bag import (
    StateBag,
    Update,
    Verbs,
    inside_of,
    lend,
    lent,
    refuse_no_update,
    updated,
)


class LinkedFields(Protocol):
    """What a user's or a thread's state is read from and written to."""

    whose: str
    """Whose state it is, for errors: "user" or "thread"."""

    def bag(self) -> Mapping[str, Raw]:
        """Return the values."""
        ...

    def note(self, name: str | None) -> None:
        """Remember that a field was looked at, or everything."""
        ...

    def value(self, name: str, raw: Raw) -> Any:
        """A field's value, read-only."""
        ...

    def default(self, name: str, value: Any) -> Any:
        """Return the default of a field that is not set, read-only."""
        ...

    def change(self, changes: Changes) -> Mapping[str, Raw]:
        """Change it; gives what is there then."""
        ...

    def update(self, name: str, fn: Update) -> Any:
        """Let a function make a new value."""
        ...

    @property
    def states(self) -> States | None:
        """The model and its versions."""
        ...

    def typed(self, name: str) -> Any:
        """Return a field as the model has it; KeyError if it is neither set nor has a default."""
        ...

    def whole(self) -> Any:
        """Return all of it as an instance of the model."""
        ...


class LinkedBag(StateBag):
    """State that tasks share: `app.user("u1").state.city = "Oslo"`, `task.thread.state.topic`. A dot makes a path."""

    _fields: LinkedFields

    def __init__(self, fields: LinkedFields) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getitem__(self, name: str) -> Any:
        self._fields.note(paths.field_name(name))
        return paths.lookup(self._fields.bag(), name, self._fields.value)

    def __setitem__(self, name: str, value: Any) -> None:
        name = paths.field_name(name)
        self._fields.change(Changes(set={name: codec.pack(value, f"state.{name}")}, nested=_nested(name)))

    def __delitem__(self, name: str) -> None:
        self._fields.change(Changes(delete=(paths.field_name(name),), nested=_nested(name)))

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        self._fields.note(None)
        return iter(list(self._fields.bag()))

    def all(self) -> dict[str, Any]:
        """Everything at once."""
        self._fields.note(None)
        return {name: self._fields.value(name, raw) for name, raw in self._fields.bag().items()}

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number, 0 if it was not there; gives the new one."""
        then = self._fields.change(changes_of(StatePatch(increment={paths.field_name(name): by})))
        return paths.lookup(then, name, self._fields.value)

    def append(self, name: str, value: Any) -> None:
        """Add to a list, empty if it was not there."""
        name = paths.field_name(name)
        self._fields.change(Changes(append={name: codec.pack(value, f"state.{name}")}, nested=_nested(name)))

    def update(self, name: str, fn: Update) -> Any:
        """Let a function make a new value of the newest one, None if there is none; gives the new one.

        It is durable when it returns, and an async agent awaits it. If another writer is faster, `fn` is called again.
        On replay of a task the recorded value counts, and `fn` is not called. What it raises in a task is StepFailed.

        >>> ana.state.update("trips", lambda trips: (trips or 0) + 1)  # doctest: +SKIP
        """
        refuse_no_update(f"{self._fields.whose}.state", name, fn)
        return self._fields.update(name, fn)

    def __repr__(self) -> str:
        shown = {name: self._fields.value(name, raw) for name, raw in self._fields.bag().items()}
        return f"<state {shown!r}>"

    def _default(self, name: str, default: Any) -> Any:
        return self._fields.default(name, default)

    def _missing(self, name: str) -> str:
        return f"the {self._fields.whose}'s state has no {name!r}; there is {sorted(self._fields.bag())}"


class TypedLinkedBag(LinkedBag):
    """A user's state as its model has it: `task.user.state.address.city`."""

    def __getitem__(self, name: str) -> Any:
        self._fields.note(paths.field_name(name))
        top, *inside = paths.parts_of((), name)
        assert self._fields.states is not None
        if top not in self._fields.states.model.fields:
            raise KeyError(name)
        return functools.reduce(inside_of, inside, self._fields.typed(top))

    def all(self) -> dict[str, Any]:
        """Every field that has a value, set or by default."""
        assert self._fields.states is not None
        return {name: self[name] for name in self._fields.states.model.fields if name in self}

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number; one that is not set begins at the model's default, or at 0."""
        super().increment(name, by)
        return self[name]

    @property
    def model(self) -> Any:
        """The whole state as an instance of its model; InvalidState names what is missing."""
        self._fields.note(None)
        return self._fields.whole()


def linked_bag(fields: LinkedFields) -> LinkedBag:
    """Return the state of a user or a thread: typed, if a model is declared."""
    return LinkedBag(fields) if fields.states is None else TypedLinkedBag(fields)


def typed_field(states: States, state: State, name: str, fetch: codec.Fetch) -> Any:
    """Return a field as the model has it; KeyError if it is neither set nor has a default."""
    return states.model.value(_plain(states, state, fetch), name)


def typed_whole(states: States, state: State, fetch: codec.Fetch) -> Any:
    """Return a whole state as an instance of the model."""
    return states.model.whole(_plain(states, state, fetch))


def _plain(states: States, state: State, fetch: codec.Fetch) -> dict[str, Any]:
    return {one: codec.unpack(raw, fetch) for one, raw in states.seen(state, fetch).bag.items()}


def typed_found(states: States, state: State, name: str, fetch: codec.Fetch) -> Any:
    """Return what a path leads to, as the model has it; None if nothing is there: what `update` gives its function."""
    top, *inside = paths.parts_of((), name)
    states.model.refuse_unknown([top])
    try:
        return functools.reduce(inside_of, inside, typed_field(states, state, top, fetch))
    except KeyError:
        return None


def _nested(name: str) -> tuple[str, ...]:
    return (name,) if is_path(name) else ()


class TaskUser:
    """Whose task it is: `task.user.state.city`. What is changed here is in the user's log with the task's own event.

    A field that the task has read, and then sets or deletes, is changed only if no other writer has changed it since.
    If one has, the next waiting verb raises PatchConflict. `update` calls its function again instead.
    """

    def __init__(self, id: str, verbs: Verbs) -> None:
        self.id = id
        self._fields = _Fields(verbs)
        self.state = linked_bag(self._fields)

    @property
    def facts(self) -> Mapping[str, FactState]:
        """The facts about the user."""
        logs = self._fields.execution.logs
        return Values(self._fields.seen().facts, lambda fact: FactState(fact, logs))

    def patch(self, patch: Patch) -> None:
        """Change several things at once, all or nothing."""
        self._fields.change(changes_of(patch))

    def __repr__(self) -> str:
        return f"<user {self.id}>"


class TaskThread:
    """The conversation of a task: `task.thread.state.topic`, which all tasks of the thread share.

    What is changed here is in the thread's log with the task's own event, under the same rules as a user's state. Its
    messages are `task.messages`.
    """

    def __init__(self, id: str, verbs: Verbs) -> None:
        self.id = id
        self._fields = _Fields(verbs, "thread")
        self.state = LinkedBag(self._fields)

    def patch(self, patch: StatePatch) -> None:
        """Change several things at once, all or nothing."""
        self._fields.change(changes_of(patch))

    def __repr__(self) -> str:
        return f"<thread {self.id}>"


def user_root(user: TaskUser, template: object) -> Callable[[], dict[str, Any]]:
    """Return the root of `{user.…}` in a template: the named field is read, or with `{user}` all fields."""
    fields = user.state._fields  # pyright: ignore[reportPrivateUsage]
    if "{user}" in str(template):
        fields.note(None)
    return lambda: _Noted(fields)


class _Noted(dict[str, Any]):
    """A user's state for a template: what is looked up is noted."""

    def __init__(self, fields: LinkedFields) -> None:
        super().__init__({name: fields.value(name, raw) for name, raw in fields.bag().items()})
        self._fields = fields

    def __getitem__(self, name: str) -> Any:
        self._fields.note(name)
        return super().__getitem__(name)


class _Fields:
    """A user's or a thread's state as a branch of a task sees it, and what the branch has looked at."""

    def __init__(self, verbs: Verbs, of: Linked = "user") -> None:
        self._verbs = verbs
        self._of: Linked = of
        self.whose: str = of
        self._patched = ev.UserPatched if of == "user" else ev.ThreadPatched
        self.execution = verbs.execution
        self._handed_out = codec.HandedOut(f"task.{of}.state", verbs.execution.logs.blob)

    def seen(self) -> State:
        return self.execution.linked_state(self._of, self._verbs.here())

    def bag(self) -> Mapping[str, Raw]:
        return self.seen().bag

    def note(self, name: str | None) -> None:
        branch = self._verbs.here()
        if branch.unsettled is None:
            branch.unsettled = Unsettled({})
        path = () if name is None else paths.parts_of((), name)
        pins = self.execution.see(branch).pins
        branch.unsettled.reads[self._of, "state", *path] = pins.user if self._of == "user" else pins.thread

    def value(self, name: str, raw: Raw) -> Any:
        return lent(self.execution, self._handed_out.value(name, raw), self._handed_out)

    def default(self, name: str, value: Any) -> Any:
        return lent(self.execution, self._handed_out.default(name, value), self._handed_out)

    @property
    def states(self) -> States | None:
        """The model of users' state; a thread's has none."""
        users = self.execution.logs.users
        return None if users is None or self._of != "user" else users.states

    def typed(self, name: str) -> Any:
        """Return a field as the model has it, which no one may change in place."""
        states, seen = self.states, self.seen()
        assert states is not None
        key, source = USER + name, (seen.state_version, seen.bag.get(name))
        loans = lend(self.execution)
        handed = loans.known(key, source)
        if handed is not None:
            return handed[0]
        return loans.lend(key, source, typed_field(states, seen, name, self.execution.logs.blob))

    def whole(self) -> Any:
        """Return all of it as an instance of the model."""
        assert self.states is not None
        return typed_whole(self.states, self.seen(), self.execution.logs.blob)

    def change(self, changes: Changes) -> Mapping[str, Raw]:
        """Change it with the task's own next write."""
        for name in (*changes.set, *changes.delete):
            self._handed_out.written(name)
            if self.execution.lent is not None and self._of == "user":
                self.execution.lent.returned(USER + name)
        seen, patched = self.seen(), ev.StatePatched(patch=changes)
        if self.states is not None:
            changes = fit_patch(self.states, seen, patched, self.execution.logs.blob).patch
        rules.check(paths.opened(seen, patched, self.execution.logs.blob), patched)
        self._verbs.say(self._patched(patch=changes), self._condition(seen, changes))
        return self.seen().bag

    def update(self, name: str, fn: Update) -> Any:
        """Let a function make a new value: a waiting verb."""

        def make(state: State, key: str) -> ev.Event:
            states, blob = self.states, self.execution.logs.blob
            if states is None:
                found = paths.plain_lookup(state.bag, name, self.execution.value)
                value = codec.pack(updated(fn, found, name), f"state.{name}")
            else:
                found = typed_found(states, state, name, blob)
                value = codec.pack_typed(updated(fn, found, name), f"state.{name}")
            patched = ev.StatePatched(patch=Changes(set={name: value}, nested=_nested(name)))
            if states is not None:
                patched = fit_patch(states, state, patched, blob)
            rules.check(paths.opened(state, patched, self.execution.logs.blob), patched)
            return self._patched(patch=patched.patch, key=key)

        def made(_: Any) -> Any:
            self.note(name)
            if self.states is None:
                return paths.lookup(self.bag(), name, self.value)
            top, *inside = paths.parts_of((), name)
            return functools.reduce(inside_of, inside, self.typed(top))

        path = (self._of, "state", *paths.parts_of((), name))
        return self._verbs.drive(f"{self._of}.state.update", made, writers.update, path, make)

    def _condition(self, seen: State, changes: Changes) -> Condition | None:
        """Return the condition of a change: what it requires, and what was read of the fields it sets."""
        unsettled = self._verbs.here().unsettled
        reads = {} if unsettled is None else unsettled.reads
        since: dict[paths.Path, int] = {}
        for touch in merge.patch_touches(changes):
            found = [seq for path, seq in reads.items() if merge.overlap(path, (self._of, *touch.path))]
            if found and touch.how in ("set", "delete"):
                since[touch.path] = min(found)
        if not since and not changes.require:
            return None
        first = ".".join(next(iter(since), ())[1:])
        return Condition(since, codec.pack(paths.plain_lookup(seen.bag, first, self.execution.value)))
