"""Prompts: what a person picks to begin with, about one task."""

from __future__ import annotations

from collections.abc import Mapping

import mcp_types as types

from holdfast.core.errors import InvalidValue
from holdfast.mcp.reading import documents, uris
from holdfast.mcp.reading.scope import Scope

_TASK = types.PromptArgument(name="task", description="The task's id.", required=True)

PROMPTS = [
    types.Prompt(name="debug_task", description="Find out why a task failed or does not continue.", arguments=[_TASK]),
    types.Prompt(name="continue_task", description="Take over the work of a task.", arguments=[_TASK]),
]

_TEXTS = {
    "debug_task": (
        "Find out why task {task!r} does not continue. Call explain_failure, then get_log if you need more. "
        "Say what happened, why, and what to do next. Change nothing."
    ),
    "continue_task": (
        "Take over the work of task {task!r}. Read its state below: goal, plan, facts, open questions. "
        "Call continue_task to begin a task of your own that is linked to it, then work on what is left of the plan. "
        "Record progress with patch_task, with `expect` set to the seq you read."
    ),
}


def prompt(scope: Scope, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
    """A prompt, and the task's state as a resource, so that it is not taken for instructions."""
    if name not in _TEXTS:
        raise InvalidValue(f"there is no prompt {name!r}", hint=f"there are {', '.join(_TEXTS)}")
    if not arguments.get("task"):
        raise InvalidValue(f"prompt {name!r} needs 'task'", hint="give the task's id")
    task = scope.task(arguments["task"])
    uri = uris.task_uri(task.agent, task.id)
    text = documents.capped(documents.task_document(task), uri)
    contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=text, _meta=dict(documents.META))
    said = types.TextContent(type="text", text=_TEXTS[name].format(task=task.id))
    shown = types.EmbeddedResource(type="resource", resource=contents)
    return types.GetPromptResult(
        description=f"{name} {task.id}",
        messages=[types.PromptMessage(role="user", content=said), types.PromptMessage(role="user", content=shown)],
    )
