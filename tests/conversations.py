"""Conversations for Hypothesis: whole ones as a well-kept log has them, and broken ones as crashes leave them."""

from hypothesis import strategies as st

from holdfast.core import codec
from holdfast.core.messages import Image, Message, Other, Reasoning, Text, ToolCall, ToolResult, complete
from holdfast.core.messages.message import FORMS

words = st.text(st.sampled_from("ab é日\n{}\"'0"), min_size=1, max_size=30).map(lambda text: f"x{text}")
long_words = st.integers(1, 2_000).map(lambda n: "long result " * (n // 12) + "!" * (n % 12 + 1))
texts = st.builds(Text, words)
addresses = st.sampled_from(["https://example.com/a.png", "data:image/png;base64,iVBORw0KGgo="])
images = st.builds(Image, addresses)
arguments = st.dictionaries(st.sampled_from(["a", "$b", "c d"]), st.integers() | words, max_size=2)
written = arguments.map(lambda value: codec.dump(value).decode())
broken_arguments = st.sampled_from(["", "{", "[1]", '{"a": 1}', "null"])


def a_thought(form):
    """Reasoning as a provider gives it."""
    raw = {
        "chat": {"reasoning_content": "hm"},
        "responses": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA=="},
        "anthropic": {"type": "thinking", "thinking": "hm", "signature": "EqQB+/=="},
    }[form]
    return Reasoning("" if form == "responses" else "hm", complete(raw, form))


thoughts = st.sampled_from(FORMS).map(a_thought)
others = st.sampled_from(
    [
        Other("input_audio", extra=complete({"type": "input_audio", "input_audio": {"data": "UklG"}}, "chat")),
        Other("input_file", extra=complete({"type": "input_file", "file_id": "f1"}, "responses")),
        Other(
            "document", extra=complete({"type": "document", "source": {"type": "file", "file_id": "f1"}}, "anthropic")
        ),
    ]
)


class Ids:
    """Ids of calls, some of them with characters that not everybody takes."""

    def __init__(self):
        self.given = 0

    def next(self, odd):
        self.given += 1
        return f"call/{self.given}" if odd else f"call_{self.given}"


def a_user(draw, thoughts=thoughts):
    return Message("user", tuple(draw(st.lists(texts | images | others, min_size=1, max_size=3))))


def a_reply(draw, ids, calls, thoughts=thoughts):
    parts = [*draw(st.lists(thoughts, max_size=1)), *draw(st.lists(texts, min_size=not calls, max_size=1))]
    for _ in range(calls):
        id = ids.next(draw(st.booleans()))
        parts.append(ToolCall(id, draw(st.sampled_from(["df", "read"])), draw(written | broken_arguments)))
    return Message("assistant", tuple(parts))


def a_result(draw, call):
    content = draw(st.lists(texts | images | st.builds(Text, long_words), max_size=2))
    return Message("tool", (ToolResult(call.id, tuple(content), is_error=draw(st.booleans())),))


@st.composite
def conversations(draw, max_turns=8):
    """Whole: what every provider takes, apart from what render sees to."""
    ids, messages = Ids(), []
    if draw(st.booleans()):
        messages.append(Message("system", (draw(texts),)))
    for _ in range(draw(st.integers(1, max_turns))):
        match draw(st.sampled_from(["user", "user", "reply", "calls", "calls", "developer"])):
            case "user":
                messages.append(a_user(draw))
            case "reply":
                messages.append(a_reply(draw, ids, 0))
            case "developer":
                messages.append(Message("developer", (draw(texts),)))
            case _:
                messages += an_exchange(draw, ids)
    if not any(message.role == "user" for message in messages):
        messages.append(a_user(draw))
    return messages


def an_exchange(draw, ids):
    """A reply with calls and their results; perhaps as Responses has it, each call a message of its own."""
    reply = a_reply(draw, ids, draw(st.integers(1, 3)))
    results = draw(st.permutations([a_result(draw, call) for call in reply.calls]))
    apart = [Message("assistant", (part,)) for part in reply.parts]
    return [*(apart if draw(st.booleans()) else [reply]), *results]


@st.composite
def broken_conversations(draw):
    """What crashes, late results, weak gateways and careless callers leave behind."""
    messages = draw(conversations())
    for _ in range(draw(st.integers(0, 4))):
        if not messages:
            break
        at = draw(st.integers(0, len(messages) - 1))
        match draw(st.sampled_from(["lose", "double", "move", "orphan", "intrude", "reuse"])):
            case "lose":
                del messages[at]
            case "double":
                messages.insert(draw(st.integers(at, len(messages))), messages[at])
            case "move":
                messages.insert(draw(st.integers(0, len(messages) - 1)), messages.pop(at))
            case "orphan":
                messages.insert(at, Message("tool", (ToolResult("nobody", (Text("lost"),)),)))
            case "intrude":
                messages.insert(at, Message("user", (Text("by the way"),)))
            case "reuse":
                messages.insert(at, Message("assistant", (ToolCall("call_1", "df"),)))
    return messages
