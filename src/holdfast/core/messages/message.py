"""The neutral form of a message: its role and its parts, for every provider.

Beside what every provider has, a part can carry what only one of them has (`Extra`): it goes back to that provider as
it came, and to no other. So reading and writing in one form loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NoReturn, TypeAlias, cast, get_args

from msgspec import Raw, Struct

from holdfast.core import codec, names
from holdfast.core.errors import InvalidMessage

Role = Literal["system", "developer", "user", "assistant", "tool"]
Form = Literal["chat", "responses", "anthropic"]

FORMS: tuple[Form, ...] = get_args(Form)


class Extra(Struct, frozen=True, gc=False):
    """What a provider's object says beyond the neutral form, as encoded JSON."""

    form: Form
    fields: Raw

    def decoded(self) -> dict[str, Any]:
        """The fields, as they came."""
        return codec.parse(bytes(self.fields).decode())


class Text(Struct, frozen=True, gc=False, omit_defaults=True, tag="text"):
    text: str
    extra: Extra | None = None


class Image(Struct, frozen=True, gc=False, omit_defaults=True, tag="image"):
    """A picture by reference: an address (also a `data:` one), or the id of a file the provider holds."""

    url: str = ""
    file: str = ""
    detail: str = ""
    extra: Extra | None = None


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_call"):
    """A call the model asked for. Its arguments are the text the model wrote, whether it is JSON or not.

    A custom call takes free text; only OpenAI has them.
    """

    id: str
    name: str
    arguments: str = "{}"
    custom: bool = False
    extra: Extra | None = None


class Reasoning(Struct, frozen=True, gc=False, omit_defaults=True, tag="reasoning"):
    """What the model thought. `extra` is the provider's whole object, signatures and all, to be given back exactly."""

    text: str = ""
    extra: Extra | None = None


class Other(Struct, frozen=True, gc=False, omit_defaults=True, tag="other"):
    """What has no neutral form: only its own provider gets it back, others its text, or its kind in brackets.

    One that stands `apart` is an item of its own, not part of a message's content (Responses).
    """

    kind: str
    text: str = ""
    apart: bool = False
    extra: Extra | None = None


Content: TypeAlias = Text | Image | Other


class ToolResult(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_result"):
    """What a call gave."""

    call_id: str
    content: tuple[Content, ...] = ()
    is_error: bool = False
    custom: bool = False
    extra: Extra | None = None

    @property
    def text(self) -> str:
        """Its texts in one."""
        return "\n".join(part.text for part in self.content if not isinstance(part, Image))


Part: TypeAlias = Text | Image | ToolCall | ToolResult | Reasoning | Other


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One message. Calls and reasoning are the assistant's; a tool message is exactly one result.

    >>> Message("user", (Text("Is the disk full?"),)).text
    'Is the disk full?'
    """

    role: Role
    parts: tuple[Part, ...] = ()
    extra: Extra | None = None

    def __post_init__(self) -> None:
        for part in self.parts:
            if isinstance(part, ToolCall | Reasoning) and self.role != "assistant":
                refuse("message.parts", f"has a {_name(part)} in a message of the role {self.role!r}", "misplaced-part")
            if isinstance(part, ToolResult) and self.role != "tool":
                refuse("message.parts", f"has a tool result in a message of the role {self.role!r}", "misplaced-part")
        if self.role == "tool" and not (len(self.parts) == 1 and isinstance(self.parts[0], ToolResult)):
            refuse("message.parts", "of a tool message must be exactly one tool result", "misplaced-part")

    @property
    def text(self) -> str:
        """Its texts in one; of a tool message, the result's."""
        if self.role == "tool":
            return self.result.text
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls it asks for."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def result(self) -> ToolResult:
        """The result a tool message is."""
        found = self.parts[0]
        assert isinstance(found, ToolResult), f"a {self.role} message has no result"
        return found


def answer(call: ToolCall, text: str, *, is_error: bool = False) -> Message:
    """The message that answers a call.

    >>> answer(ToolCall("c1", "df"), "91 %").result.call_id
    'c1'
    """
    content = (Text(text),) if text else ()
    return Message("tool", (ToolResult(call.id, content, is_error=is_error, custom=call.custom),))


# What only one provider has


def beyond(given: Mapping[str, Any], base: Mapping[str, Any], form: Form) -> Extra | None:
    """Return the fields of a provider's object that the neutral form doesn't have."""
    fields = _beyond(given, base)
    return complete(fields, form) if fields else None


def complete(given: Mapping[str, Any], form: Form) -> Extra:
    """All of a provider's object."""
    return Extra(form, codec.raw(codec.dump(given)))


def merged(base: dict[str, Any], extra: Extra | None, form: Form) -> dict[str, Any]:
    """A provider's object: what the neutral form says, and what only this provider has."""
    return _merged(base, extra.decoded()) if extra is not None and extra.form == form else base


def both(first: Extra | None, second: Extra | None, form: Form) -> Extra | None:
    """Join such fields of two messages that become one, as far as this provider has them."""
    ours = [extra for extra in (first, second) if extra is not None and extra.form == form]
    return (
        complete(_merged(ours[0].decoded(), ours[1].decoded()), form) if len(ours) == 2 else ours[0] if ours else None
    )


def own(part: Reasoning | Other, form: Form) -> dict[str, Any] | None:
    """The provider's own object of a part; None if it came from another one."""
    return part.extra.decoded() if part.extra is not None and part.extra.form == form else None


def stand_in(part: Image | Other) -> str:
    """The words that stand for a part where a form cannot carry it."""
    if isinstance(part, Other):
        return part.text or f"[{part.kind}]"
    return f"[image {part.file}]" if part.file else "[image]"


def _beyond(given: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in base:
            found[key] = value
        elif isinstance(value, Mapping) and isinstance(base[key], Mapping):
            deeper = _beyond(cast("Mapping[str, Any]", value), base[key])
            if deeper:
                found[key] = deeper
    return found


def _merged(base: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in fields.items():
        ours = result.get(key)
        if isinstance(ours, dict) and isinstance(value, dict):
            result[key] = _merged(cast("dict[str, Any]", ours), cast("dict[str, Any]", value))
        elif key not in result:
            result[key] = value
    return result


def _name(part: Part) -> str:
    return type(part).__name__.lower().replace("tool", "tool ")


# Reading foreign messages: each refusal names the place and the reason


def refuse(path: str, why: str, reason: str, hint: str = "nothing was written") -> NoReturn:
    """Refuse a message, naming the place, what is wrong there and the reason for programs."""
    raise InvalidMessage(f"{path} {why}", hint=hint, path=path, reason=reason)


def an_object(value: Any, path: str) -> Mapping[str, Any]:
    """A JSON object, or a refusal."""
    if not isinstance(value, Mapping):
        refuse(path, f"is {names.a(type(value).__name__)}, not an object", "wrong-type")
    return cast("Mapping[str, Any]", value)


def a_text(given: Mapping[str, Any], key: str, path: str) -> str:
    """A field that must be there and be text."""
    if key not in given:
        refuse(f"{path}.{key}", "is missing", "missing-field")
    if not isinstance(given[key], str):
        refuse(f"{path}.{key}", f"is {names.a(type(given[key]).__name__)}, not text", "wrong-type")
    return given[key]


def an_id(given: Mapping[str, Any], key: str, path: str) -> str:
    """A field that must be there and be text that is not empty."""
    found = a_text(given, key, path)
    if not found:
        refuse(f"{path}.{key}", "is empty", "missing-field")
    return found


def a_list(value: Any, path: str) -> list[Any]:
    """A list, or a refusal; nothing counts as an empty one."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        refuse(path, f"is {names.a(type(value).__name__)}, not a list", "wrong-type")
    return list(cast("list[Any]", value))


def optional_text(given: Mapping[str, Any], key: str) -> str:
    """A field's text; empty if there is none."""
    found = given.get(key)
    return found if isinstance(found, str) else ""
