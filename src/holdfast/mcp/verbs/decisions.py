"""Decisions that belong to a person: never made by a tool's arguments, but by a form that the client's host shows.

Who fills in the form can't be known, so what is recorded says that it was elicited.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import mcp_types as types

from holdfast import App, Budget, TaskState
from holdfast.core.errors import InvalidEvent, InvalidValue
from holdfast.engine.reading.inbox import InboxItem
from holdfast.engine.reading.values import as_json, parse, text
from holdfast.mcp.reading.documents import inbox_document
from holdfast.mcp.reading.scope import ELICITED, Scope
from holdfast.mcp.verbs.toolbox import TASK, WHY, Parameter, Request, ServerTool
from holdfast.mcp.verbs.writes import told

FORM = "decision"
"""The key of the form among the inputs a client is asked for."""

TRUSTED_RISK = "external_action"

_CALL = Parameter("call", "string", "The key of the call, as list_inbox shows it.")
_WHY_FIELD = {"type": "string", "title": "Reason", "description": "Kept in the log."}


class Form(NamedTuple):
    """What a person is asked, the fields to fill in, the digest of what they are shown, and the command."""

    message: str
    schema: dict[str, Any]
    bound: str
    command: str

    def request(self) -> types.ElicitRequest:
        """As the protocol asks for it."""
        return types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=self.message, requested_schema=self.schema)
        )


class FormVerb(NamedTuple):
    """A verb that a person decides: which entries of the inbox it is about, its fields, and what it does.

    Nothing is done unless the field `confirm` has a value that `agrees`: text such as "yes" never does.
    """

    kinds: tuple[str, ...]
    question: str
    fields: dict[str, dict[str, Any]]
    confirm: str
    agrees: Callable[[object], bool]
    apply: Callable[[App, InboxItem, Mapping[str, Any], dict[str, Any]], TaskState]


def form(request: Request, verb: str) -> Form:
    """Build the form for the person. Refuses when there is nothing to decide, or when a form may not decide it."""
    item = _item(request, verb)
    if not may_be_shown(request.scope, item):
        raise InvalidValue(
            f"a form may not decide about {item.key!r}, a call of risk {item.risk}",
            hint=f"a person decides it with: {item.command}; or start the server with --trust-elicitation",
        )
    return form_of(item, DECISIONS[verb])


def may_be_shown(scope: Scope, item: InboxItem) -> bool:
    """Return whether a form may decide about an entry: an external action needs the second flag too."""
    return scope.decisions and (item.risk != TRUSTED_RISK or scope.trust_elicitation)


def form_of(item: InboxItem, decision: FormVerb) -> Form:
    """Build the form about one entry of the inbox."""
    shown = text({name: value for name, value in inbox_document(item).items() if value not in (None, "", {})})
    message = f"{decision.question}\nTask: {item.task}\n{_call(item)}\n\n{shown}"
    schema = {"type": "object", "properties": {**decision.fields, "why": _WHY_FIELD}, "required": [decision.confirm]}
    return Form(message, schema, digest(item), f"a person decides it with: {item.command}")


def _call(item: InboxItem) -> str:
    if not item.tool:
        return f"{item.kind}: {item.key}"
    arguments = ", ".join(f"{name}={text(as_json(value))}" for name, value in item.arguments.items())
    return f"Call: {item.tool}({arguments})"


def digest(item: InboxItem) -> str:
    """Return the digest that an answer is bound to: everything the person was shown."""
    return hashlib.sha256(text(inbox_document(item)).encode()).hexdigest()


def decide(request: Request, verb: str, bound: str, answer: types.ElicitResult) -> dict[str, Any]:
    """Do what the person decided, if what they were shown is still so."""
    item = _item(request, verb)
    if digest(item) != bound:
        raise InvalidEvent(f"{item.key!r} has changed since the form was shown; nothing was decided", hint="ask again")
    done = carry_out(request.scope.app, item, DECISIONS[verb], answer, request.by)
    if done is None:
        return {"decided": False, "task_id": item.task, "why": f"the person did not agree ({answer.action})"}
    return {"decided": True, **told(done)}


def carry_out(app: App, item: InboxItem, decision: FormVerb, answer: types.ElicitResult, by: str) -> TaskState | None:
    """Do what a form says, in the name of a client; None if it says nothing that decides."""
    content: Mapping[str, Any] = answer.content or {}
    if answer.action != "accept" or not decision.agrees(content.get(decision.confirm)):
        return None
    return decision.apply(app, item, content, {"by": by + ELICITED, "why": str(content.get("why") or "")})


def _item(request: Request, verb: str) -> InboxItem:
    """The entry of the inbox that is to be decided."""
    row, kinds, key = request.scope.row(request["task"]), DECISIONS[verb].kinds, request.get("call")
    found = [one for one in request.scope.app.inbox(row.id) if one.kind in kinds]
    if key is not None:
        found = [one for one in found if key in (one.key, one.name, one.tool)]
    if len(found) != 1:
        several = f"{len(found)} such things" if found else "nothing"
        raise InvalidEvent(f"task {row.id!r} waits for {several} to {verb}", hint="list_inbox shows what it waits for")
    if found[0].owner:
        request.scope.row(found[0].owner)
    return found[0]


def _approve(app: App, item: InboxItem, content: Mapping[str, Any], by: dict[str, Any]) -> TaskState:
    return app.approve(item.task, item.key, bound=item.bound, **by)


def _reject(app: App, item: InboxItem, content: Mapping[str, Any], by: dict[str, Any]) -> TaskState:
    return app.reject(item.task, item.key, bound=item.bound, **by)


def _settle(app: App, item: InboxItem, content: Mapping[str, Any], by: dict[str, Any]) -> TaskState:
    happened, result = content["happened"] is True, content.get("result")
    value = json_value(str(result), "the result") if happened and result not in (None, "") else None
    return app.settle(item.owner or item.task, item.key, happened=happened, result=value, **by)


def json_value(written: str, what: str) -> Any:
    """Read JSON that a person wrote into a form."""
    try:
        return parse(written)
    except ValueError as error:
        raise InvalidValue(
            f"{what} is not JSON: {error}; nothing was decided", hint='JSON is 3, true or "text"'
        ) from None


def _raise_budget(app: App, item: InboxItem, content: Mapping[str, Any], by: dict[str, Any]) -> TaskState:
    limit = content["limit"]
    more: dict[str, Any] = {item.key: int(limit) if limit == int(limit) else limit}  # forms know no whole numbers
    return app.raise_budget(item.owner or item.task, Budget(**more), **by)


def _is_true(value: object) -> bool:
    return value is True


def _is_yes_or_no(value: object) -> bool:
    return isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _yes(title: str) -> dict[str, Any]:
    return {"type": "boolean", "title": title, "default": False}


DECISIONS: dict[str, FormVerb] = {
    "approve": FormVerb(
        ("approval",), "Approve this call?", {"approve": _yes("Approve")}, "approve", _is_true, _approve
    ),
    "reject": FormVerb(
        ("approval",), "Reject this call for good?", {"reject": _yes("Reject")}, "reject", _is_true, _reject
    ),
    "settle": FormVerb(
        ("doubt", "blocked"),
        "This call may have happened. Did it?",
        {
            "happened": {"type": "boolean", "title": "It happened"},
            "result": {"type": "string", "title": "Its result", "description": "As JSON, if it happened."},
        },
        "happened",
        _is_yes_or_no,
        _settle,
    ),
    "raise_budget": FormVerb(
        ("budget",),
        "Allow this task more?",
        {"limit": {"type": "number", "title": "New limit"}},
        "limit",
        _is_number,
        _raise_budget,
    ),
}
"""What a person decides. The arguments of these tools say what about, never what."""


def _answer(request: Request) -> dict[str, Any]:
    row = request.scope.row(request["task"])
    value, why = request.get("value"), request.get("why", "")
    return told(request.scope.app.answer(row.id, request["question"], value, by=request.by, why=why))


_ASKS = " Your host asks its person; you can't decide it."
DECIDES = (
    ServerTool(
        "answer",
        "Answer a question that a task asked.",
        (
            TASK,
            Parameter("question", "string", "Its key or name."),
            Parameter("value", "any", "The answer."),
            WHY,
        ),
        _answer,
        role="decide",
        idempotent=False,
    ),
    ServerTool(
        "approve", "Ask for approval of a pending call." + _ASKS, (TASK, _CALL), role="decide", destructive=True
    ),
    ServerTool(
        "reject", "Ask to reject a pending call for good." + _ASKS, (TASK, _CALL), role="decide", destructive=True
    ),
    ServerTool(
        "settle", "Ask whether a call in doubt happened." + _ASKS, (TASK, _CALL), role="decide", destructive=True
    ),
    ServerTool("raise_budget", "Ask for a larger budget." + _ASKS, (TASK,), role="decide", destructive=True),
)
"""Every tool that decides, or asks a person to."""
