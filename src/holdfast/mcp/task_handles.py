"""The tasks extension of the protocol: a tool call that leaves work to an agent gives a handle on its task.

The handle is the task's id in the store. So it is durable before it is given, and works with every server of the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
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
from holdfast.mcp.verbs.inputs import InputRequest, outstanding
from holdfast.mcp.verbs.toolbox import refuse_unless
from holdfast.mcp.verbs.writes import WRITES

IDENTIFIER = "io.modelcontextprotocol/tasks"

POLL_MILLISECONDS = 1000
"""How long clients should wait before they ask again."""

MESSAGE_LENGTH = 500
"""The most characters of a status message."""

STARTING = frozenset(verb.name for verb in WRITES if verb.starts)
"""The tools that give a handle."""

MOST_DECLINED = 10_000
"""How many declined forms a server remembers. One that it forgets is asked again."""

_HANDLE = ("taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta")
"""What a handle has when it is given. The rest is asked for."""

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
        self._declined: dict[str, None] = {}

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
        document: dict[str, Any] = result.structured_content or {}
        shown = await asked(self._shown, document["task_id"], shows_forms(ctx))
        return {"resultType": "task", **{name: shown[name] for name in _HANDLE}}

    async def get(self, ctx: Context, params: TaskParams) -> HandlerResult:
        """Return where a task stands, and its result or what it asks for."""
        _checked(ctx, params)
        return await asked(self._shown, params.task_id, shows_forms(ctx))

    async def update(self, ctx: Context, params: TaskUpdateParams) -> HandlerResult:
        """Do what the host's person filled in. What is not asked for, or no longer, is ignored.

        A form that was answered and decides nothing is not asked again here: people have the tools and the commands.
        """
        _checked(ctx, params)
        responses = params.input_responses if shows_forms(ctx) else {}
        declined = await asked(self._update, params.task_id, responses, self._scope.by(client_of(ctx)))
        self._declined |= dict.fromkeys(declined)
        while len(self._declined) > MOST_DECLINED:
            del self._declined[next(iter(self._declined))]
        return {}

    async def cancel(self, ctx: Context, params: TaskParams) -> HandlerResult:
        """Cancel a task. One that has ended stays as it is."""
        _checked(ctx, params)
        await asked(self._cancel, params.task_id, self._scope.by(client_of(ctx)))
        return {}

    def _shown(self, id: str, with_forms: bool) -> dict[str, Any]:
        """What a handle gives. It asks for input only if there is a form that this client can be sent."""
        task = self._scope.task(id)
        items = [] if task.status in _ENDED else list(self._scope.app.inbox(task.id))
        forms = self._forms(items) if with_forms else {}
        shown: dict[str, Any] = {
            "taskId": task.id,
            "status": _ENDED.get(task.status) or ("input_required" if forms else "working"),
            "statusMessage": _message(task, items)[:MESSAGE_LENGTH],
            "createdAt": task.created_at.isoformat(),
            "lastUpdatedAt": task.updated_at.isoformat(),
            "ttlMs": None,
            "pollIntervalMs": POLL_MILLISECONDS,
            "_meta": {**documents.META, "holdfast/uri": task_uri(task.agent, task.id)},
        }
        if shown["status"] == "completed":
            shown["result"] = _wire(_result(task))
        if forms:
            shown["inputRequests"] = {key: _wire(one.form().request()) for key, one in forms.items()}
        return shown

    def _forms(self, items: Iterable[InboxItem]) -> dict[str, InputRequest]:
        asked_for = outstanding(self._scope, items)
        return {key: one for key, one in asked_for.items() if key not in self._declined}

    def _update(self, id: str, responses: types.InputResponses, by: str) -> list[str]:
        """Carry out what was filled in; gives the keys of forms that decide nothing."""
        refuse_unless(self._scope, "decide", "decide for a task")
        app, declined = self._scope.app, list[str]()
        for key, one in self._forms(app.inbox(self._scope.row(id).id)).items():
            answer = responses.get(key)
            if not isinstance(answer, types.ElicitResult):
                continue
            if carry_out(app, one.item, one.decision, answer, by) is None:
                declined.append(key)
        return declined

    def _cancel(self, id: str, by: str) -> None:
        refuse_unless(self._scope, "write", "cancel a task")
        task = self._scope.row(id).id
        with contextlib.suppress(TaskFinished):
            self._scope.app.cancel(task, by=by)


def is_declared(ctx: Context) -> bool:
    """Return whether a client has declared with this very request that it knows handles."""
    declared = ctx.session.client_capabilities
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and IDENTIFIER in ((declared and declared.extensions) or {})


def require_declared(ctx: Context) -> None:
    """Refuse a client that has not declared it. In older revisions of the protocol there are no such methods."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
    if not is_declared(ctx):
        missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}}
        told = f"{ctx.method} is for clients that declare the extension {IDENTIFIER}"
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, told, missing)


def _checked(ctx: Context, params: TaskParams) -> None:
    """Refuse a request about a handle that is not declared or not routed as the extension says."""
    require_declared(ctx)
    headers = getattr(ctx.request, "headers", None)  # none over stdin and stdout
    if headers is not None and decode_header_value(headers.get(MCP_NAME_HEADER)) != params.task_id:
        raise MCPError(types.HEADER_MISMATCH, f"the header {MCP_NAME_HEADER} is not the request's taskId")


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
