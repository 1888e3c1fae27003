"""Threads: a conversation that spans tasks, in a log of its own. `app.thread("t1").messages` from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET

from holdfast.core import codec, events as ev, messages, names
from holdfast.core.codec import Group, LoggedEvent
from holdfast.core.messages import Form, Groups, Message, stored
from holdfast.core.state import rules
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import timeline


class Thread:
    """A conversation that several tasks may take part in."""

    def __init__(self, logs: Logs, id: str) -> None:
        self._logs = logs
        self._name = names.thread_log(id)
        self.id = id

    @property
    def seq(self) -> int:
        """The position in the thread's log; 0 if nothing was ever said."""
        head = self._logs.store.head(self._name)
        return 0 if head is None else head.seq

    @property
    def messages(self) -> list[Any]:
        """All messages in order, of all tasks and people."""
        return [codec.unpack(event.message, self._logs.blob) for event in self._said() if event.message is not UNSET]

    @property
    def tasks(self) -> list[str]:
        """The tasks that took part, in the order of their first message."""
        return list(dict.fromkeys(event.task for event in self._said() if event.task))

    def message(self, message: Mapping[str, Any] | Message, *, form: Form = "chat", by: str = "") -> None:
        """Say something from outside. Tasks of the thread see it in their next turn, or before their next message."""
        known = self._calls() if stored.has_calls(message, form) else None
        kept = stored.admitted(message, form, known)
        said = [ev.MessageAdded(message=codec.pack(one, "message"), by=by) for one in kept]
        for one in said:
            rules.check_text(one)  # before the log is begun
        self._logs.ensure(self._name, ev.ThreadCreated())
        write = self._logs.write_at_head(self._name, said, self._logs.salt(self._name))
        self._logs.committer.commit(Group((write,)))

    def render(self, form: Form = "chat") -> list[dict[str, Any]]:
        """All of it as a provider takes it, mended where a call has no result."""
        read = [stored.read(value, f"messages[{at}]") for at, value in enumerate(self.messages)]
        whole, _ = messages.repair(read, {})
        return messages.render(whole, form)

    def events(self, *, after: int = 0, limit: int | None = None) -> Iterator[LoggedEvent]:
        """Return its events: who wrote what, when, and in which task."""
        return timeline.records(self._logs, self._name, after=after, limit=limit) if self.seq else iter(())

    def _said(self) -> Iterator[ev.MessageAdded]:
        if not self.seq:
            return
        for row in self._logs.store.read_kind(self._name, "message_added"):
            event = decoded(self._name, row)
            if isinstance(event, ev.MessageAdded):
                yield event

    def _calls(self) -> Groups:
        groups = Groups()
        for at, value in enumerate(self.messages):
            groups.add(stored.read(value, f"messages[{at}]"))
        return groups

    def __len__(self) -> int:
        return sum(event.message is not UNSET for event in self._said())

    def __repr__(self) -> str:
        return f"<thread {self.id} of {len(self)} messages>"
