"""Tools that read: lists, states, logs, differences, search, the inbox, failures."""

from __future__ import annotations

from itertools import islice
from typing import Any

from holdfast.core.errors import InvalidValue
from holdfast.engine.reading.values import text
from holdfast.mcp.reading import documents, resources, uris
from holdfast.mcp.verbs.toolbox import AGENT, TASK, Parameter, Request, ServerTool

PAGE = 50
MOST_ROWS = 200
LOOKED_AT = 1000
"""How many of the newest tasks a search looks at."""

LAST_EVENTS = 20
"""How many events before a failure are shown with it."""

_LIMIT = Parameter("limit", "integer", "The most to return.", required=False)
_PATH = Parameter("path", "string", "Only this value, as a JSON Pointer: /state/notes.", required=False)
_OFFSET = Parameter("offset", "integer", "With path: where in a long value to begin.", required=False)


def _list_tasks(request: Request) -> dict[str, Any]:
    wanted = _limited(request, PAGE, MOST_ROWS)
    filters = {name: request.get(name) for name in ("status", "agent", "stage")}
    rows = list(islice(request.scope.rows(after=request.get("cursor"), **filters), wanted + 1))
    following = rows[wanted - 1].id if len(rows) > wanted else None
    return {"tasks": [documents.row_document(row) for row in rows[:wanted]], "next_cursor": following}


def _limited(request: Request, default: int, most: int) -> int:
    limit = request.get("limit", default)
    if not 1 <= limit <= most:
        raise InvalidValue(f"limit={limit} is out of range", hint=f"use 1 to {most}")
    return limit


def _get_task(request: Request) -> dict[str, Any]:
    task = request.scope.task(request["task"], request.get("at"))
    document = resources.now(request.scope, task)
    path = request.get("path")
    if path is None:
        return document
    value = documents.at(document, path)
    if request.get("offset") or len(text(value).encode()) > documents.MOST_BYTES // 2:
        return documents.window(text(value), request.get("offset", 0), path)
    return {"path": path, "value": value}


def _get_log(request: Request) -> dict[str, Any]:
    row = request.scope.row(request["task"])
    return documents.log_document(
        request.scope.app, row, request.get("after", 0), request.get("limit", documents.EVENTS)
    )


def _diff(request: Request) -> dict[str, Any]:
    row = request.scope.row(request["task"])
    a, b = request["a"], request["b"]
    return {"task": row.id, "a": a, "b": b, "patch": request.scope.app.diff(row.id, a, b)}


def _search(request: Request) -> dict[str, Any]:
    """Look for a text in ids, stages, goals, state, facts and results of the newest tasks."""
    wanted, found = request["text"].casefold(), list[dict[str, Any]]()
    most = _limited(request, PAGE, MOST_ROWS)
    rows = islice(request.scope.rows(agent=request.get("agent")), LOOKED_AT)
    looked = 0
    for row in rows:
        looked += 1
        where = _places(request, row.id, wanted)
        if where:
            found.append({**documents.row_document(row), "found_in": where})
        if len(found) == most:
            break
    return {"tasks": found, "looked_at": looked}


def _places(request: Request, id: str, wanted: str) -> list[str]:
    document = documents.task_document(request.scope.app.get(id))
    sections = (
        "task_id",
        "stage",
        "goal",
        "input",
        "state",
        "plan",
        "facts",
        "questions",
        "notes",
        "result",
        "failure",
    )
    return [name for name in sections if wanted in text(document[name]).casefold()]


def _list_inbox(request: Request) -> dict[str, Any]:
    most = _limited(request, PAGE, MOST_ROWS)
    items = (item for item in request.scope.app.inbox() if request.scope.serves(item.agent))
    return {"waiting": [documents.inbox_document(item) for item in islice(items, most)]}


def _explain_failure(request: Request) -> dict[str, Any]:
    task = request.scope.task(request["task"])
    seq = task.failed_at or task.seq
    row = request.scope.row(task.id)
    before = documents.log_document(request.scope.app, row, max(0, seq - LAST_EVENTS), LAST_EVENTS + 5)
    shown = documents.task_document(task)
    open_steps = [key for key, step in task.steps.items() if step.status not in ("completed",)]
    return {
        **{name: shown[name] for name in ("uri", "task_id", "status", "failure", "waiting", "stage", "position")},
        "explanation": _explanation(task.status, shown),
        "failed_at": task.failed_at,
        "unfinished_steps": open_steps,
        "needs": [documents.inbox_document(item) for item in request.scope.app.inbox(task.id)],
        "last_events": before["events"],
    }


def _explanation(status: str, shown: dict[str, Any]) -> str:
    if shown["failure"] is not None and status == "failed":
        return f"The task failed: {shown['failure']['type']}: {shown['failure']['message']}"
    if shown["status"] == "interrupted":
        return "The worker of the task died. Another worker, or holdfast resume, continues it."
    if shown["waiting"] is not None:
        return f"The task has not failed. It waits: {shown['waiting']['kind']} {shown['waiting']['why']}".rstrip()
    return f"The task has not failed. It is {shown['status']}."


READS = (
    ServerTool(
        "list_tasks",
        "List tasks, newest first.",
        (
            Parameter("status", "string", "pending, running, waiting, completed, failed or cancelled.", required=False),
            AGENT,
            Parameter("stage", "string", "The stage.", required=False),
            _LIMIT,
            Parameter("cursor", "string", "The next_cursor of the page before.", required=False),
        ),
        _list_tasks,
    ),
    ServerTool(
        "get_task",
        f"Read a task as it is now, or as it was: state, plan, facts, artifacts, waits. Same as {uris.TASK}.",
        (TASK, Parameter("at", "integer", "As it was just after this event.", required=False), _PATH, _OFFSET),
        _get_task,
    ),
    ServerTool(
        "get_log",
        "Read a task's events in order: steps, attempts, waits, decisions, cost.",
        (TASK, Parameter("after", "integer", "Only events after this seq.", required=False), _LIMIT),
        _get_log,
    ),
    ServerTool(
        "diff",
        "Show what changed in a task between two events, as a JSON Patch.",
        (TASK, Parameter("a", "integer", "The earlier seq."), Parameter("b", "integer", "The later seq.")),
        _diff,
    ),
    ServerTool(
        "search",
        f"Find a text in the newest {LOOKED_AT} tasks: ids, goals, state, facts, results, failures.",
        (Parameter("text", "string", "The text; case does not matter."), AGENT, _LIMIT),
        _search,
    ),
    ServerTool(
        "list_inbox",
        "List what tasks wait for that a person can give, with the command that helps.",
        (_LIMIT,),
        _list_inbox,
    ),
    ServerTool(
        "explain_failure",
        "Explain why a task failed or does not continue, with the last events.",
        (TASK,),
        _explain_failure,
    ),
)
"""Every tool that reads."""

__all__ = ["READS"]
