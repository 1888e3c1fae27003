"""Values, times and JSON, as every face parses and prints them.

Faces import nothing of core but errors and events; what else they need of it stands here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from holdfast.core import urls as urls
from holdfast.core.codec import (
    Fetch as Fetch,
    LoggedEvent as LoggedEvent,
    Summary as Summary,
    as_json as as_json,
    dump as dump,
    fingerprint as fingerprint,
    load as load,
    moment as moment,
    parse as parse,
    schema as schema,
    text as text,
    unpack as unpack,
)
from holdfast.core.codec.secrets import HIDDEN as HIDDEN
from holdfast.core.durations import Duration as Duration, seconds as seconds
from holdfast.core.limits import (
    FAILURE_LOGGER as FAILURE_LOGGER,
    MAX_PAGE_SIZE as MAX_PAGE_SIZE,
    MAX_SEQ as MAX_SEQ,
)
from holdfast.core.names import BLOCK_QUEUE as BLOCK_QUEUE, task_log as task_log, user_log as user_log
from holdfast.core.state.shapes import ENDED as ENDED
from holdfast.engine.logs.addresses import is_server as is_server, path_of as path_of
from holdfast.engine.logs.committer import Observer as Observer, PlacedEvent as PlacedEvent


class Expired(Struct, frozen=True):
    """What has expired, by its id: tasks, which `gc` cancels, and what it removes. Records are (space, key)."""

    tasks: list[str]
    threads: list[str]
    users: list[str]
    records: list[tuple[str, str]]

    @property
    def total(self) -> int:
        """How many these are."""
        return len(self.tasks) + len(self.threads) + len(self.users) + len(self.records)


def shown(value: Any) -> str:
    """Return a value for a line among others: no quotes, no escapes, and messages as plain text.

    >>> shown({"item": "lamp", "count": 2, "sizes": ["S", "M"], "to": {"city": "Oslo"}})
    'item=lamp count=2 sizes=[S, M] to={city=Oslo}'
    >>> shown({"card": {"secret": "card …42"}, "token": {"secret": ""}})
    'card=<secret card …42> token=<secret>'
    >>> shown({"role": "assistant", "content": None, "tool_calls": [
    ...     {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "oslo"}'}}]})
    'assistant → search(q=oslo)'
    """
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value)
        if list(pairs) == ["$messages"]:  # a window of the conversation, kept by its identity
            return f"{pairs['$messages'].get('to', '?')} messages"
        if list(pairs) == ["secret"]:  # its label; older versions kept a fingerprint there
            label = str(pairs["secret"])
            return "<secret>" if not label or _FINGERPRINT.fullmatch(label) else f"<secret {label}>"
        return _message(pairs) or " ".join(f"{name}={_within(one)}" for name, one in pairs.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(_within(one) for one in cast('list[Any]', value))}]"
    return value if isinstance(value, str) else text(value)


_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))


def _within(value: Any) -> str:
    """A value inside another one: one of several fields gets braces."""
    told = shown(value)
    is_plain = isinstance(value, Mapping) and told.startswith(tuple(f"{name}=" for name in cast("Any", value)))
    return f"{{{told}}}" if is_plain else told


def _message(pairs: Mapping[str, Any]) -> str:
    """A message in any provider's form: its role, its texts, and the calls it asks for; empty if it is none."""
    said = [_part(pairs)] if pairs.get("type") in _CALLS else []
    if pairs.get("role") in _ROLES and {"content", "parts", "tool_calls"} & set(pairs):
        content = pairs.get("parts") or pairs.get("content") or ()
        parts: Any = [content] if isinstance(content, str | Mapping) else content
        calls: Any = pairs.get("tool_calls") or ()
        said = [_part(one) for one in (*parts, *calls)] or [""]
    if not said:
        return ""
    told, role = " ".join(filter(None, said)), str(pairs.get("role", ""))
    return f"{role}{':' if role and told and not told.startswith('→') else ''} {told}".strip()


_CALLS = frozenset(("function", "function_call", "tool_call", "tool_use"))


def _part(part: Any) -> str:
    """A text, a call or a result of a message."""
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else shown(part)
    fields = cast("Mapping[str, Any]", part)
    if fields.get("type") in _CALLS:
        call: Mapping[str, Any] = fields.get("function") or fields
        return f"→ {call.get('name', '?')}({shown_arguments(call.get('arguments', call.get('input')))})"
    told = next((fields[name] for name in ("text", "content", "output", "thinking") if fields.get(name)), None)
    parts = cast("list[Any]", told) if isinstance(told, list | tuple) else [told]
    return " ".join(_part(one) for one in parts if one is not None) or f"[{fields.get('type', 'part')}]"


def shown_arguments(given: Any) -> str:
    """Return the arguments of a call, as they are written in code. A model gives them as JSON, or as something else."""
    try:
        found = parse(given) if isinstance(given, str) else given
    except ValueError:
        return str(given)
    if not isinstance(found, Mapping):
        return "" if found is None else shown(found)
    return ", ".join(f"{name}={_within(one)}" for name, one in cast("Mapping[str, Any]", found).items())
