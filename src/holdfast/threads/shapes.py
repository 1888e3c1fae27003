"""What the verbs of `Threads` give: threads, messages, runs and steps with the names that hosted assistants use."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, cast

from msgspec import Struct

from holdfast import TaskState, Thread, ThreadMessage
from holdfast.engine.reading.steps import StepState

T = TypeVar("T")

_Open = Literal["queued", "in_progress", "requires_action", "cancelling"]
RunStatus = _Open | Literal["cancelled", "failed", "completed", "incomplete", "expired"]
"""How a run stands, in the words of hosted assistants."""

_WAITS: dict[str, RunStatus] = {"timer": "in_progress", "child": "in_progress", "no_worker": "queued"}
"""What a waiting task does, by what it waits for. Anything else needs something from outside."""

_ENDS: dict[str, RunStatus] = {
    "time-limit": "expired",
    "resume-expired": "expired",
    "budget-exceeded": "incomplete",
    "turn-limit": "incomplete",
}
"""How a failed task ended, by the code of its failure, where that has a name of its own."""


class Page(Struct, Generic[T], frozen=True):
    """Some of a list: `after=page.last_id` gives what comes next."""

    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class StoredThread(Struct, frozen=True):
    """A conversation."""

    id: str
    created_at: datetime | None
    metadata: dict[str, Any]
    expires_at: datetime | None = None


class StoredMessage(Struct, frozen=True):
    """One message of a thread. `message` is all of it, as it was given; `content` what it says."""

    id: str
    thread_id: str
    created_at: datetime
    role: str
    content: Any
    message: Any
    run_id: str | None = None


class RunStep(Struct, frozen=True):
    """One step of a run: a model's answer, a call of a tool, or any other step of its agent."""

    id: str
    run_id: str
    type: Literal["step", "tool_call"]
    name: str
    status: Literal["in_progress", "completed", "failed", "cancelled"]
    input: Any
    output: Any
    last_error: str | None
    created_at: datetime | None
    completed_at: datetime | None


class Run(Struct, frozen=True):
    """A task that works on a thread. `task` is all of it: `app.get(run.id)`."""

    id: str
    thread_id: str
    assistant_id: str
    status: RunStatus
    created_at: datetime
    completed_at: datetime | None
    required_action: list[dict[str, Any]] | None
    """What it waits for: questions, approvals, signals, each with its `key`. `app.answer` and the like give it."""
    last_error: str | None
    result: Any
    task: TaskState


def thread_shape(thread: Thread) -> StoredThread:
    """Return a thread under the names of assistants."""
    return StoredThread(thread.id, thread.created_at, thread.metadata, thread.expires_at)


def message_shape(thread: str, one: ThreadMessage) -> StoredMessage:
    """Return a message under the names of assistants."""
    given: Any = one.message
    said = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    role = str(said.get("role") or said.get("type") or "")
    content = said.get("content", said.get("parts"))
    return StoredMessage(one.id, thread, one.at, role, content, given, one.task or None)


def run_shape(task: TaskState) -> Run:
    """Return a task under the names of assistants."""
    status = status_of(task)
    ended = task.status in ("completed", "failed", "cancelled")
    return Run(
        id=task.id,
        thread_id=task.thread or "",
        assistant_id=task.agent,
        status=status,
        created_at=task.created_at,
        completed_at=task.updated_at if ended else None,
        required_action=task.waiting.on if status == "requires_action" and task.waiting is not None else None,
        last_error=None if task.failure is None else f"{task.failure.type}: {task.failure.message}",
        result=task.result if task.status == "completed" else None,
        task=task,
    )


def status_of(task: TaskState) -> RunStatus:
    """Return the status of a task in the words of hosted assistants.

    A deadline that has passed, and waiting for longer than `expire`, is "expired"; a budget or a number of turns that
    is used up is "incomplete". A task that waits for time or for a child is "in_progress", one that waits for a person,
    a signal, a decision about a call or a budget is "requires_action".
    """
    if task.status == "pending":
        return "queued"
    if task.status == "running":
        return "cancelling" if task.cancelling else "in_progress"
    if task.status == "waiting":
        return _WAITS.get("" if task.waiting is None else task.waiting.kind, "requires_action")
    if task.status == "failed":
        return _ENDS.get("" if task.failure is None else task.failure.code, "failed")
    if task.status == "cancelled":
        return "expired" if task.expired else "cancelled"
    return "completed"


def step_shape(run: str, step: StepState) -> RunStep:
    """Return a step under the names of assistants."""
    ended = step.status in ("completed", "failed")
    return RunStep(
        id=step.key,
        run_id=run,
        type="tool_call" if step.tool else "step",
        name=step.tool or step.name,
        status=step.status if step.status in ("completed", "failed") else "in_progress",
        input=step.input,
        output=step.result if step.status == "completed" else None,
        last_error=None if step.failure is None else f"{step.failure.type}: {step.failure.message}",
        created_at=step.started_at,
        completed_at=step.ended_at if ended else None,
    )
