"""Tools that change something: start, patch, signal, fork, cancel, resume, say something, take over work."""

from __future__ import annotations

from typing import Any

from holdfast import StatePatch, TaskState
from holdfast.core.errors import InvalidValue, TaskBusy
from holdfast.mcp.reading import documents, links, uris
from holdfast.mcp.verbs.toolbox import AGENT, TASK, WHY, Parameter, Request, ServerTool

_ID = Parameter("id", "string", "The id of the new task; with it, a repeated call finds the same task.", required=False)


def told(task: TaskState) -> dict[str, Any]:
    """Return the part of a changed task that a client needs: the whole state is one read away."""
    shown = documents.task_document(task)
    return {name: shown[name] for name in ("uri", "agent_id", "task_id", "seq", "status", "stage", "waiting")}


def _start_task(request: Request) -> dict[str, Any]:
    _refuse_unserved(request, request["agent"])
    given = {name: request.get(name) for name in ("id", "thread", "user")}
    more = {name: request[name] for name in ("goal", "queue") if name in request.arguments}
    task = request.scope.app.start(request["agent"], request.get("input"), by=request.by, **given, **more)
    return told(task)


def _refuse_unserved(request: Request, agent: str) -> None:
    if not request.scope.serves(agent):
        served = ", ".join(sorted(request.scope.agents or ()))
        raise InvalidValue(f"this server does not serve agent {agent!r}", hint=f"it serves {served}")


def _patch_task(request: Request) -> dict[str, Any]:
    row = request.scope.row(request["task"])
    patch = StatePatch.from_json(request["patch"])
    why = request.get("why", "")
    return told(request.scope.app.patch(row.id, patch, expect=request["expect"], by=request.by, why=why))


def _signal(request: Request) -> dict[str, Any]:
    row = request.scope.row(request["task"])
    return told(request.scope.app.signal(row.id, request["name"], request.get("value"), by=request.by))


def _fork_task(request: Request) -> dict[str, Any]:
    row = request.scope.row(request["task"])
    patch = StatePatch.from_json(request["patch"]) if "patch" in request.arguments else None
    given: dict[str, Any] = {"at": request.get("at"), "id": request.get("id"), "patch": patch}
    return told(request.scope.app.fork(row.id, by=request.by, **given))


def _cancel_task(request: Request) -> dict[str, Any]:
    row = request.scope.row(request["task"])
    return told(request.scope.app.cancel(row.id, why=request.get("why", ""), by=request.by))


def _resume_task(request: Request) -> dict[str, Any]:
    row = request.scope.row(request["task"])
    return told(request.scope.app.reopen(row.id, why=request.get("why", ""), by=request.by))


def _add_message(request: Request) -> dict[str, Any]:
    request.scope.thread_tasks(request["thread"])
    thread = request.scope.app.thread(request["thread"])
    thread.message({"role": "user", "content": request["text"]}, by=request.by)
    return {"uri": uris.thread_uri(thread.id), "thread_id": thread.id, "seq": thread.seq}


def _continue_task(request: Request) -> dict[str, Any]:
    """Start a task that begins with what another one knows. Called again with the same id, it completes the links."""
    scope, app = request.scope, request.scope.app
    old = scope.task(request["task"])
    agent = request.get("agent", old.agent)
    _refuse_unserved(request, agent)
    if old.status == "running" and not old.interrupted:
        raise TaskBusy(old.id, old.holder or "")
    old_uri, id = uris.task_uri(old.agent, old.id), request.get("id", f"{old.id}.{agent}")
    if app.row(id) is None:
        contract = old.contract()
        if old.thread is not None:
            contract.pop("messages", None)  # the next agent reads them in the thread
        link = {"key": links.CONTINUES, "value": old_uri, "source": request.by}
        contract["known_facts"] = [*contract["known_facts"], link]
        given = request.get("input", dict(old.input))
        app.start(agent, given, id=id, contract=contract, thread=old.thread, user=old.user, by=request.by)
    new = scope.task(id)
    if new.facts.get(links.CONTINUES) is None or new.facts[links.CONTINUES].value != old_uri:
        raise InvalidValue(f"task {id!r} exists and does not continue {old.id!r}", hint="give another id")
    links.link(app, old, new, request.by)
    return {**told(new), "continues": old_uri}


WRITES = (
    ServerTool(
        "start_task",
        "Start a task for an agent. It is recorded before this returns, and pending until a worker takes it.",
        (
            Parameter("agent", "string", "The agent's name."),
            Parameter("input", "object", "What the agent is called with.", required=False),
            _ID,
            Parameter("goal", "string", "What the task is to achieve.", required=False),
            Parameter("thread", "string", "The conversation it takes part in.", required=False),
            Parameter("user", "string", "The person it is for.", required=False),
            Parameter("queue", "string", "The queue.", required=False),
        ),
        _start_task,
        role="write",
        starts=True,
        idempotent=False,
    ),
    ServerTool(
        "patch_task",
        "Change what a task knows, all or nothing. Fails if another writer changed the same fields since `expect`.",
        (
            TASK,
            Parameter(
                "patch",
                "object",
                "Sections: set, delete, increment, append, append_facts, replace_plan, complete_plan_step, "
                "add_questions, close_question, add_artifacts, raise_flags, clear_flags, require.",
            ),
            Parameter("expect", "integer", "The seq of the state you read."),
            WHY,
        ),
        _patch_task,
        role="write",
        idempotent=False,
    ),
    ServerTool(
        "signal",
        "Tell a task that something happened.",
        (
            TASK,
            Parameter("name", "string", "The signal's name."),
            Parameter("value", "any", "What came with it.", required=False),
        ),
        _signal,
        role="write",
        idempotent=False,
    ),
    ServerTool(
        "fork_task",
        "Begin a new task whose past is another's, up to an event. The other one stays as it is.",
        (
            TASK,
            Parameter("at", "integer", "The event; else now.", required=False),
            _ID,
            Parameter("patch", "object", "A change to begin with.", required=False),
        ),
        _fork_task,
        role="write",
        starts=True,
        idempotent=False,
    ),
    ServerTool(
        "cancel_task", "Cancel a task and its children.", (TASK, WHY), _cancel_task, role="write", destructive=True
    ),
    ServerTool(
        "resume_task",
        "Make a failed or quarantined task pending, so that a worker continues it.",
        (TASK, WHY),
        _resume_task,
        role="write",
        starts=True,
    ),
    ServerTool(
        "add_message",
        "Add a message to a conversation, as a user's.",
        (Parameter("thread", "string", "The thread's id."), Parameter("text", "string", "The message.")),
        _add_message,
        role="write",
        idempotent=False,
    ),
    ServerTool(
        "continue_task",
        "Take over the work of a task: a new task begins with its contract, facts, plan, artifacts and thread. "
        "Both are linked. The first one is not cancelled.",
        (TASK, AGENT, _ID, Parameter("input", "object", "Input; else that of the task.", required=False)),
        _continue_task,
        role="write",
        starts=True,
    ),
)
"""Every tool that changes something."""
