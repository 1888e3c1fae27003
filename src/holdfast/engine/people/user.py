"""Users: state that outlives tasks, in a log of its own. `app.user("u1")` from outside, `task.user` from inside.

A task sees its user's state as it was when its turn began, and what it has changed itself since: so a replay reads the
same. What it changes is written to both logs in one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Raw

from holdfast.core import codec, events as ev, limits, names
from holdfast.core.codec import LoggedEvent, Summary
from holdfast.core.errors import InvalidEvent
from holdfast.core.events import Changes
from holdfast.core.state import paths, rules
from holdfast.core.state.patch import StatePatch, changes_of
from holdfast.core.state.shapes import State
from holdfast.engine.control import patches
from holdfast.engine.control.change import Decide, change
from holdfast.engine.logs.logs import Logs
from holdfast.engine.people.erasure import erase_logs, threads_of
from holdfast.engine.reading import timeline
from holdfast.engine.reading.steps import Values
from holdfast.engine.reading.task_state import FactState
from holdfast.engine.records.removal import erase_of_user
from holdfast.engine.system.entropy import random_hex
from holdfast.engine.verbs.bag import Update, updated
from holdfast.engine.verbs.user import UserBag
from holdfast.store.protocol import Query


class UserState:
    """What is known of a user at one moment."""

    def __init__(self, id: str, state: State | None, logs: Logs) -> None:
        self.id = id
        self._hot = state
        self._logs = logs

    @property
    def seq(self) -> int:
        """The position in the user's log; 0 if nothing was ever said."""
        return 0 if self._hot is None else self._hot.seq

    @property
    def state(self) -> Mapping[str, Any]:
        """The values that were set."""
        return Values({} if self._hot is None else self._hot.bag, lambda raw: codec.unpack(raw, self._logs.blob))

    @property
    def facts(self) -> Mapping[str, FactState]:
        """The facts that were learned."""
        return Values({} if self._hot is None else self._hot.facts, lambda fact: FactState(fact, self._logs))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON."""
        facts = {key: {"value": fact.value, "source": fact.source} for key, fact in self.facts.items()}
        return {"id": self.id, "seq": self.seq, "state": dict(self.state), "facts": facts}

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return codec.dump(self.to_dict()).decode()

    def __repr__(self) -> str:
        return f"<user {self.id} at seq {self.seq}>"


class User:
    """A person's lasting state, their tasks, and how to forget them."""

    def __init__(self, logs: Logs, id: str) -> None:
        self._logs = logs
        self._name = names.user_log(id)
        self.id = id
        self.state = UserBag(_Fields(logs, id))

    def get(self) -> UserState:
        """Return the state now."""
        return UserState(self.id, _known(self._logs, self._name), self._logs)

    def at(self, seq: int) -> UserState:
        """Return the state just after an event of the user's log."""
        return UserState(self.id, self._logs.load(self._name, upto=seq).state, self._logs)

    def events(self, *, after: int = 0, limit: int | None = None) -> Iterator[LoggedEvent]:
        """Return the changes: what, when, by whom and why."""
        if self._logs.store.origin(self._name) is None:
            return iter(())
        return timeline.records(self._logs, self._name, after=after, limit=limit)

    def patch(self, patch: StatePatch, *, expect: int | None = None, by: str = "", why: str = "") -> UserState:
        """Change several things at once, all or nothing.

        `expect` is the seq of the state you have looked at: PatchConflict if another writer has changed the same since.
        """
        return self.change(changes_of(patch), expect=expect, by=by, why=why)

    def change(self, changes: Changes, *, expect: int | None = None, by: str = "", why: str = "") -> UserState:
        """The same, for changes that are encoded already."""
        decide = patches.patch(self._logs, self._name, changes, expect, by, why, {})
        rules.check_text(ev.StatePatched(patch=changes, by=by, why=why))  # before the log is begun
        return UserState(self.id, _changed(self._logs, self._name, decide), self._logs)

    def tasks(self, *, status: str | None = None, limit: int = limits.PAGE_SIZE) -> list[Summary]:
        """The user's tasks, newest first."""
        return self._logs.store.list(Query(status=status, user=self.id, limit=limit))

    def erase(self, *, by: str = "", why: str = "") -> int:
        """Forget what this user's log and tasks say, what they said in threads, and records that are theirs.

        Returns how many events and records that were.

        That something happened, and when, stays, and so does the chain: `verify` passes. Tasks under way are refused.
        """
        names.text(f"{by} {why}", "reason")
        tasks = list(self._all_tasks())
        open_ones = [one.id for one in tasks if one.status not in ("completed", "failed", "cancelled")]
        if open_ones:
            raise InvalidEvent(
                f"user {self.id!r} has {len(open_ones)} tasks that have not ended: {', '.join(open_ones[:5])}",
                hint="let them end, or cancel them; then erase the user",
            )
        own = {one.id for one in tasks}

        def theirs(event: ev.Event) -> bool:
            said = isinstance(event, ev.MessageAdded)
            return said and (event.user == self.id or event.by == self.id or event.task in own)

        erased = erase_logs(self._logs, [self._name, *(one.id for one in tasks)], by=by, why=why)
        erased += erase_logs(self._logs, threads_of(self._logs), by=by, why=why, only=theirs)
        return erased + erase_of_user(self._logs, self.id, by=by, why=why)

    def _all_tasks(self) -> Iterator[Summary]:
        after: str | None = None
        while page := self._logs.store.list(Query(user=self.id, limit=limits.PAGE_SIZE, after=after)):
            yield from page
            after = page[-1].id

    def __repr__(self) -> str:
        return f"<user {self.id}>"


def _known(logs: Logs, name: str) -> State | None:
    """A user's state now; None if nothing was ever said of them."""
    return None if logs.store.origin(name) is None else logs.load(name).state


def _changed(logs: Logs, name: str, decide: Decide) -> State:
    """A user's state as a decision about the present one makes it."""
    logs.ensure(name, ev.UserCreated(salt=random_hex(8)))
    return change(logs, name, decide, tries=limits.MAX_UPDATE_TRIES).state


class _Fields:
    """A user's state from outside: every change is durable when it returns."""

    def __init__(self, logs: Logs, id: str) -> None:
        self._logs = logs
        self._name = names.user_log(id)
        self._handed_out = codec.HandedOut(f"app.user({id!r}).state", logs.blob)

    def bag(self) -> Mapping[str, Raw]:
        known = _known(self._logs, self._name)
        return {} if known is None else known.bag

    def note(self, name: str | None) -> None:
        """Return without a note: reading here binds no writer, `expect=` does."""

    def value(self, name: str, raw: Raw) -> Any:
        return self._handed_out.value(name, raw)

    def default(self, name: str, value: Any) -> Any:
        return self._handed_out.default(name, value)

    def change(self, changes: Changes) -> Mapping[str, Raw]:
        rules.check_text(ev.StatePatched(patch=changes))  # before the log is begun
        return self._decided(patches.patch(self._logs, self._name, changes, None, "", "", {}))

    def update(self, name: str, fn: Update) -> Any:
        rules.check_text(ev.StateDeleted(name=name))  # before the log is begun
        decide = patches.update(self._logs, self._name, name, lambda found: updated(fn, found, name))
        return paths.lookup(self._decided(decide), name, self.value)

    def _decided(self, decide: Decide) -> Mapping[str, Raw]:
        return _changed(self._logs, self._name, decide).bag
