"""Threads: a conversation that spans tasks, in a log of its own. `app.thread("t1").messages` from outside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from msgspec.structs import replace

from holdfast.core import codec, events as ev, limits, messages, names
from holdfast.core.codec import Group, LoggedEvent, Tombstone
from holdfast.core.context.window import Strategy
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import Conflict, InvalidEvent, InvalidMessage, InvalidValue, StoreBusy, TaskNotFound
from holdfast.core.events import Event
from holdfast.core.messages import Form, Message, stored
from holdfast.core.messages.tokens import Counter
from holdfast.core.state import rules
from holdfast.core.state.patch import Patch, changes_of
from holdfast.core.state.shapes import State
from holdfast.engine.control import patches
from holdfast.engine.control.change import change
from holdfast.engine.conversations.conversation import Sent
from holdfast.engine.logs.logs import Logs
from holdfast.engine.people import fields
from holdfast.engine.people.fields import OutsideFields
from holdfast.engine.people.thread_messages import MessageReader, ThreadMessage, id_of, place
from holdfast.engine.reading import timeline
from holdfast.engine.system.entropy import random_hex
from holdfast.engine.verbs.user import LinkedBag
from holdfast.store.protocol import Query

_OPEN = ("pending", "running", "waiting")


class Thread:
    """A conversation that several tasks may take part in, with a state that they share.

        thread = app.thread("t-9")
        thread.add([{"role": "user", "content": "My lamp is broken."}])
        thread.state.topic = "lamps"
        app.run(support, thread="t-9")

    Safe from several threads and processes.
    """

    def __init__(self, logs: Logs, id: str) -> None:
        self._logs = logs
        self._name = names.thread_log(id)
        self._reader = MessageReader(logs, self._name)
        self.id = id
        self.state = LinkedBag(OutsideFields(logs, self._name, "thread", id, ev.ThreadCreated))

    # What it is

    @property
    def exists(self) -> bool:
        """True if the thread exists: it was created, or something was written in it."""
        return self._logs.store.origin(self._name) is not None

    @property
    def seq(self) -> int:
        """The position in the thread's log; 0 if nothing was ever written."""
        head = self._logs.store.head(self._name)
        return 0 if head is None else head.seq

    @property
    def created_at(self) -> datetime | None:
        """When it began; None if it is not there."""
        state = self._known()
        return None if state is None else codec.moment(state.log_created_us)

    @property
    def updated_at(self) -> datetime | None:
        """When it last changed; None if it is not there."""
        state = self._known()
        return None if state is None else codec.moment(state.updated_us)

    @property
    def expires_at(self) -> datetime | None:
        """When `gc` may remove it, unless something happens in it before; None if it never expires."""
        state = self._known()
        return None if state is None or not state.expire_us else codec.moment(state.updated_us + state.expire_us)

    @property
    def metadata(self) -> dict[str, Any]:
        """What your program noted about the thread."""
        state = self._known()
        return {} if state is None else {name: self._value(raw) for name, raw in state.metadata.items()}

    def create(
        self,
        *,
        metadata: Mapping[str, Any] | None = None,
        user: str | None = None,
        expire: Duration | None = None,
        messages: Sequence[Mapping[str, Any] | Message] = (),
    ) -> Thread:
        """Begin the thread. One that is there already stays, and gets the metadata and the time of life.

        `user`: whose conversation it is. `expire`: how long after its last change `gc` removes it. Default: never.
        `messages`: what it begins with, written together with it; a thread that began with others is refused.
        """
        noted = _noted(metadata, expire, "")
        said = self._events(messages, "chat", "") if messages else []
        salt = "" if user is None else random_hex(8)
        owner = None if user is None else names.user_of(names.user_log(user))
        try:
            self._logs.create(self._name, [ev.ThreadCreated(salt=salt, user=owner), *noted, *said])
        except Conflict:
            self._refuse_other_beginning(said)
            if noted:
                change(self._logs, self._name, lambda state: noted)
        return self

    def _refuse_other_beginning(self, said: Sequence[ev.MessageAdded]) -> None:
        """Refuse to begin a thread with messages that it does not begin with: a repeated call adds none twice."""
        there = (one.event for one in self.events() if isinstance(one.event, ev.MessageAdded))
        begins = [self._value(one.message) for one in itertools.islice(there, len(said))]
        if begins != [self._value(one.message) for one in said]:
            raise InvalidValue(
                f"thread {self.id!r} is there already, and began with other messages; nothing was written",
                hint=f"add them: app.thread({self.id!r}).add([…]), or leave out the id for a new thread",
            )

    def update(
        self, *, metadata: Mapping[str, Any] | None = None, expire: Duration | None = None, by: str = ""
    ) -> Thread:
        """Note something about the thread: metadata by name, where None deletes one; and how long it lives.

        `expire`: how long after its last change `gc` removes it; 0: never. Default: as it is.
        """
        noted = _noted(metadata, expire, by)
        if noted:
            fields.changed(self._logs, self._name, ev.ThreadCreated, lambda state: noted)
        return self

    def patch(self, patch: Patch, *, expect: int | None = None, by: str = "", why: str = "") -> dict[str, Any]:
        """Change several fields of its state at once, all or nothing; gives the state then.

        `expect` is the `seq` of the thread you have looked at: PatchConflict if another writer has changed the same
        fields since.
        """
        changes = changes_of(patch)
        decide = patches.patch(self._logs, self._name, changes, expect, by, why, {})
        fields.check(ev.StatePatched(patch=changes, by=by, why=why))
        state = fields.changed(self._logs, self._name, ev.ThreadCreated, decide)
        return {name: self._value(raw) for name, raw in state.bag.items()}

    # Messages

    @property
    def messages(self) -> list[Any]:
        """All messages in order, of all tasks and people; items as they were given."""
        state = self._known()
        return [] if state is None else [one.message for one in self._reader.oldest(state, 0, None, None)]

    def page(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = limits.PAGE_SIZE,
        newest_first: bool = False,
    ) -> list[ThreadMessage]:
        """Return messages with their ids and times, between two of them, and at most so many.

        `after`, `before`: ids of messages. Default: from the first to the last. `newest_first`: begin with the newest.
        """
        limit = names.whole(limit, "limit", least=1, most=limits.MAX_PAGE_SIZE)
        first = 0 if after is None else place(after, "after")
        upto = None if before is None else place(before, "before") - 1
        state = self._known()
        read = self._reader.newest if newest_first else self._reader.oldest
        return [] if state is None else list(read(state, first, upto, limit))

    def find(self, message: str) -> ThreadMessage | None:
        """Return one message by its id; None if the thread has none of that id, or no more."""
        seq, state = place(message, "message"), self._known()
        return None if state is None else next(self._reader.oldest(state, seq - 1, seq, 1), None)

    @property
    def tasks(self) -> list[str]:
        """The tasks that took part, in the order of their first message."""
        state = self._known()
        said = () if state is None else self._reader.oldest(state, 0, None, None)
        return list(dict.fromkeys(one.task for one in said if one.task))

    def message(self, message: Mapping[str, Any] | Message, *, form: Form = "chat", by: str = "") -> None:
        """Say something from outside. Tasks of the thread see it in their next turn, or before their next message."""
        self.add([message], form=form, by=by)

    def add(
        self,
        items: Sequence[Mapping[str, Any] | Message],
        *,
        raw: bool = False,
        form: Form = "chat",
        by: str = "",
        expect: int | None = None,
    ) -> list[str]:
        """Add messages, all or none of them; returns their ids. Durable when it returns.

        `raw`: keep each item as it is given, whatever it says; `messages` and `page` give back the very same JSON, the
        order of its keys included. Items that are messages of the chat or the responses form are part of the
        conversation. Default: each must be a message that a provider would take.
        `expect`: the `seq` of the thread you have looked at. If anything has happened in it since, Conflict is raised
        and nothing is added. Default: add them after whatever is there.
        """
        said = self._raw_events(items, by) if raw else self._events(items, form, by)
        for one in said:
            rules.check_text(one)  # before the log is begun
        if expect is not None:
            first = self._add_after(_seq(expect), said)
            return [id_of(first + at) for at in range(len(said))]
        for tries in range(1, limits.MAX_APPEND_TRIES + 1):
            self._logs.ensure(self._name, ev.ThreadCreated())
            write = self._logs.write_at_head(self._name, said, self._logs.salt(self._name))
            try:
                placed = self._logs.committer.commit(Group((write,)))[0]
            except Conflict:  # it was deleted at this moment
                if tries == limits.MAX_APPEND_TRIES:
                    raise
            else:
                return [id_of(placed.first + at) for at in range(len(said))]
        raise AssertionError("the loop ends by itself")

    def _add_after(self, expect: int, said: Sequence[Event]) -> int:
        """Add messages to a thread that is at a seq, 0 if there must be none; gives the seq of the first."""
        head = self._logs.store.head(self._name)
        found = 0 if head is None else head.seq
        if found != expect:
            raise Conflict(self._name, expect, found)
        if head is None:
            return self._logs.create(self._name, [ev.ThreadCreated(), *said]).head.seq - len(said) + 1
        write = self._logs.write_at_head(self._name, said, self._logs.salt(self._name))
        return self._logs.committer.commit(Group((replace(write, expect=head),)))[0].first

    def _events(self, items: Any, form: Form, by: str) -> list[ev.MessageAdded]:
        given = _items(items)
        known = self._reader.calls() if any(stored.has_calls(one, form) for one in given) else None
        said: list[ev.MessageAdded] = []
        for at, one in enumerate(given):
            where = "message" if len(given) == 1 else f"items[{at}]"
            for kept in stored.admitted(one, form, known, where):
                said.append(ev.MessageAdded(message=codec.pack(kept, where), by=by))
                if known is not None:
                    known.add(stored.read(kept, where))
        return said

    def _raw_events(self, items: Any, by: str) -> list[ev.MessageAdded]:
        said: list[ev.MessageAdded] = []
        for at, one in enumerate(_items(items)):
            if not isinstance(one, dict):
                raise InvalidMessage(
                    f"items[{at}] is {names.a(type(one).__name__)}, not a dict; nothing was written",
                    hint="give each item as a dict of JSON values; bytes belong into app.records(space)",
                    path=f"items[{at}]",
                    reason="wrong-type",
                )
            text = codec.exact_text(one, f"items[{at}]")
            said.append(ev.MessageAdded(message=codec.pack(text), by=by, raw=True))
        return said

    def pop(self, *, by: str = "") -> Any:
        """Take the newest message out of the conversation and return it; None if there is none.

        Its event stays in the log. A task that is under way sees what it saw until its next turn.
        """
        popped: list[ThreadMessage] = []

        def decide(state: State) -> Sequence[Event]:
            popped[:] = list(self._reader.newest(state, 0, state.seq, 1))
            return [ev.MessagesRemoved(seqs=(one.seq,), by=by) for one in popped]

        self._change(decide)
        return popped[0].message if popped else None

    def clear(self, *, by: str = "") -> int:
        """Take all messages out of the conversation; returns how many there were. State and metadata stay."""
        count = 0

        def decide(state: State) -> Sequence[Event]:
            nonlocal count
            count = sum(1 for _ in self._reader.oldest(state, 0, state.seq, None))
            return [ev.MessagesRemoved(upto=state.seq, by=by)] if count else ()

        self._change(decide)
        return count

    def delete(self, *, why: str = "deleted") -> bool:
        """Remove the thread, with its messages, state and metadata; return whether it was there.

        Its id can be used again. Tasks that have not ended keep it from being deleted.
        """
        names.text(why, "why=")
        for _ in range(limits.MAX_APPEND_TRIES):
            head = self._logs.store.head(self._name)
            if head is None:
                return False
            self._refuse_open()
            stone = Tombstone(self._name, head.seq, head.digest, self._logs.clock.now_us(), why)
            if self._logs.store.remove([stone]):
                self._logs.forget([self._name])
                return True
        raise StoreBusy(f"thread {self.id!r} kept changing while it was deleted; nothing was removed", hint="try again")

    def _refuse_open(self) -> None:
        found = [row.id for row in open_tasks(self._logs, self.id)]
        if found:
            raise InvalidEvent(
                f"thread {self.id!r} has tasks that have not ended: {', '.join(found[:5])}; nothing was removed",
                hint=f"let them end, or cancel them: app.cancel({found[0]!r})",
            )

    def window(
        self,
        *,
        max_tokens: int | None = None,
        keep_last: int | None = None,
        keep_turns: int | None = None,
        strategy: Strategy = "drop_oldest",
        pinned: Collection[int] = (),
        reserve: int = 0,
        counter: Counter | None = None,
    ) -> Sent:
        """What of the conversation fits into so many tokens, as `task.messages.window` gives it to an agent."""
        return self._reader.conversation().window(
            max_tokens=max_tokens,
            keep_last=keep_last,
            keep_turns=keep_turns,
            strategy=strategy,
            pinned=pinned,
            reserve=reserve,
            counter=counter,
        )

    @property
    def context_tokens(self) -> int:
        """How many tokens the whole conversation has: reported, counted or estimated, as `window().basis` says."""
        return self.window().tokens

    def render(self, form: Form = "chat") -> list[dict[str, Any]]:
        """All of it as a provider takes it, repaired where a call has no result."""
        read = [stored.read(value, f"messages[{at}]") for at, value in enumerate(self._reader.conversation())]
        whole, _ = messages.repair(read, {})
        return messages.render(whole, form)

    def events(self, *, after: int = 0, limit: int | None = None) -> Iterator[LoggedEvent]:
        """Return its events: who wrote what, when, and in which task."""
        return timeline.records(self._logs, self._name, after=after, limit=limit) if self.seq else iter(())

    def _known(self) -> State | None:
        return fields.known(self._logs, self._name)

    def _change(self, decide: Callable[[State], Sequence[Event]]) -> None:
        """Change a thread that is there; one that is not has nothing to take away."""
        try:
            change(self._logs, self._name, decide, tries=limits.MAX_UPDATE_TRIES)
        except TaskNotFound:
            return

    def _value(self, raw: Any) -> Any:
        return codec.unpack(raw, self._logs.blob)

    def __len__(self) -> int:
        state = self._known()
        return 0 if state is None else sum(1 for _ in self._reader.oldest(state, 0, None, None))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<thread {self.id} of {len(self)} messages>"


def threads(logs: Logs, *, after: str | None, limit: int) -> list[Thread]:
    """The threads there are, by their ids."""
    if type(limit) is not int or not 1 <= limit <= limits.MAX_PAGE_SIZE:
        raise InvalidValue(f"limit={limit!r} is out of range", hint=f"use 1 to {limits.MAX_PAGE_SIZE:,}")
    prefix = names.thread_log("x")[:-1]
    last = None if after is None else names.thread_log(after)
    return [Thread(logs, name.removeprefix(prefix)) for name in logs.store.logs(prefix=prefix, after=last, limit=limit)]


def open_tasks(logs: Logs, thread: str) -> Iterator[Any]:
    """The tasks of a thread that have not ended."""
    for status in _OPEN:
        yield from logs.store.list(Query(status=status, thread=thread, limit=limits.PAGE_SIZE))


def _seq(given: Any) -> int:
    if type(given) is not int or not 0 <= given <= limits.MAX_SEQ:
        raise InvalidValue(f"expect={str(given)[:80]!r} is not a seq", hint="give the seq of the thread: thread.seq")
    return given


def _items(given: Any) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise InvalidMessage(
            f"items is {names.a(type(given).__name__)}, not a list; nothing was written",
            hint="give a list of messages: thread.add([message])",
            path="items",
            reason="wrong-type",
        )
    found = cast("list[Any]", list(given))  # pyright: ignore[reportUnknownArgumentType]
    if not 1 <= len(found) <= limits.MAX_EVENTS_PER_WRITE:
        raise InvalidValue(
            f"{len(found):,} messages cannot be added at once; nothing was written",
            hint=f"give 1 to {limits.MAX_EVENTS_PER_WRITE:,}",
        )
    return found


def _noted(metadata: Mapping[str, Any] | None, expire: Duration | None, by: str) -> list[Event]:
    """What is written about a thread, if something is."""
    events: list[Event] = []
    if metadata is not None:
        if not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"metadata is {names.a(type(metadata).__name__)}", hint='give a dict: {"name": value}')
        kept = {names.short_name(name, "name in the metadata"): value for name, value in metadata.items()}
        packed = {name: codec.pack(value, f"metadata[{name!r}]") for name, value in kept.items() if value is not None}
        gone = tuple(name for name, value in kept.items() if value is None)
        events += [ev.MetadataSet(set=packed, delete=gone, by=by)] if kept else []
    if expire is not None:
        events.append(ev.ExpirySet(expire_us=int(seconds(expire, "expire") * 1_000_000), by=by))
    for event in events:
        rules.check_text(event)
    return events
