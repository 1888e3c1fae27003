"""What a task writes to other logs together with its own, and what it sees of them.

Those who pay for a task are told what it spent. What it changes of its user's state stands in the user's log, what it
says in its thread's. Of both it sees what was there when its turn began, and what it has added itself: so a replay
sees the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core import events as ev
from holdfast.core.codec import Head, Write
from holdfast.core.flows.requests import UserNow
from holdfast.core.names import thread_log, user_log
from holdfast.core.state import budget
from holdfast.core.state.fold import evolve
from holdfast.core.state.shapes import State
from holdfast.core.state.summary import first_summary
from holdfast.engine.conversations.thread_view import ThreadView, spoken_messages
from holdfast.engine.logs.log import Log, decoded
from holdfast.engine.logs.logs import Logs


class LinkedLogs:
    """The logs beside a task's own."""

    def __init__(self, logs: Logs, log: Log) -> None:
        self._logs = logs
        self._log = log
        self._user: tuple[int, State] | None = None
        self._talk: ThreadView | None = None
        self._payers: list[str] | None = None
        summary = log.state.summary
        self.linked = bool(log.state.payers) or summary.user is not None or summary.thread is not None
        """Whether there are any."""

    def writes(self, events: Sequence[ev.Event], user_head: Head | None = None) -> tuple[Write, ...]:
        """Return the writes to other logs that go with these events; to the user's only after `user_head`."""
        if not self.linked:
            return ()
        state, found = self._log.state, list[Write]()
        told = list(budget.shares(state, events)) if state.payers else []
        if told:
            found += (self._logs.write_at_head(payer, told, state.salt) for payer in self._paying())
        patches = [one.patch for one in events if isinstance(one, ev.UserPatched)]
        if patches and state.summary.user is not None and not _apart(state):
            by = f"{state.summary.agent} in task {state.summary.id}"
            changed = [ev.StatePatched(patch=patch, by=by, task=state.summary.id) for patch in patches]
            salt = self._user_at(state).salt
            written = self._logs.write_at_head(user_log(state.summary.user), changed, salt)
            found.append(written if user_head is None else replace(written, expect=user_head))
        said = spoken_messages(state, events, self._logs) if self.speaks else []
        if said and self.talk is not None:
            found.append(self._logs.write_at_head(self.talk.name, said, self.talk.salt))
            self.talk.is_stale = True
        return tuple(found)

    @property
    def speaks(self) -> bool:
        """True if what the task says goes to its thread."""
        state = self._log.state
        return state.summary.thread is not None and not _apart(state)

    @property
    def talk(self) -> ThreadView | None:
        """The thread's messages; None if the task has no thread."""
        thread = self._log.state.summary.thread
        if self._talk is None and thread is not None:
            self._talk = ThreadView(self._logs, thread_log(thread), self._log)
        return self._talk

    def pin(self) -> ev.Pins | None:
        """See more of the user and the thread from now on."""
        summary = self._log.state.summary
        pins = self._logs.pins(summary.user, summary.thread)
        if pins is not None:
            self._read(pins)
        return pins

    def load(self) -> None:
        """Read what will be looked at: an event loop must not wait for it."""
        if self.linked:
            self._read(self._log.state.pins)

    @property
    def is_stale(self) -> bool:
        """True if the task has spoken since the thread was last read."""
        return self._talk is not None and self._talk.is_stale

    def reread(self) -> None:
        """Read what others said before the task's own last message."""
        if self._talk is not None:
            self._talk.grow()

    def user_state(self, seen: State) -> State:
        """The user's state as a branch sees it that sees that much of the task."""
        state = self._user_at(seen)
        if not seen.user_changes:
            return state
        state = state.copy()
        for patch in seen.user_changes:
            state = evolve(state, state.summary.id, state.seq, state.updated_us, ev.StatePatched(patch=patch))
        return state

    def user_now(self, after: int | None) -> UserNow:
        """The user's state as it is now, and what was written to their log after a seq."""
        state = self._log.state
        assert state.summary.user is not None
        if _apart(state):
            return UserNow(self.user_state(state), None)
        log = self._logs.load(user_log(state.summary.user))
        rows = () if after is None else self._logs.rows(log.name, after=after, upto=log.head.seq)
        return UserNow(log.state, log.head, tuple((row.seq, decoded(name, row)) for name, row in rows))

    def _paying(self) -> list[str]:
        """Those who pay for the task and are still there."""
        if self._payers is None:
            self._payers = [one for one in self._log.state.payers if self._logs.store.origin(one) is not None]
        return self._payers

    def _read(self, pins: ev.Pins) -> None:
        self._paying()
        summary = self._log.state.summary
        if summary.user is not None:
            self._user = (pins.user, self._user_before(user_log(summary.user), pins.user))
        if self.talk is not None:
            self.talk.load()

    def _user_at(self, seen: State) -> State:
        assert seen.summary.user is not None
        if self._user is None or self._user[0] != seen.pins.user:
            self._user = (seen.pins.user, self._user_before(user_log(seen.summary.user), seen.pins.user))
        return self._user[1]

    def _user_before(self, name: str, seq: int) -> State:
        """A task that began before tasks looked at their users sees nothing of them."""
        if not seq:
            return State(summary=first_summary(name, ev.UserCreated(), 0))
        return self._logs.load(name, upto=seq).state


def _apart(state: State) -> bool:
    """Return whether a task only tries things out: what a fork or a mock task changes and says stays with itself."""
    return bool(state.forked_from) or state.mock
