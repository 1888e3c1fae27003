"""The conversation of a task as people read it: messages in one form, each call with its result and its step.

A log holds messages in the form of their provider, and results as messages of their own. Here they are in one form,
a result stands with the call it answers, and questions to people stand where they were asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast

from msgspec import UNSET, Raw, Struct

from holdfast.core import codec, events as ev
from holdfast.core.codec import Fetch, LoggedEvent
from holdfast.core.errors import InvalidMessage, ValueDamaged
from holdfast.core.messages import stored
from holdfast.core.messages.message import Image, Message, Other, Reasoning, Text, ToolResult

DAMAGED = "(damaged)"


class ChatCall(Struct, kw_only=True):
    """A call that a model asked for: what it was answered with, at which seq, and the step that made it."""

    id: str
    name: str
    arguments: str
    result: str | None = None
    seq: int = 0
    source: str = ""
    """Where the result stands: the seq of an event and a place in it, such as `7/message/content`."""
    is_error: bool = False
    step: str = ""


class ChatPart(Struct, kw_only=True):
    """A part of a message: a text, what the model thought, or what only its provider knows."""

    kind: Literal["text", "thinking", "image", "other"]
    text: str


class ChatEntry(Struct, kw_only=True):
    """A message, a question to a person, an answer, or a summary that is sent in place of earlier messages."""

    kind: Literal["message", "question", "answer", "summary"]
    seq: int
    at_us: int
    turn: int = 0
    role: str = ""
    by: str = ""
    parts: list[ChatPart] = []
    calls: list[ChatCall] = []
    step: str = ""
    tokens: int = 0
    cost: float | None = None
    model: str = ""
    source: str = ""
    """Where its value stands: the seq of an event and a field of it, such as `7/result`."""
    is_sent: bool = True
    """Whether it is sent to the model, as far as the log says: False for one that a summary stands for."""


def chat(records: Iterable[LoggedEvent], fetch: Fetch) -> list[ChatEntry]:
    """Return the conversation that events hold, in order. Give those that count: `task.events()`."""
    made = _Chat(fetch)
    for record in records:
        made.add(record)
    return made.entries


class _Chat:
    def __init__(self, fetch: Fetch) -> None:
        self.entries: list[ChatEntry] = []
        self._fetch = fetch
        self._turn = 0
        self._messages: list[ChatEntry] = []
        self._calls: dict[str, ChatCall] = {}
        self._open: list[ChatCall] = []
        self._steps: dict[str, LoggedEvent] = {}
        self._taken: set[str] = set()
        self._asked: dict[str, ChatEntry] = {}

    def add(self, record: LoggedEvent) -> None:
        match record.event:
            case ev.TurnStarted(turn=turn):
                self._turn = turn
            case ev.MessageAdded():
                self._message(record, record.event)
            case ev.MessagesSummarised():
                self._summary(record, record.event)
            case ev.WaitStarted(wait="person"):
                self._question(record, record.event)
            case ev.WaitEnded():
                self._answer(record, record.event)
            case ev.StepStarted() | ev.StepCompleted() | ev.StepFailed() | ev.AttemptFailed() | ev.ApprovalAsked():
                self._step(record, record.event)
            case ev.StepSettled():
                self._steps[self._address(record.event.key)] = record
            case _:
                pass

    def _address(self, key: str) -> str:
        """A step's key with its turn, as rows of the timeline have it."""
        head = key.partition("/")[0]
        return key if head.isdigit() and "/" in key else f"{self._turn}/{key}" if self._turn else key

    def _entry(self, record: LoggedEvent, kind: Literal["message", "question", "answer", "summary"]) -> ChatEntry:
        entry = ChatEntry(kind=kind, seq=record.seq, at_us=record.at_us, turn=self._turn)
        self.entries.append(entry)
        return entry

    # Messages

    def _message(self, record: LoggedEvent, event: ev.MessageAdded) -> None:
        step = self._address(event.step) if event.step else ""
        own = (f"{record.seq}/message", event.message)
        source, raw = self._result(step) if event.message is UNSET else own
        value = self._value(raw)
        message = _typed(value)
        if message is not None and message.role == "tool" and message.result.call_id in self._calls:
            call = self._calls[message.result.call_id]
            call.result, call.seq, call.is_error = message.result.text, record.seq, message.result.is_error
            call.source = f"{source}/content" if isinstance(value, dict) and _is_text(value) else source
            self._messages.append(ChatEntry(kind="message", seq=record.seq, at_us=record.at_us))  # it has a position
            return
        entry = self._entry(record, "message")
        entry.at_us, entry.step, entry.by = event.said_us or record.at_us, step, event.by or event.user
        entry.source = source
        self._messages.append(entry)
        if message is None:
            entry.role, entry.parts = "message", [ChatPart(kind="other", text=_text(value))]
            return
        entry.role, entry.parts, entry.calls = message.role, _parts(message), _calls(message)
        self._open = entry.calls or self._open
        self._calls |= {call.id: call for call in entry.calls}
        made = self._steps.get(step)
        used = None if made is None else getattr(made.event, "usage", None)
        if isinstance(used, ev.Usage):
            entry.tokens, entry.cost, entry.model = used.input_tokens + used.output_tokens, used.cost, used.model

    def _summary(self, record: LoggedEvent, event: ev.MessagesSummarised) -> None:
        step = self._address(event.step) if event.step else ""
        own = (f"{record.seq}/summary", event.summary)
        source, raw = self._result(step) if event.summary is UNSET else own
        told: Any = self._value(raw)
        entry = self._entry(record, "summary")
        entry.source = source
        told = cast("dict[str, Any]", told).get("text", told) if isinstance(told, dict) else told
        entry.parts = [ChatPart(kind="text", text=_text(told))]
        entry.step, entry.model, entry.tokens = step, event.model, event.tokens_in + event.tokens_out
        for first, stop in event.covers:
            for one in self._messages[first:stop]:
                one.is_sent = False

    def _result(self, step: str) -> tuple[str, Any]:
        """The place and the value of what a step gave; nothing if it gave nothing."""
        found = self._steps.get(step)
        if found is None:
            return "", None
        name = "value" if isinstance(found.event, ev.WaitEnded) else "result"
        return f"{found.seq}/{name}", getattr(found.event, name)

    def _value(self, raw: Any) -> Any:
        try:
            return codec.unpack(raw, self._fetch) if isinstance(raw, Raw) else None
        except ValueDamaged:
            return DAMAGED

    # Steps that calls became

    def _step(self, record: LoggedEvent, event: Any) -> None:
        address = self._address(event.key)
        if isinstance(event, ev.StepCompleted):
            self._steps[address] = record
        if address in self._taken or not event.tool:
            return
        fitting = [call for call in self._open if call.name == event.tool and not call.step]
        if fitting:
            given = {name: self._value(raw) for name, raw in event.input.items()}
            same = next((call for call in fitting if _arguments(call) == given), fitting[0])
            same.step = address
            self._taken.add(address)

    # People

    def _question(self, record: LoggedEvent, event: ev.WaitStarted) -> None:
        entry = self._entry(record, "question")
        entry.step, entry.source = self._address(event.key), f"{record.seq}/prompt"
        entry.parts = [ChatPart(kind="text", text=_text(self._value(event.prompt)))]
        self._asked[entry.step] = entry

    def _answer(self, record: LoggedEvent, event: ev.WaitEnded) -> None:
        address = self._address(event.key)
        self._steps[address] = record
        if address in self._asked and not event.expired:
            entry = self._entry(record, "answer")
            entry.step, entry.by, entry.source = address, event.by, f"{record.seq}/value"
            entry.parts = [ChatPart(kind="text", text=_text(self._value(event.value)))]


def _is_text(message: Any) -> bool:
    return isinstance(cast("dict[str, Any]", message).get("content"), str)


def _typed(value: Any) -> Message | None:
    """A message in the neutral form; None for one that no provider would know."""
    try:
        return stored.read(value)
    except (InvalidMessage, ValueError):
        return None


def _parts(message: Message) -> list[ChatPart]:
    found: list[ChatPart] = []
    for part in message.parts:
        match part:
            case Text(text=text):
                found.append(ChatPart(kind="text", text=text))
            case Reasoning(text=text):
                found.append(ChatPart(kind="thinking", text=text))
            case Image(url=url, file=file):
                found.append(ChatPart(kind="image", text=file or url))
            case ToolResult():
                found.append(ChatPart(kind="other", text=part.text))
            case Other(kind=kind, text=text):
                found.append(ChatPart(kind="other", text=text or f"[{kind}]"))
            case _:
                pass
    return found


def _calls(message: Message) -> list[ChatCall]:
    return [ChatCall(id=one.id, name=one.name, arguments=one.arguments) for one in message.calls]


def _arguments(call: ChatCall) -> Any:
    try:
        return codec.parse(call.arguments)
    except ValueError:
        return None


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else codec.text(value)
