"""A task's user, from inside: their state as it was when the turn began, and what the task has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from msgspec import Raw

from holdfast.core import codec, events as ev
from holdfast.core.events import Changes
from holdfast.core.flows import writers
from holdfast.core.flows.requests import Condition, Unsettled
from holdfast.core.state import merge, paths, rules
from holdfast.core.state.patch import StatePatch, changes_of
from holdfast.core.state.paths import is_path
from holdfast.core.state.shapes import State
from holdfast.engine.reading.steps import Values
from holdfast.engine.reading.task_state import FactState
from holdfast.engine.verbs.bag import Update, Verbs, lent, refuse_no_update, refuse_taken, updated


class UserFields(Protocol):
    """What a user's state is read from and written to."""

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


class UserBag:
    """`app.user("u1").state.city = "Oslo"`, and `task.user.state.city`. A name with a dot is a path."""

    _fields: UserFields

    def __init__(self, fields: UserFields) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getitem__(self, name: str) -> Any:
        self._fields.note(name)
        return paths.lookup(self._fields.bag(), name, self._fields.value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            there = sorted(self._fields.bag())
            raise AttributeError(f"the user's state has no {name!r}; there is {there}") from None

    def __setitem__(self, name: str, value: Any) -> None:
        self._fields.change(Changes(set={name: codec.pack(value, f"state.{name}")}, nested=_nested(name)))

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_taken(self, name)
        self[name] = value

    def __delitem__(self, name: str) -> None:
        self._fields.change(Changes(delete=(name,), nested=_nested(name)))

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        self._fields.note(None)
        return iter(list(self._fields.bag()))

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or the default if there is none; read-only, both of them."""
        try:
            return self[name]
        except KeyError:
            return self._fields.default(name, default)

    def all(self) -> dict[str, Any]:
        """Everything at once."""
        self._fields.note(None)
        return {name: self._fields.value(name, raw) for name, raw in self._fields.bag().items()}

    def set(self, name: str, value: Any) -> None:
        """Set a value, by its name or by a path: `task.user.state.set("preferences.seat", "aisle")`."""
        self[name] = value

    def increment(self, name: str, by: float = 1) -> Any:
        """Add to a number, 0 if it was not there; gives the new one."""
        then = self._fields.change(changes_of(StatePatch(increment={name: by})))
        return paths.lookup(then, name, self._fields.value)

    def append(self, name: str, value: Any) -> None:
        """Add to a list, empty if it was not there."""
        self._fields.change(Changes(append={name: codec.pack(value, f"state.{name}")}, nested=_nested(name)))

    def update(self, name: str, fn: Update) -> Any:
        """Let a function make a new value of the newest one, None if there is none; gives the new one.

        It is durable when it returns, and an async agent awaits it. If another writer is faster, `fn` is called again.
        On replay of a task the recorded value counts, and `fn` is not called. What it raises in a task is StepFailed.

        >>> ana.state.update("trips", lambda trips: (trips or 0) + 1)  # doctest: +SKIP
        """
        refuse_no_update("user.state", name, fn)
        return self._fields.update(name, fn)

    def __repr__(self) -> str:
        shown = {name: self._fields.value(name, raw) for name, raw in self._fields.bag().items()}
        return f"<state {shown!r}>"


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
        self.state = UserBag(self._fields)

    @property
    def facts(self) -> Mapping[str, FactState]:
        """The facts about the user."""
        logs = self._fields.execution.logs
        return Values(self._fields.seen().facts, lambda fact: FactState(fact, logs))

    def patch(self, patch: StatePatch) -> None:
        """Change several things at once, all or nothing."""
        self._fields.change(changes_of(patch))

    def __repr__(self) -> str:
        return f"<user {self.id}>"


def user_root(user: TaskUser, template: object) -> Callable[[], dict[str, Any]]:
    """Return the root of `{user.…}` in a template: the named field is read, or with `{user}` all fields."""
    fields = user.state._fields  # pyright: ignore[reportPrivateUsage]
    if "{user}" in str(template):
        fields.note(None)
    return lambda: _Noted(fields)


class _Noted(dict[str, Any]):
    """A user's state for a template: what is looked up is noted."""

    def __init__(self, fields: UserFields) -> None:
        super().__init__({name: fields.value(name, raw) for name, raw in fields.bag().items()})
        self._fields = fields

    def __getitem__(self, name: str) -> Any:
        self._fields.note(name)
        return super().__getitem__(name)


class _Fields:
    """A user's state as a branch of a task sees it, and what the branch has looked at."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self.execution = verbs.execution
        self._handed_out = codec.HandedOut("task.user.state", verbs.execution.logs.blob)

    def seen(self) -> State:
        return self.execution.user_state(self._verbs.here())

    def bag(self) -> Mapping[str, Raw]:
        return self.seen().bag

    def note(self, name: str | None) -> None:
        branch = self._verbs.here()
        if branch.unsettled is None:
            branch.unsettled = Unsettled({})
        path = ("state",) if name is None else ("state", *paths.parts_of((), name))
        branch.unsettled.reads[path] = self.execution.see(branch).pins.user

    def value(self, name: str, raw: Raw) -> Any:
        return lent(self.execution, self._handed_out.value(name, raw), self._handed_out)

    def default(self, name: str, value: Any) -> Any:
        return lent(self.execution, self._handed_out.default(name, value), self._handed_out)

    def change(self, changes: Changes) -> Mapping[str, Raw]:
        """Change it with the task's own next write."""
        for name in (*changes.set, *changes.delete):
            self._handed_out.written(name)
        seen, patched = self.seen(), ev.StatePatched(patch=changes)
        rules.check(paths.opened(seen, patched, self.execution.logs.blob), patched)
        self._verbs.say(ev.UserPatched(patch=changes), self._condition(seen, changes))
        return self.seen().bag

    def update(self, name: str, fn: Update) -> Any:
        """Let a function make a new value: a waiting verb."""

        def make(state: State, key: str) -> ev.Event:
            found = paths.plain_lookup(state.bag, name, self.execution.value)
            value = codec.pack(updated(fn, found, name), f"state.{name}")
            patched = ev.StatePatched(patch=Changes(set={name: value}, nested=_nested(name)))
            rules.check(paths.opened(state, patched, self.execution.logs.blob), patched)
            return ev.UserPatched(patch=patched.patch, key=key)

        def made(_: Any) -> Any:
            self.note(name)
            return paths.lookup(self.bag(), name, self.value)

        path = ("user", "state", *paths.parts_of((), name))
        return self._verbs.drive("user.state.update", made, writers.update, path, make)

    def _condition(self, seen: State, changes: Changes) -> Condition | None:
        """Return the condition of a change: what it requires, and what was read of the fields it sets."""
        unsettled = self._verbs.here().unsettled
        reads = {} if unsettled is None else unsettled.reads
        since: dict[paths.Path, int] = {}
        for touch in merge.patch_touches(changes):
            found = [seq for path, seq in reads.items() if merge.overlap(path, touch.path)]
            if found and touch.how in ("set", "delete"):
                since[touch.path] = min(found)
        if not since and not changes.require:
            return None
        first = ".".join(next(iter(since), ())[1:])
        return Condition(since, codec.pack(paths.plain_lookup(seen.bag, first, self.execution.value)))
