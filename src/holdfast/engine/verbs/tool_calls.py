"""The tool calls of a model's reply: from chat-completions form to calls, and from outcomes back to messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from holdfast.core import codec
from holdfast.core.errors import EffectConflict, HoldfastError, InvalidMessage, InvalidValue, StepFailed
from holdfast.core.flows import waits
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.tool import Tool
from holdfast.engine.drivers.parallel import NamedFlow, Work
from holdfast.engine.execution.step_request import step_request
from holdfast.engine.reading.task_state import TaskState, one_artifact
from holdfast.engine.verbs import task_tools
from holdfast.engine.verbs.task_tools import TaskTool


class Speaker(Protocol):
    """Who can add to the conversation."""

    def message(self, message: Mapping[str, Any]) -> None: ...


class Requested:
    """One call a model asked for: what to do, or what is wrong with it."""

    def __init__(self, id: str, tool: str, request: Work | None, wrong: str = "") -> None:
        self.id = id
        self.tool = tool
        self.request = request
        self.wrong = wrong


def of_reply(
    reply: Mapping[str, Any],
    tools: Sequence[Tool] | Mapping[str, Tool],
    want_of: Callable[[Tool, Mapping[str, Any]], Work],
) -> list[Requested]:
    """The calls of a reply. The model gets an error for each wrong call, so that it can do better."""
    known = tools if isinstance(tools, Mapping) else {tool.name: tool for tool in tools}
    calls = reply.get("tool_calls") or ()
    ids = [call.get("id") for call in calls]
    if len(set(ids)) != len(ids) or not all(ids):
        raise InvalidValue(f"the reply's tool calls have the ids {ids}", hint="each needs an id of its own")
    return [_requested(call, known, want_of) for call in calls]


def _requested(
    call: Mapping[str, Any], known: Mapping[str, Tool], want_of: Callable[[Tool, Mapping[str, Any]], Work]
) -> Requested:
    function: Mapping[str, Any] = call.get("function") or {}
    name, given = function.get("name", ""), function.get("arguments") or "{}"
    if name not in known:
        return Requested(call["id"], name, None, f"there is no tool {name!r}; there are {sorted(known)}")
    try:
        arguments: Any = codec.parse(given) if isinstance(given, str) else given
        if not isinstance(arguments, Mapping):
            raise ValueError("they are not an object")
        return Requested(call["id"], name, want_of(known[name], cast("Mapping[str, Any]", arguments)))
    except (ValueError, RecursionError, HoldfastError) as error:
        return Requested(call["id"], name, None, f"the arguments of {name!r} do not fit: {error}")


def answered_by_task(tool: TaskTool, arguments: Mapping[str, Any], task: TaskState, agent: Agent) -> Work:
    """Return what answers a tool that asks the task itself: a person, or an artifact as this branch sees it."""
    given = tool.parameters.with_defaults(tool.parameters.check(arguments))
    if tool is task_tools.ask_person:
        if not given["question"].strip():
            raise InvalidValue("the question is empty", hint="write what the person is asked")
        prompt = codec.pack(given["question"])
        return NamedFlow(tool.name, lambda work, branch: waits.wait(work, branch, tool.name, "person", prompt, None))
    found = one_artifact(task, given["artifact_id"])
    task_tools.page("", given["start"], given["length"])  # refuses a part that no text can have

    def read(artifact_id: str, start: int, length: int) -> dict[str, Any]:
        data = found.data
        return task_tools.page(data if isinstance(data, str) else codec.text(data), start, length)

    request, _ = step_request(agent, read, (), given, name=tool.name)
    return request


def refuse_unsaid(calls: Sequence[Requested], open: Collection[str]) -> None:
    """Refuse calls whose results could not become messages, before any of them is made."""
    for call in calls:
        if call.id not in open:
            raise InvalidMessage(
                f"call {call.id!r} of the reply does not wait for a result in the conversation; no call was made",
                hint="add the reply first: task.message(reply)",
                path="reply.tool_calls",
                reason="orphan-result",
            )


def say_results(speaker: Speaker, calls: Sequence[Requested], outcomes: Sequence[Any]) -> list[dict[str, Any]]:
    """A message for every call, in order. A failed call is an observation; an error that is not an answer is raised."""
    made: Iterator[Any] = iter(outcomes)
    messages: list[dict[str, Any]] = []
    for call in calls:
        outcome: Any = f"error: {call.wrong}" if call.request is None else next(made)
        if isinstance(outcome, StepFailed) and outcome.maybe_done:
            outcome = f"error: {outcome.reason}; it may have happened; this exact call will not be made again"
        elif isinstance(outcome, StepFailed | EffectConflict):
            outcome = f"error: {_told(outcome, call.tool)}"
        elif isinstance(outcome, Exception):
            raise outcome
        content = outcome if isinstance(outcome, str) else codec.text(outcome)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    for message in messages:
        speaker.message(message)
    return messages


def _told(error: StepFailed | EffectConflict, tool: str) -> str:
    """Return the error that a model reads for a failed call: by the tool's name, which it knows, never by our keys."""
    if isinstance(error, EffectConflict):
        return error.message.replace(str(error.details["owner"]), "an earlier call")
    key = repr(error.details["step"])
    return error.message.replace(f"step {key}", repr(tool), 1).replace(f"call {key}", repr(tool), 1)
