"""HoldfastChatMessageHistory: a conversation of LangChain in a Holdfast store.

chain = RunnableWithMessageHistory(model, lambda session_id: HoldfastChatMessageHistory(app, session_id))
memory = ConversationBufferMemory(chat_memory=HoldfastChatMessageHistory(app, "ana"))

LangChain has deprecated chat histories and removes them in its version 2: new code keeps checkpoints, with
`adapters.langgraph.HoldfastSaver`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from holdfast.adapters.extras import unsupported

if refusal := unsupported("langchain", "langchain-core", at_least="1.4.4", below="2"):
    raise refusal

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from pydantic_core import PydanticSerializationError, from_json, to_json

from holdfast import App, Conflict, InvalidValue, NotSerializable, RecordWrite, current_call

__all__ = ["HoldfastChatMessageHistory"]

SPACE = "langchain"
"""The space of records: `messages/<session>` has a record for each message, `added/…` one for each addition."""


class HoldfastChatMessageHistory(BaseChatMessageHistory):
    """Keep the messages of a session in a Holdfast store. They are there after a restart, and in every process.

    A list of messages is added whole or not at all. A repeated addition changes nothing. An addition is known again by
    `call`, a name of yours for one call of a chain; else by the step or the tool call that it is made in; else by the
    id of its first message. An addition that has none of the three is always new.
    """

    def __init__(self, app: App, session_id: str, *, call: str | None = None) -> None:
        super().__init__()
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            hint = "give HoldfastChatMessageHistory(holdfast.open(…), session_id)"
            raise InvalidValue(f"{app!r} is not an app", hint=hint)
        if not isinstance(session_id, str) or not session_id:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{session_id!r} is not the id of a session", hint='give a text, such as "ana"')
        if call is not None and (not isinstance(call, str) or not call):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"call={call!r} is not a name", hint='give a text, such as call="turn-7", or nothing')
        self.session_id = session_id
        self._call = call
        self._additions = 0
        self._records = app.records(SPACE)
        self._key = f"messages/{session_id}"
        self._records.head(self._key)  # refuses an id that can't be a key, now

    @property
    def messages(self) -> list[BaseMessage]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The messages from the oldest on, read from the store each time. Changing the list changes nothing."""
        return messages_from_dict([from_json(one.data) for one in self._records.read(self._key)])

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages, all of them or none. They are durable when this returns."""
        if not messages:
            return
        writes = [RecordWrite(key=self._key, data=_packed(one)) for one in messages]
        name = self._name(messages)
        if name is None:
            self._records.write(writes)
            return
        added = RecordWrite(key=f"{self._added}{_hashed(name)}", data=b"added", expect=0)
        try:
            self._records.write([added, *writes])
        except Conflict:  # they were added before
            return

    def clear(self) -> None:
        """Take all messages away. What was added before can be added again."""
        self._records.drop(self._key, why="cleared")
        while found := self._records.keys(self._added):
            for key in found:
                self._records.drop(key, why="cleared")

    @property
    def _added(self) -> str:
        """The beginning of the keys that mark additions: hashes, so that long ids fit, and none begins another."""
        return f"added/{_hashed(self.session_id)}/"

    def _name(self, messages: Sequence[BaseMessage]) -> str | None:
        """Return the name of an addition by which it is known again; None if it has none."""
        if self._call is not None:
            self._additions += 1
            return f"call/{self._call}#{self._additions}"
        step = current_call()
        if step is not None:
            return f"step/{step.write_key('langchain')}"
        return None if messages[0].id is None else f"message/{messages[0].id}"


def _hashed(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _packed(message: BaseMessage) -> bytes:
    """A message as JSON, refused if it would not come back as what it is."""
    if not isinstance(message, BaseMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{message!r} is not a message; nothing was added", hint="give HumanMessage(…)")
    try:
        packed = to_json(message_to_dict(message))
    except PydanticSerializationError as error:
        raise NotSerializable(f"a message of type {message.type!r}", f"is not JSON: {error}") from None
    try:
        restored = type(messages_from_dict([from_json(packed)])[0])
    except ValueError:
        restored = None
    if restored is not type(message):
        hint = "add LangChain's own messages; put your data into additional_kwargs"
        raise InvalidValue(f"a {type(message).__name__} can't be restored; nothing was added", hint=hint)
    return packed
