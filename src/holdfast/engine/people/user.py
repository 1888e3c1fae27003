"""Users: state that outlives tasks, in a log of its own. `app.user("u1")` from outside, `task.user` from inside.

A task sees its user's state as it was when its turn began, and what it has changed itself since: so a replay reads the
same. What it changes is written to both logs in one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from holdfast.core import codec, events as ev, limits, names
from holdfast.core.codec import LoggedEvent, Summary
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidEvent, InvalidValue
from holdfast.core.events import Changes
from holdfast.core.state.patch import Patch, changes_of
from holdfast.core.state.shapes import State
from holdfast.engine.logs.logs import Logs
from holdfast.engine.people import fields, rollback
from holdfast.engine.people.erasure import erase_logs, threads_of
from holdfast.engine.people.fields import OutsideFields
from holdfast.engine.reading import timeline
from holdfast.engine.reading.steps import Values
from holdfast.engine.reading.task_state import STATUSES, FactState
from holdfast.engine.records.removal import erase_of_user
from holdfast.engine.system.entropy import random_hex
from holdfast.engine.verbs.user import linked_bag
from holdfast.store.protocol import Query


def _first() -> ev.UserCreated:
    return ev.UserCreated(salt=random_hex(8))


class UserState:
    """What is known of a user at one moment."""

    def __init__(self, id: str, state: State | None, logs: Logs) -> None:
        self.id = id
        self._hot = state
        self._logs = logs

    @property
    def seq(self) -> int:
        """The position in the user's log; 0 if nothing was ever written."""
        return 0 if self._hot is None else self._hot.seq

    @property
    def expires_at(self) -> datetime | None:
        """When `gc` may remove it, unless it changes before; None if it never expires."""
        hot = self._hot
        return None if hot is None or not hot.expire_us else codec.moment(hot.updated_us + hot.expire_us)

    @property
    def state_version(self) -> int:
        """The version of the model that it was last written under; 0 if it has none."""
        return 0 if self._hot is None else self._hot.state_version

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
        self._fields = OutsideFields(logs, self._name, "user", id, _first)
        self.state = linked_bag(self._fields)

    def get(self) -> UserState:
        """What is known now."""
        return UserState(self.id, fields.known(self._logs, self._name), self._logs)

    def at(self, seq: int) -> UserState:
        """Return the state just after an event of the user's log."""
        names.whole(seq, "seq", least=1)
        if self._logs.store.origin(self._name) is None:
            raise self._unknown()
        return UserState(self.id, self._logs.load(self._name, upto=seq).state, self._logs)

    def events(self, *, after: int = 0, limit: int | None = None) -> Iterator[LoggedEvent]:
        """Return the changes: what, when, by whom and why."""
        if self._logs.store.origin(self._name) is None:
            return iter(())
        return timeline.records(self._logs, self._name, after=after, limit=limit)

    def patch(self, patch: Patch, *, expect: int | None = None, by: str = "", why: str = "") -> UserState:
        """Change several things at once, all or nothing.

        `expect` is the seq of the state you have looked at: PatchConflict if another writer has changed the same since.
        """
        return self.change(changes_of(patch), expect=expect, by=by, why=why)

    def change(self, changes: Changes, *, expect: int | None = None, by: str = "", why: str = "") -> UserState:
        """The same, for changes that are encoded already."""
        states = self._fields.states
        decide = fields.patched(self._logs, self._name, changes, states, expect=expect, by=by, why=why)
        fields.check(ev.StatePatched(patch=changes, by=by, why=why))
        return UserState(self.id, fields.changed(self._logs, self._name, _first, decide), self._logs)

    def rollback(self, *, to: int | None = None, versions: int | None = None, by: str = "", why: str = "") -> UserState:
        """Set the user's state back to what it was at a seq, or before its last so many changes. The history stays.

        `versions` beyond the first change goes back to no state at all. Facts stay: they were learned.
        """
        way = rollback.way_back(to, versions)
        if fields.known(self._logs, self._name) is None:
            raise self._unknown()
        decide = rollback.restoring(self._logs, self._name, way, self._fields.states, by, why)
        return UserState(self.id, fields.changed(self._logs, self._name, _first, decide), self._logs)

    def _unknown(self) -> InvalidValue:
        return InvalidValue(
            f"there is no user {self.id!r}: nothing was ever set for that id", hint="check the id: app.user(id)"
        )

    def update(self, *, expire: Duration, by: str = "") -> User:
        """Set how long after the last change of their state `gc` removes what is kept of the user; 0: never."""
        event = ev.ExpirySet(expire_us=int(seconds(expire, "expire") * 1_000_000), by=by)
        fields.check(event)
        fields.changed(self._logs, self._name, _first, lambda state: (event,))
        return self

    def tasks(self, *, status: str | None = None, limit: int = limits.PAGE_SIZE) -> list[Summary]:
        """The user's tasks, newest first."""
        if status is not None and status not in STATUSES:
            raise InvalidValue(f"{status!r} is not a status", hint=f"use one of {', '.join(STATUSES)}")
        most = names.whole(limit, "limit", least=1, most=limits.MAX_PAGE_SIZE)
        return self._logs.store.list(Query(status=status, user=self.id, limit=most))

    def erase(self, *, by: str = "", why: str = "") -> int:
        """Erase what this user's log and tasks hold, their messages in threads, and records that are theirs.

        Returns how many events and records that were.

        That something happened, and when, stays, and so does the chain: `verify` passes. Tasks under way are refused.
        """
        names.text(by, "by")
        names.text(why, "why")
        tasks = list(self._all_tasks())
        open_ones = [one.id for one in tasks if one.status not in ("completed", "failed", "cancelled")]
        if open_ones:
            raise InvalidEvent(
                f"user {self.id!r} has {len(open_ones)} tasks that have not ended: {', '.join(open_ones[:5])}",
                hint="let them end, or cancel them; then erase the user",
            )
        own = {one.id for one in tasks}

        def theirs(event: ev.Event) -> bool:
            if isinstance(event, ev.MessageAdded):
                return event.user == self.id or event.by == self.id or event.task in own
            if isinstance(event, ev.StatePatched):
                return event.by == self.id or event.task in own
            return isinstance(event, ev.MetadataSet) and event.by == self.id

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


def users(logs: Logs, *, after: str | None, limit: int) -> list[User]:
    """The users there are, by their ids."""
    if type(limit) is not int or not 1 <= limit <= limits.MAX_PAGE_SIZE:
        raise InvalidValue(f"limit={limit!r} is out of range", hint=f"use 1 to {limits.MAX_PAGE_SIZE:,}")
    prefix = names.user_log("x")[:-1]
    last = None if after is None else names.user_log(after)
    return [User(logs, name.removeprefix(prefix)) for name in logs.store.logs(prefix=prefix, after=last, limit=limit)]
