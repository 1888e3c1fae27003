"""What people type as values, by one rule: JSON if it is JSON, else text; `-` is stdin where a value stands alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.errors import InvalidInput, InvalidValue
from holdfast.engine.reading import values as plain

if TYPE_CHECKING:
    from holdfast import Agent


def parameters(given: Sequence[str], file: str | None) -> dict[str, Any]:
    """Return the input of a task: a JSON file, and what was given by name on top of it.

    >>> parameters(["city=Oslo", "days=3"], None)
    {'city': 'Oslo', 'days': 3}
    """
    values: dict[str, Any] = {}
    if file is not None:
        read = json_value(text_of(file), file)
        if not isinstance(read, dict):
            raise InvalidValue(f"{file} is not a JSON object; nothing was written", hint='write {"name": value}')
        values |= cast("dict[str, Any]", read)
    named: set[str] = set()
    for one in given:
        name, value = pair(one)
        if name in named:
            raise InvalidValue(f"-p {name} was given twice; nothing was written", hint="give each parameter once")
        named.add(name)
        values[name] = value
    return values


def fitted(agent: Agent, input: dict[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """Return input that the agent takes, or refuse it. What looks like JSON stays text where the agent takes text."""
    texts = {name: text for name, equals, text in (one.partition("=") for one in given) if equals}
    try:
        agent.parameters.check(input)
    except InvalidInput as error:
        wrong = next((name for name in texts if error.message.startswith(f"{name} does not fit")), None)
        if wrong is None or input[wrong] == texts[wrong]:
            raise
        try:
            return fitted(agent, {**input, wrong: texts[wrong]}, given)
        except InvalidInput as second:
            if not second.message.startswith(f"{wrong} does not fit"):
                raise
        raise  # text does not fit either: say what is wrong with the value as it was read first
    return input


def pair(given: str, option: str = "-p") -> tuple[str, Any]:
    """Return a name with its value: `name=value`, given with `option`. After `:=` the value must be JSON.

    >>> pair("days=3"), pair("city=Oslo"), pair("days:=3")
    (('days', 3), ('city', 'Oslo'), ('days', 3))
    """
    name, equals, text = given.partition("=")
    if not equals or not name.strip(":"):
        lacks = "name" if equals else "value"
        raise InvalidValue(
            f"{option} {given!r} has no {lacks}; nothing was written",
            hint=f"write name=value: {option} city=oslo, or {option} days=3",
        )
    return (name[:-1], json_value(text, name[:-1])) if name.endswith(":") else (name, json_or_text(text))


def value(given: str) -> Any:
    """Return a value that stands alone: JSON, text, or `-` for stdin. After `:=` it must be JSON.

    >>> value("yes"), value("[1, 2]"), value('"12"'), value(":=[1, 2]")
    ('yes', [1, 2], '12', [1, 2])
    """
    if given == "-":
        return json_or_text(sys.stdin.read().rstrip("\n"))
    return json_value(given[2:], "the value") if given.startswith(":=") else json_or_text(given)


def json_or_text(given: str) -> Any:
    """Return the value of a text that is JSON, and any other text as it is.

    >>> json_or_text("3"), json_or_text("oslo"), json_or_text("007")
    (3, 'oslo', '007')
    """
    try:
        return plain.parse(given)
    except ValueError:
        return given


def json_value(text: str, what: str) -> Any:
    """Return the value of a text that must be JSON."""
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
        hint = "give JSON by name, -p name=JSON, or on stdin, --input -" if itself else "give a readable file"
        raise InvalidValue(f"{path!r} cannot be read: {why}; nothing was written", hint=hint) from None


def age_us(given: str | None, now_us: int) -> int | None:
    """Return a moment: so long ago (`2h`), or an ISO time."""
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
