"""What people type as values: text, JSON, files, stdin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.errors import InvalidInput, InvalidValue
from holdfast.engine.reading import values as plain

if TYPE_CHECKING:
    from holdfast import Agent


def parameters(given: Sequence[str], file: str | None) -> dict[str, Any]:
    """The input of a task: a JSON file, and what was given by name on top of it.

    >>> parameters(["city=Oslo", "days:=3"], None)
    {'city': 'Oslo', 'days': 3}
    """
    values: dict[str, Any] = {}
    if file is not None:
        read = json_value(text_of(file), file)
        if not isinstance(read, dict):
            raise InvalidValue(f"{file} holds no JSON object; nothing was written", hint='write {"name": value}')
        values |= cast("dict[str, Any]", read)
    named: set[str] = set()
    for one in given:
        name, value = pair(one)
        if name in named:
            raise InvalidValue(f"-p {name} was given twice; nothing was written", hint="give each parameter once")
        named.add(name)
        values[name] = value
    return values


def check(agent: Agent, input: dict[str, Any], given: Sequence[str]) -> None:
    """Refuse input that the agent does not take. For a number, the error says to type `days:=3`."""
    try:
        agent.parameters.check(input)
    except InvalidInput as error:
        for one in given:
            name, equals, text = one.partition("=")
            if equals and not name.endswith(":") and error.message.startswith(f"{name} does not fit"):
                value = text if _is_json(text) else "JSON"
                hint = f"{error.hint}; after = comes text, after := comes JSON: -p {quote(f'{name}:={value}')}"
                raise InvalidInput(error.message, hint=hint, **error.details) from None
        raise


def _is_json(text: str) -> bool:
    try:
        plain.parse(text)
    except ValueError:
        return False
    return True


def pair(given: str) -> tuple[str, Any]:
    """A name with its value: `name=text` or `name:=JSON`."""
    name, equals, value = given.partition("=")
    if not equals or not name.strip(":"):
        raise InvalidValue(
            f"{given!r} is not a parameter; nothing was written", hint="write name=text or name:=JSON, such as days:=3"
        )
    return (name[:-1], json_value(value, name[:-1])) if name.endswith(":") else (name, value)


def value(given: str) -> Any:
    """A value that stands alone: text, `:=JSON`, or `-` for stdin.

    >>> value("yes"), value(":=[1, 2]")
    ('yes', [1, 2])
    """
    if given == "-":
        return sys.stdin.read().rstrip("\n")
    return json_value(given[2:], "the value") if given.startswith(":=") else given


def json_value(text: str, what: str) -> Any:
    """JSON typed as an argument."""
    try:
        return plain.parse(text)
    except ValueError as error:
        raise InvalidValue(
            f"{what} is not JSON: {error}; nothing was written", hint='JSON is 3, true, "text", [1, 2] or {"a": 1}'
        ) from None


def text_of(path: str) -> str:
    """Read a file, or stdin."""
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        itself = path.lstrip().startswith("{")
        hint = "give JSON itself by name, -p name:=JSON, or on stdin, --input -" if itself else "give a readable file"
        raise InvalidValue(f"{path!r} cannot be read: {why}; nothing was written", hint=hint) from None


def age_us(given: str | None, now_us: int) -> int | None:
    """A moment: so long ago (`2h`), or an ISO time."""
    if given is None:
        return None
    from datetime import UTC, datetime

    from holdfast.engine.reading.values import seconds

    try:
        return now_us - int(seconds(given) * 1_000_000)
    except InvalidValue:
        pass
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidValue(
            f"{given!r} is not a time", hint='write how long ago, "2h", or a time, 2026-11-16T08:00'
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)
