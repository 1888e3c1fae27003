"""Resources: tasks, their past, logs and artifacts, and threads, by URI; lists with cursors; completion."""

from __future__ import annotations

from itertools import islice
from typing import Any

import mcp_types as types

from holdfast import TaskState
from holdfast.core.errors import HoldfastError, InvalidValue, TaskNotFound
from holdfast.mcp.reading import documents, links, uris
from holdfast.mcp.reading.scope import Scope
from holdfast.mcp.reading.uris import Address

PAGE = 50
"""How many resources a page of a list has."""

COMPLETIONS = 100
LOOKED_AT = 1000
"""How many of the newest tasks completion looks at."""

JSON = "application/json"


def templates(scope: Scope) -> list[types.ResourceTemplate]:
    """List the resources, by the form of their URI."""
    every = {**uris.TEMPLATES, **(uris.USER_TEMPLATES if scope.users else {})}
    return [
        types.ResourceTemplate(uri_template=form, name=name, description=about, mime_type=JSON)
        for form, (name, about) in every.items()
    ]


def page(scope: Scope, cursor: str | None) -> tuple[list[types.Resource], str | None]:
    """A page of tasks, newest first, and the cursor of the next one."""
    rows = list(islice(scope.rows(after=cursor), PAGE + 1))
    found = [
        types.Resource(
            uri=uris.task_uri(row.agent, row.id),
            name=row.id,
            title=f"{row.agent} {row.id}",
            description=f"{row.status}{f', stage {row.stage}' if row.stage else ''}",
            mime_type=JSON,
        )
        for row in rows[:PAGE]
    ]
    return found, rows[PAGE - 1].id if len(rows) > PAGE else None


def read(scope: Scope, uri: str) -> str:
    """The document that a URI names, as JSON text."""
    address = uris.parse(uri)
    match address.kind:
        case "thread":
            (thread,) = address.ids
            tasks, (after, limit) = scope.thread_tasks(thread), _range(address)
            return documents.capped(documents.thread_document(scope.app, thread, tasks, after, limit))
        case "user":
            return _user(scope, *address.ids)
        case _:
            return _of_task(scope, address)


def _of_task(scope: Scope, address: Address) -> str:
    agent, task = address.ids[:2]
    row = scope.row(task)
    if row.agent != agent:
        raise InvalidValue(
            f"task {task!r} is not one of agent {agent!r}", hint=f"read {uris.task_uri(row.agent, task)}"
        )
    if address.kind == "log":
        return documents.capped(documents.log_document(scope.app, row, *_range(address)))
    if address.kind == "at":
        seq = uris.whole_number(address.ids[2], "seq")
        return documents.capped(documents.task_document(scope.task(task, seq)))
    state, below = scope.task(task), ("artifacts", address.ids[2]) if address.kind == "artifact" else ()
    document = documents.artifact_document(state, below[1]) if below else now(scope, state)
    return chosen(document, address.query.get("path"), address.number("offset", 0), uris.task_uri(agent, task, *below))


def now(scope: Scope, task: TaskState) -> dict[str, Any]:
    """A task's state, with what continues it."""
    return documents.task_document(task, links.continued_by(scope.app, task))


def chosen(document: dict[str, Any], path: str | None, offset: int, uri: str) -> str:
    """A document as far as it fits, or one value of it."""
    return documents.capped(document, uri) if path is None else documents.part(document, path, offset, uri)


def _range(address: Address) -> tuple[int, int]:
    return address.number("after", 0), address.number("limit", documents.EVENTS)


def _user(scope: Scope, user: str) -> str:
    if not scope.users:
        raise InvalidValue("this server does not serve users", hint="start it with users=True")
    known = scope.app.user(user)
    state = {name: known.state[name] for name in known.state}
    shown = {"uri": uris.user_uri(user), "user_id": user, "state": state, "notice": documents.NOTICE}
    return documents.capped(shown)


def complete(scope: Scope, argument: str, begun: str, given: dict[str, str]) -> types.Completion:
    """Ids that begin as typed: of agents that have tasks, or of tasks, of one agent if that is given."""
    rows = islice(scope.rows(agent=given.get("agent") if argument == "task" else None), LOOKED_AT)
    if argument not in ("agent", "task"):
        return types.Completion(values=[], total=0, has_more=False)
    ids = dict.fromkeys(row.agent if argument == "agent" else row.id for row in rows)
    found = [id for id in ids if id.startswith(begun)]
    return types.Completion(values=found[:COMPLETIONS], total=len(found), has_more=len(found) > COMPLETIONS)


def refusal(error: HoldfastError) -> str:
    """Describe an error to a client: what failed, why, and what to do."""
    hint = "list_tasks has the tasks of this store" if isinstance(error, TaskNotFound) else error.hint
    return f"{error.message}. {hint}" if hint else error.message
