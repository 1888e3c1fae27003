"""Sessions of ADK as records: their events in one log each, and state as logs of what changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote, unquote

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import Session, State
from msgspec import Struct
from pydantic_core import from_json, to_json

from holdfast import App, Conflict, RecordWrite

SPACE = "google-adk"
"""The space of records. `session/<app>/<user>/<id>` has one record when it is created and one for each event;
`state/app/…`, `state/user/…` and `state/session/…` have what changed, and now and then the whole."""

MOST_CHANGES = 64
"""How many changes of state are kept before they are put together."""

LOCKS = 64
ROUNDING_SECONDS = 0.001
"""How much a time may lose on its way through JSON and databases of others."""


class Name(Struct, frozen=True):
    """Whose session it is, and which."""

    app: str
    user: str
    id: str

    @property
    def key(self) -> str:
        """The key of its events."""
        return f"session/{_quoted(self.app, self.user, self.id)}"

    def states(self) -> dict[str, str]:
        """The keys of the state that it sees, by the prefix that names of that state have."""
        return {
            State.APP_PREFIX: f"state/app/{_quoted(self.app)}",
            State.USER_PREFIX: f"state/user/{_quoted(self.app, self.user)}",
            "": f"state/session/{_quoted(self.app, self.user, self.id)}",
        }

    @classmethod
    def of(cls, key: str) -> Name:
        """Read a key of events."""
        app, user, id = (unquote(part, errors="surrogatepass") for part in key.split("/")[1:])
        return cls(app, user, id)


class SessionStorage:
    """What is stored of sessions, read and written by one thread at a time."""

    def __init__(self, app: App) -> None:
        self._records = app.records(SPACE)
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    def create(self, name: Name, state: Mapping[str, Any]) -> Session:
        """Store a new session; AlreadyExistsError if there is one of that name."""
        at = time.time()
        header = to_json({"created": at})
        given = from_json(EventActions(state_delta=dict(state)).model_dump_json())["state_delta"]
        try:
            self._records.write([RecordWrite(key=name.key, data=header, expect=0), *self._changes(name, given)])
        except Conflict:
            raise AlreadyExistsError(f"Session with id {name.id} already exists.") from None
        return self._session(name, at, self._records.head(name.key), [])

    def read(self, name: Name, *, last: int | None, after: float | None) -> Session | None:
        """Return a session with its events, or the newest `last`, from a moment `after` on; None if there is none."""
        head = self._records.head(name.key)
        if head == 0:
            return None
        if last is None:
            rows = self._records.read(name.key, before=head + 1)
        else:
            rows = self._records.read(name.key, before=head + 1, last=last + 1)[::-1]
        found = [from_json(row.data) for row in rows]
        at = _moment(found[-1])
        events = [Event.model_validate(one) for one in found if "created" not in one]
        kept = events if last is None else events[max(0, len(events) - last) :]
        return self._session(name, at, head, [one for one in kept if after is None or one.timestamp >= after])

    def list(self, app: str, user: str | None) -> list[Session]:
        """Return the sessions of an app, or of one of its users, without their events: the oldest change first."""
        prefix = f"session/{_quoted(app)}/" if user is None else f"session/{_quoted(app, user)}/"
        found: list[Session] = []
        last: str | None = None
        while page := self._records.latest(prefix, after=last):
            found += [self._session(Name.of(row.key), _moment(from_json(row.data)), row.seq, []) for row in page]
            last = page[-1].key
        return sorted(found, key=lambda one: (one.last_update_time, one.user_id, one.id))

    def delete(self, name: Name) -> None:
        """Remove a session and its own state. What it set of the user's and the app's state stays."""
        self._records.drop(name.key, why="deleted")
        self._records.drop(name.states()[""], why="deleted")

    def user_state(self, name: Name) -> dict[str, Any]:
        """Return the state of a user in an app, without prefixes."""
        return self._state(name.states()[State.USER_PREFIX])

    def append(self, session: Session, event: Event) -> None:
        """Store an event after the one that the session object has last seen, with the state that it changes.

        Another writer's event in between is StaleSessionError. Several appends of one object follow each other.
        """
        name = Name(session.app_name, session.user_id, session.id)
        data = event.model_dump_json(exclude_none=True).encode()
        changed = from_json(EventActions(state_delta=event.actions.state_delta).model_dump_json())["state_delta"]
        with self._locks[hash(name.key) % LOCKS]:
            seen = self._seen(session, name)
            writes = [RecordWrite(key=name.key, data=data, expect=seen), *self._changes(name, changed)]
            try:
                self._records.write(writes)
            except Conflict:
                if self._records.head(name.key) == 0:
                    raise SessionNotFoundError(f"Session {session.id} not found.") from None
                raise StaleSessionError(
                    f"Session {session.id} has been modified in storage since it was read. get_session reads it again."
                ) from None
            mark(session, seen + 1)

    def _seen(self, session: Session, name: Name) -> int:
        """The seq that a session object was read at. One without a mark was made by hand: its time must do."""
        marker = cast("Any", session)._storage_update_marker
        head = self._records.head(name.key)
        if head == 0:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        if marker is not None:
            return int(marker)
        (newest,) = self._records.read(name.key, last=1)
        is_current = _moment(from_json(newest.data)) <= session.last_update_time + ROUNDING_SECONDS
        return head if is_current else 0

    def _changes(self, name: Name, state: Mapping[str, Any]) -> Iterator[RecordWrite]:
        """Writes of changed state, each into the log of its scope. What is temporary is not stored."""
        for prefix, key in name.states().items():
            changed = {
                one.removeprefix(prefix): value
                for one, value in state.items()
                if _prefix(one) == prefix and not one.startswith(State.TEMP_PREFIX)
            }
            if changed:
                yield RecordWrite(key=key, data=to_json({"set": changed}))

    def _session(self, name: Name, at: float, seq: int, events: list[Event]) -> Session:
        state: dict[str, Any] = {}
        for prefix, key in name.states().items():
            state.update({f"{prefix}{one}": value for one, value in self._state(key).items()})
        session = Session(
            id=name.id, app_name=name.app, user_id=name.user, state=state, events=events, last_update_time=at
        )
        mark(session, seq)
        return session

    def _state(self, key: str) -> dict[str, Any]:
        """The state that a log of changes adds up to. A long one is put together, so that reading stays short."""
        rows = self._records.read(key)
        state: dict[str, Any] = {}
        for row in rows:
            change = from_json(row.data)
            state = change["whole"] if "whole" in change else {**state, **change["set"]}
        if len(rows) > MOST_CHANGES:
            try:
                whole = self._records.append(key, to_json({"whole": state}), expect=rows[-1].seq)
                self._records.trim(key, keep=1, expect=whole)
            except Conflict:  # another writer was faster; the next reader puts it together
                return state
        return state


def mark(session: Session, seq: int) -> None:
    """Note in a session object how far it has been read: ADK has a place for that."""
    cast("Any", session)._storage_update_marker = str(seq)


def _prefix(name: str) -> str:
    return next((one for one in (State.APP_PREFIX, State.USER_PREFIX) if name.startswith(one)), "")


def _moment(found: Mapping[str, Any]) -> float:
    return found["created"] if "created" in found else found["timestamp"]


def _quoted(*parts: str) -> str:
    return "/".join(quote(part, safe="", errors="surrogatepass") for part in parts)
