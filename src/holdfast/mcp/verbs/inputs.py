"""What a task waits for, as requests to the client that holds its handle. Each is a form for the host's person."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from holdfast import App, TaskState
from holdfast.core.errors import TaskNotFound
from holdfast.engine.reading.inbox import InboxItem
from holdfast.engine.reading.values import text
from holdfast.mcp.reading.documents import inbox_document
from holdfast.mcp.reading.scope import Scope
from holdfast.mcp.verbs.decisions import DECISIONS, Form, FormVerb, form_of, json_value, may_be_shown

_JSON = ":="
"""What an answer begins with that is JSON, and not text: as on the command line."""

_DATED = ("question", "approval", "doubt")
"""Entries that say since when they wait. A loop may ask the same again, and that is another request."""


class InputRequest(NamedTuple):
    """A form about one entry of the inbox, and what it decides."""

    item: InboxItem
    decision: FormVerb

    def form(self) -> Form:
        """Build the form."""
        return form_of(self.item, self.decision)


def outstanding(scope: Scope, items: Iterable[InboxItem]) -> dict[str, InputRequest]:
    """Return what a client may be asked for, by a key that is never used for anything else in the task's life."""
    asked = (one for one in items if one.kind in INPUTS and may_be_shown(scope, one) and _is_served(scope, one.owner))
    return {_key(one): InputRequest(one, INPUTS[one.kind]) for one in asked}


def _is_served(scope: Scope, owner: str) -> bool:
    try:
        return not owner or bool(scope.row(owner))
    except TaskNotFound:
        return False


def _key(item: InboxItem) -> str:
    """An answer is bound by it to everything that the form showed."""
    shown = text({**inbox_document(item), "since": item.since_us if item.kind in _DATED else 0})
    return f"{item.kind}:{item.key}:{hashlib.sha256(shown.encode()).hexdigest()[:32]}"


def _answer(app: App, item: InboxItem, content: Mapping[str, Any], by: dict[str, Any]) -> TaskState:
    written = str(content["answer"])
    value = json_value(written.removeprefix(_JSON), "the answer") if written.startswith(_JSON) else written
    return app.answer(item.task, item.key, value, **by)


def _approve_or_reject(app: App, item: InboxItem, content: Mapping[str, Any], by: dict[str, Any]) -> TaskState:
    verb = DECISIONS[content["decision"]]
    return verb.apply(app, item, content, by)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_verdict(value: object) -> bool:
    return value in ("approve", "reject")


INPUTS: dict[str, FormVerb] = {
    "question": FormVerb(
        ("question",),
        "A task asks a question.",
        {"answer": {"type": "string", "title": "Answer", "description": "Text; or := and JSON, such as :=3"}},
        "answer",
        _is_text,
        _answer,
    ),
    "approval": FormVerb(
        ("approval",),
        "Approve or reject this call?",
        {"decision": {"type": "string", "title": "Decision", "enum": ["approve", "reject"]}},
        "decision",
        _is_verdict,
        _approve_or_reject,
    ),
    "doubt": DECISIONS["settle"],
    "blocked": DECISIONS["settle"],
    "budget": DECISIONS["raise_budget"],
}
"""The form for each kind of entry. For other kinds there is only a command."""
