"""The messages of a thread from outside: each with its id and time, page by page, and all of them as a model reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import MessagesRef, Stored
from holdfast.core.errors import InvalidValue
from holdfast.core.messages import Groups, stored
from holdfast.core.state.shapes import State
from holdfast.engine.conversations import thread_cache
from holdfast.engine.conversations.call_outcomes import CallOutcomes
from holdfast.engine.conversations.conversation import Conversation, Counted, Shown
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs

_ID = "msg_"


class ThreadMessage(Struct, frozen=True):
    """One message of a thread: its id, when it was added, the message as it was given, and whose it is."""

    id: str
    seq: int
    at_us: int
    message: Any
    task: str = ""
    by: str = ""
    user: str = ""

    @property
    def at(self) -> datetime:
        """When it was added, in UTC."""
        return codec.moment(self.at_us)

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        told = {"id": self.id, "at": self.at, "message": self.message}
        return codec.dump({**told, "task": self.task, "by": self.by, "user": self.user}).decode()


def id_of(seq: int) -> str:
    """The id of the message at a seq of its thread; no two messages of a thread ever have the same."""
    return f"{_ID}{seq}"


def place(given: Any, what: str) -> int:
    """The seq of a message that is named by its id."""
    number = given.removeprefix(_ID) if isinstance(given, str) and given.startswith(_ID) else ""
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise InvalidValue(
            f"{what}={str(given)[:80]!r} is not the id of a message", hint="give the .id of one, such as 'msg_17'"
        )
    return min(int(number), limits.MAX_SEQ)


class MessageReader:
    """Reads the messages of one thread, without those that were removed again."""

    def __init__(self, logs: Logs, name: str) -> None:
        self._logs = logs
        self._name = name

    def oldest(self, state: State, after: int, upto: int | None, limit: int | None) -> Iterator[ThreadMessage]:
        """Messages between two seqs, oldest first: no more is read than is asked for, or a page."""
        after, size, left = max(after, state.cleared), limits.READ_CHUNK if limit is None else limit, limit
        while rows := self._logs.store.read(self._name, after=after, upto=upto, limit=size):
            for one in self._messages([row for row in rows if row.kind == "message_added"], state):
                yield one
                left = None if left is None else left - 1
                if left == 0:
                    return
            after = rows[-1].seq

    def newest(self, state: State, after: int, upto: int | None, limit: int | None) -> Iterator[ThreadMessage]:
        """The same, newest first: no more is read than is asked for."""
        size, left = limits.READ_CHUNK if limit is None else max(limit, 1), limit
        after = max(after, state.cleared)
        while left is None or left > 0:
            rows = self._logs.store.read_kind(self._name, "message_added", after=after, upto=upto, last=size)
            for one in reversed(list(self._messages(rows, state))):
                if left == 0:
                    return
                left = None if left is None else left - 1
                yield one
            if len(rows) < size:
                return
            upto = rows[0].seq - 1

    def _messages(self, rows: list[Stored], state: State) -> Iterator[ThreadMessage]:
        for row in rows:
            event = decoded(self._name, row)
            if row.seq not in state.popped and isinstance(event, ev.MessageAdded) and event.message is not UNSET:
                value = self.value(event)
                yield ThreadMessage(id_of(row.seq), row.seq, row.at_us, value, event.task, event.by, event.user)

    def value(self, event: ev.MessageAdded) -> Any:
        """What a message is, as it was given."""
        value = codec.unpack(event.message, self._logs.blob)  # pyright: ignore[reportArgumentType]
        return codec.parse(value) if event.raw else value

    def conversation(self) -> Conversation:
        """All messages, as a model reads them; items that no provider's form can read are left out."""
        raws, digest, seen = list[Raw](), "", 0
        if self._logs.store.origin(self._name) is not None:
            spoken, state = thread_cache.all_of(self._logs, self._name), self._logs.load(self._name).state
            pairs, seen = zip(spoken.seqs, spoken.raws, strict=True), state.seq
            raws = [raw for seq, raw in pairs if state.cleared < seq and seq not in state.popped]
        for raw in raws:
            digest = codec.running(digest, raw)

        def value(raw: Any) -> Any:
            return codec.unpack(raw, self._logs.blob)

        outcomes = CallOutcomes(self._logs, self._name, value)
        counted = Counted(value, outcomes, threading.RLock(), self._logs.cache.messages)
        shown = Shown([(0, raw) for raw in raws], len(raws), (), seen)
        return Conversation(shown, MessagesRef(self._name, len(raws), digest), counted, None)

    def calls(self) -> Groups:
        """The calls of the conversation: which have been made, and which wait for a result."""
        groups = Groups()
        for at, value in enumerate(self.conversation()):
            groups.add(stored.read(value, f"messages[{at}]"))
        return groups
