"""What a task writes to other logs together with its own, and what it sees of them.

A task's payers get a record of what it spent. What it changes of its user's state stands in the user's log, what it
says, and changes of its thread's state, in the thread's. Of both it sees what was there when its turn began, and what
it has added itself: so a replay sees the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core import events as ev
from holdfast.core.codec import Head, Write
from holdfast.core.errors import SeqOutOfRange, TaskNotFound
from holdfast.core.flows.requests import Linked, LinkedNow
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
        self._seen: dict[Linked, tuple[int, State]] = {}
        self._talk: ThreadView | None = None
        self._payers: list[str] | None = None
        summary = log.state.summary
        self.linked = bool(log.state.payers) or summary.user is not None or summary.thread is not None
        """Whether there are any."""

    def writes(self, events: Sequence[ev.Event], heads: Sequence[tuple[Linked, Head]] = ()) -> tuple[Write, ...]:
        """What goes to the heads of other logs when these events are written; to some only after the heads given."""
        if not self.linked:
            return ()
        state, found = self._log.state, list[Write]()
        told = list(budget.shares(state, events)) if state.payers else []
        if told:
            found += (self._logs.write_at_head(payer, told, state.salt) for payer in self._paying())
        known = dict(heads)
        found += (self._patched(state, of, patches, known.get(of)) for of, patches in _patches(events, state))
        said = spoken_messages(state, events, self._logs) if self.speaks else []
        if said and self.talk is not None:
            found.append(self._logs.write_at_head(self.talk.name, said, self._at("thread", state).salt))
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
        user = self._log.state.summary.user
        if user is not None and self._logs.users is not None:
            self._logs.users.migrate(self._logs, user_log(user))
        if self.linked:
            self._read(self._log.state.pins)

    @property
    def is_stale(self) -> bool:
        """True if the task has spoken since the thread was last read."""
        return self._talk is not None and self._talk.is_stale

    def reread(self) -> None:
        """Read the messages of others before the task's own last one."""
        if self._talk is not None:
            self._talk.grow()

    def state(self, of: Linked, seen: State) -> State:
        """The user's or the thread's state as a branch sees it that sees that much of the task."""
        state, changes = self._at(of, seen), seen.user_changes if of == "user" else seen.thread_changes
        if not changes:
            return state
        state = state.copy()
        for patch in changes:
            state = evolve(state, state.summary.id, state.seq, state.updated_us, ev.StatePatched(patch=patch))
        return state

    def now(self, of: Linked, after: int | None) -> LinkedNow:
        """The user's or the thread's state as it is now, and what was written to its log after a seq."""
        state = self._log.state
        if _apart(state):
            return LinkedNow(self.state(of, state), None)
        if of == "thread" and self._talk is not None:
            self._talk.is_stale = True  # the task may see more of it after what it decides now
        log = self._logs.load(_log_of(of, state))
        rows = () if after is None else self._logs.rows(log.name, after=after, upto=log.head.seq)
        return LinkedNow(log.state, log.head, tuple((row.seq, decoded(name, row)) for name, row in rows))

    def _patched(self, state: State, of: Linked, patches: Sequence[ev.Changes], head: Head | None) -> Write:
        """What a task changes of a log beside its own, as it stands there."""
        by = f"{state.summary.agent} in task {state.summary.id}"
        changed = [ev.StatePatched(patch=patch, by=by, task=state.summary.id) for patch in patches]
        written = self._logs.write_at_head(_log_of(of, state), changed, self._at(of, state).salt)
        if of == "thread" and self._talk is not None:
            self._talk.is_stale = True
        return written if head is None else replace(written, expect=head)

    def _paying(self) -> list[str]:
        """Those who pay for the task and are still there."""
        if self._payers is None:
            self._payers = [one for one in self._log.state.payers if self._logs.store.origin(one) is not None]
        return self._payers

    def _read(self, pins: ev.Pins) -> None:
        self._paying()
        summary = self._log.state.summary
        if summary.user is not None:
            self._seen["user"] = (pins.user, self._before(user_log(summary.user), pins.user))
        if self.talk is not None:
            self._seen["thread"] = (pins.thread, self._before(self.talk.name, pins.thread))
            self.talk.grow()

    def _at(self, of: Linked, seen: State) -> State:
        seq = seen.pins.user if of == "user" else seen.pins.thread
        known = self._seen.get(of)
        if known is None or known[0] != seq:
            known = self._seen[of] = (seq, self._before(_log_of(of, seen), seq))
        return known[1]

    def _before(self, name: str, seq: int) -> State:
        """Return a state as it was at a seq; an empty one if the task never saw it, or if it was removed since."""
        if not seq:
            return self._nothing(name)
        try:
            return self._logs.load(name, upto=seq).state
        except (TaskNotFound, SeqOutOfRange):
            if not self._is_removed(name, seq):
                raise
        if not _apart(self._log.state):
            self.begin_again()
        return self._nothing(name)

    def _nothing(self, name: str) -> State:
        """Return the state of a user or a thread of which nothing is seen, with the salt of its log."""
        state = State(summary=first_summary(name, ev.UserCreated(), 0))
        state.salt = self._logs.salt(name)
        return state

    def _is_removed(self, name: str, seq: int) -> bool:
        """Return whether a log was removed since it reached a seq. It may have begun again after that."""
        origin = self._logs.store.origin(name)
        return origin is None or origin.at >= seq

    def begin_again(self) -> None:
        """Begin the logs anew that were removed while the task had ended, or at the moment it began."""
        summary = self._log.state.summary
        self._logs.pins(summary.user, summary.thread)
        self._talk = self._payers = None


def _log_of(of: Linked, state: State) -> str:
    id = state.summary.user if of == "user" else state.summary.thread
    assert id is not None, "only tasks of a user, or in a thread, change one"
    return user_log(id) if of == "user" else thread_log(id)


def _patches(events: Sequence[ev.Event], state: State) -> list[tuple[Linked, list[ev.Changes]]]:
    """What events change of other logs. What a fork or a mock task changes stays with itself."""
    if _apart(state):
        return []
    user = [one.patch for one in events if isinstance(one, ev.UserPatched)]
    thread = [one.patch for one in events if isinstance(one, ev.ThreadPatched)]
    found: list[tuple[Linked, list[ev.Changes]]] = []
    if user and state.summary.user is not None:
        found.append(("user", user))
    if thread and state.summary.thread is not None:
        found.append(("thread", thread))
    return found


def _apart(state: State) -> bool:
    """Return whether a task only tries things out: what a fork or a mock task changes and says stays with itself."""
    return bool(state.forked_from) or state.mock
