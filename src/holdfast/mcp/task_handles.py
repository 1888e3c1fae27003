"""The tasks extension of the protocol: a tool call that leaves work to an agent gives a handle on its task.

The handle is the task's id in the store. So it is durable before it is given, and works with every server of the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdfast import TaskState
from holdfast.core.errors import TaskFinished
from holdfast.engine.reading.inbox import InboxItem
from holdfast.engine.reading.values import as_json
from holdfast.mcp.reading import documents
from holdfast.mcp.reading.scope import Scope
from holdfast.mcp.reading.uris import task_uri
from holdfast.mcp.results import Context, asked, client_of, shows_forms, tool_result
from holdfast.mcp.verbs.decisions import carry_out
from holdfast.mcp.verbs.inputs import outstanding
from holdfast.mcp.verbs.toolbox import refuse_unless
from holdfast.mcp.verbs.writes import WRITES

IDENTIFIER = "io.modelcontextprotocol/tasks"

POLL_MILLISECONDS = 1000
"""How long clients should wait before they ask again."""

MESSAGE_LENGTH = 500
"""The most characters of a status message."""

STARTING = frozenset(verb.name for verb in WRITES if verb.starts)
"""The tools that give a handle."""

_ENDED = {"completed": "completed", "failed": "completed", "cancelled": "cancelled"}
"""The protocol's word for each end. An agent that failed is a tool's error, and `failed` is kept for the protocol's."""


class TaskParams(types.RequestParams):
    """Which task."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """Which task, and what the host's person filled in."""

    input_responses: types.InputResponses


class TaskHandles(Extension):
    """Serves `tasks/get`, `tasks/update` and `tasks/cancel`, each to who may read, decide and write."""

    identifier = IDENTIFIER

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods that the extension adds."""
        return (
            MethodBinding("tasks/get", TaskParams, self.get),
            MethodBinding("tasks/update", TaskUpdateParams, self.update),
            MethodBinding("tasks/cancel", TaskParams, self.cancel),
        )

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: Context, call_next: CallNext
    ) -> HandlerResult:
        """Give a handle in place of the result of a tool that starts an agent, to a client that knows handles."""
        result = await call_next(ctx)
        if params.name not in STARTING or not is_declared(ctx):
            return result
        if not isinstance(result, types.CallToolResult) or result.is_error:
            return result
        return await asked(self._given, (result.structured_content or {})["task_id"])

    async def get(self, ctx: Context, params: TaskParams) -> HandlerResult:
        """Return where a task stands, and its result or what it asks for."""
        require_declared(ctx)
        return await asked(self._shown, params.task_id, shows_forms(ctx))

    async def update(self, ctx: Context, params: TaskUpdateParams) -> HandlerResult:
        """Do what the host's person filled in. What is not asked for, or no longer, is ignored."""
        require_declared(ctx)
        responses = params.input_responses if shows_forms(ctx) else {}
        await asked(self._update, params.task_id, responses, self._scope.by(client_of(ctx)))
        return {}

    async def cancel(self, ctx: Context, params: TaskParams) -> HandlerResult:
        """Cancel a task. One that has ended stays as it is."""
        require_declared(ctx)
        await asked(self._cancel, params.task_id, self._scope.by(client_of(ctx)))
        return {}

    def _given(self, id: str) -> dict[str, Any]:
        task = self._scope.task(id)
        meta = {**documents.META, "holdfast/uri": task_uri(task.agent, task.id)}
        return {"resultType": "task", **_handle(task, self._asking(task)), "_meta": meta}

    def _shown(self, id: str, with_forms: bool) -> dict[str, Any]:
        task = self._scope.task(id)
        items = self._asking(task)
        shown: dict[str, Any] = {**_handle(task, items), "_meta": dict(documents.META)}
        if shown["status"] == "completed":
            shown["result"] = _wire(_result(task))
        if shown["status"] == "input_required":
            forms = outstanding(self._scope, items) if with_forms else {}
            shown["inputRequests"] = {key: _wire(one.form().request()) for key, one in forms.items()}
        return shown

    def _asking(self, task: TaskState) -> list[InboxItem]:
        return [] if task.status in _ENDED else list(self._scope.app.inbox(task.id))

    def _update(self, id: str, responses: types.InputResponses, by: str) -> None:
        refuse_unless(self._scope, "decide", "decide for a task")
        app, task = self._scope.app, self._scope.row(id).id
        for key, one in outstanding(self._scope, app.inbox(task)).items():
            answer = responses.get(key)
            if isinstance(answer, types.ElicitResult):
                carry_out(app, one.item, one.decision, answer, by)

    def _cancel(self, id: str, by: str) -> None:
        refuse_unless(self._scope, "write", "cancel a task")
        task = self._scope.row(id).id
        with contextlib.suppress(TaskFinished):
            self._scope.app.cancel(task, by=by)


def is_declared(ctx: Context) -> bool:
    """Return whether a client has said with this very request that it knows handles."""
    declared = ctx.session.client_capabilities
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and IDENTIFIER in ((declared and declared.extensions) or {})


def require_declared(ctx: Context) -> None:
    """Refuse a client that has not said so. In older revisions of the protocol there are no such methods."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
    if not is_declared(ctx):
        missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}}
        told = f"{ctx.method} is for clients that declare the extension {IDENTIFIER}"
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, told, missing)


def _handle(task: TaskState, items: Sequence[InboxItem]) -> dict[str, Any]:
    """Return what every handle has. A task that needs a person is `input_required`, also if this client can't help."""
    needs_person = any(one.kind != "no_worker" for one in items)
    return {
        "taskId": task.id,
        "status": _ENDED.get(task.status) or ("input_required" if needs_person else "working"),
        "statusMessage": _message(task, items)[:MESSAGE_LENGTH],
        "createdAt": task.created_at.isoformat(),
        "lastUpdatedAt": task.updated_at.isoformat(),
        "ttlMs": None,
        "pollIntervalMs": POLL_MILLISECONDS,
    }


def _message(task: TaskState, items: Sequence[InboxItem]) -> str:
    if task.failure is not None and task.status == "failed":
        return f"The task failed: {task.failure.type}: {task.failure.message}"
    if items:
        return "The task waits. " + "; ".join(f"{one.kind} {one.key}: {one.command}".strip() for one in items)
    if task.interrupted:
        return "The worker of the task died. Another worker, or holdfast resume, continues it."
    if task.waiting is not None:
        return f"The task waits: {task.waiting.kind} {task.waiting.why}".rstrip()
    return f"The task is {task.status}{f', at stage {task.stage}' if task.stage else ''}."


def _result(task: TaskState) -> types.CallToolResult:
    """Return what the tool call has come to: the agent's result, or why it failed."""
    uri = task_uri(task.agent, task.id)
    ended: dict[str, Any] = {"uri": uri, "agent_id": task.agent, "task_id": task.id, "seq": task.seq}
    ended |= {"status": task.status, "result": task.stored_result, "failure": as_json(task.failure)}
    return tool_result(ended, more=uri, is_error=task.status == "failed")


def _wire(model: types.CallToolResult | types.ElicitRequest) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
