"""Errors about tasks, steps, logs and the values they are given."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors.base import HoldfastError


class TaskNotFound(HoldfastError):
    """No task has this id."""

    code = "task-not-found"

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no task {id!r}", hint="app.list() shows the tasks of this store", id=id)


class TaskExists(HoldfastError):
    """A task with this id is there already."""

    code = "task-exists"

    def __init__(self, id: str, *, other_history: bool = False) -> None:
        elsewhere = f"{id!r} has another history there, as when both stores went on with it; it was not touched"
        super().__init__(
            elsewhere if other_history else f"a task {id!r} is there already; nothing was written",
            hint="look at both, and bring the one that is right into a new store; then use only that"
            if other_history
            else "choose another id, or leave it out to get a new one",
            id=id,
        )


class TaskCollected(HoldfastError):
    """The task was removed by retention; its id never acts again."""

    code = "task-collected"

    def __init__(self, id: str) -> None:
        super().__init__(f"task {id!r} had ended and was removed by gc", hint="start new work under a new id", id=id)


class TaskFinished(HoldfastError):
    """The task has ended and takes no further work."""

    code = "task-finished"

    def __init__(self, id: str, status: str, what: str) -> None:
        super().__init__(
            f"task {id!r} is {status}: too late for {what}; nothing was written",
            hint="app.resume(id, agent) lets it go on, unless it was undone"
            if status == "failed"
            else "fork it to go on from any point of it: app.fork(id, at=…)",
            id=id,
            status=status,
        )


class QueueFull(HoldfastError):
    """A queue has as many tasks waiting to be taken as it may; nothing was written."""

    code = "queue-full"

    def __init__(self, queue: str, most: int) -> None:
        super().__init__(
            f"queue {queue!r} is full: it lets {most} {'task' if most == 1 else 'tasks'} wait; nothing was written",
            hint="try again later, start more workers, or raise max_ready= of the queue",
            queue=queue,
            most=most,
        )


class TaskBusy(HoldfastError):
    """Another live holder has the task."""

    code = "task-busy"

    def __init__(self, id: str, holder: str) -> None:
        super().__init__(
            f"task {id!r} is held by {holder!r}, which is alive",
            hint='wait for it: app.run(…, wait="1m"), or cancel the task',
            id=id,
            holder=holder,
        )


class InputConflict(HoldfastError):
    """A task of this id was started with other input."""

    code = "input-conflict"

    def __init__(self, id: str, recorded: Any, given: Any) -> None:
        super().__init__(
            f"task {id!r} was started with {recorded!r}, not with {given!r}; nothing was written",
            hint="use another id for other work, or the first input to go on"
            if given
            else "give the first input again, or go on without it: app.resume(id, agent); other work needs another id",
            id=id,
            recorded=recorded,
            given=given,
        )


class StepFailed(HoldfastError):
    """A step failed for good, now or when it was recorded."""

    code = "step-failed"

    def __init__(self, key: str, attempts: int, type: str, message: str) -> None:
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(
            f"step {key!r} failed after {tries}: {type}: {message}",
            hint="catch StepFailed to go on without it; a failed task can be resumed",
            step=key,
            attempts=attempts,
            type=type,
        )


class ApprovalDenied(StepFailed):
    """A person refused the call, or nobody answered in time."""

    code = "approval-denied"

    def __init__(self, key: str, why: str) -> None:
        HoldfastError.__init__(
            self, f"call {key!r} was not approved: {why}", hint="catch ApprovalDenied to go on without it", step=key
        )


class EffectConflict(HoldfastError):
    """A unique key was used for another call."""

    code = "effect-conflict"

    def __init__(self, key: str, owner: str, why: str) -> None:
        super().__init__(
            f"the unique key {key!r} belongs to {owner}, {why}; the call was not made",
            hint="give other work another key",
            key=key,
            owner=owner,
        )


class UnnamedThread(HoldfastError):
    """A verb was used in a bare thread without a name of its own."""

    code = "unnamed-thread"

    def __init__(self, verb: str, why: str) -> None:
        super().__init__(
            f"{verb} was used in a thread of its own {why}",
            hint="threads have no order a replay could repeat: give each step its own name=, or use task.map",
            verb=verb,
        )


class NotRecorded(HoldfastError):
    """A fork that only replays came to a call nobody made."""

    code = "not-recorded"

    def __init__(self, key: str, parent: str) -> None:
        super().__init__(
            f"call {key!r} is not in the log of {parent!r}, and this fork touches nothing",
            hint="give the tool a mock, or fork with effects='ask'",
            step=key,
            parent=parent,
        )


class NoMock(HoldfastError):
    """A mock task came to a call of a tool without a mock."""

    code = "no-mock"

    def __init__(self, tool: str, key: str) -> None:
        super().__init__(
            f"tool {tool!r} has no mock, and in a mock task nothing else is called: {key!r} was not made",
            hint=f"declare one, @tool(mock=…), or give one: app.run(…, mock={{{tool!r}: …}})",
            tool=tool,
            step=key,
        )


class ResumeExpired(HoldfastError):
    """The task is older than its agent resumes."""

    code = "resume-expired"


class ToolExited(HoldfastError):
    """A tool tried to end the process."""

    code = "tool-exited"


class StepChanged(HoldfastError):
    """A recorded step is called with another input."""

    code = "step-changed"

    def __init__(self, key: str, recorded: Any, given: Any) -> None:
        super().__init__(
            f"step {key!r} was recorded with {recorded!r} and is now called with {given!r}",
            hint="keep the recorded result with @agent(on_change='keep'), or do it again with on_change='rerun'",
            step=key,
            recorded=recorded,
            given=given,
        )


class NestedStep(HoldfastError):
    """A verb was used inside a step."""

    code = "nested-step"

    def __init__(self, verb: str, step: str) -> None:
        super().__init__(
            f"{f'task.{verb}' if verb.isidentifier() else verb} was used inside the step {step!r}",
            hint="use it in the agent's own body, or spawn a child task there",
            verb=verb,
            step=step,
        )


class NotDone(HoldfastError):
    """Raised by a tool: nothing happened, so it may be tried again."""

    code = "not-done"

    def __init__(self, why: str = "nothing was done") -> None:
        super().__init__(why, hint="a tool raises this when it is sure")


class TimeLimit(HoldfastError):
    """A deadline or a step's time limit has passed."""

    code = "time-limit"


class TurnLimit(HoldfastError):
    """A loop did not come to an end."""

    code = "turn-limit"


class SeqOutOfRange(HoldfastError):
    """The log has no such position."""

    code = "seq-out-of-range"

    def __init__(self, id: str, seq: int, head: int, first: int = 1) -> None:
        super().__init__(
            f"task {id!r} has no seq {seq!r}",
            hint=f"its log goes from {first} to {head}",
            id=id,
            seq=seq,
            head=head,
        )


class StepNotFound(HoldfastError):
    """The task has no such step."""

    code = "step-not-found"

    def __init__(self, id: str, step: str) -> None:
        super().__init__(
            f"task {id!r} has no step {step!r}",
            hint="app.steps(id) lists them; in a loop a key carries its turn: '3/draft#1'",
            id=id,
            step=step,
        )


class Conflict(HoldfastError):
    """The log moved on; nothing was written."""

    code = "conflict"

    def __init__(self, log: str, expected: int | None, actual: int | None) -> None:
        where = "no such log" if actual is None else f"its head is {actual}"
        super().__init__(
            f"the log of {log!r} was expected at seq {expected}, but {where}; nothing was written",
            hint="read the log again and decide anew",
            log=log,
            expected=expected,
            actual=actual,
        )


class PatchConflict(HoldfastError):
    """A patch and somebody else's change do not go together; shows both."""

    code = "patch-conflict"

    def __init__(self, id: str, path: str, *, base: Any, mine: str, theirs: str) -> None:
        super().__init__(
            f"{path!r} of task {id!r} was {base!r}; you: {mine}; others meanwhile: {theirs}; nothing was written",
            hint="read the task again and decide anew; increment and append go together with others'",
            id=id,
            path=path,
            base=base,
            mine=mine,
            theirs=theirs,
        )


class KeyTaken(HoldfastError):
    """A unique key belongs to another call; nothing was written."""

    code = "key-taken"

    def __init__(self, key: str, log: str, step: str) -> None:
        super().__init__(
            f"the unique key {key!r} belongs to step {step!r} of task {log!r}; nothing was written",
            hint="use that call's result, or another key",
            key=key,
            log=log,
            step=step,
        )


class InvalidEvent(HoldfastError):
    """This event may not follow what is in the log."""

    code = "invalid-event"


class InvalidTransition(InvalidEvent):
    """The phase or stage cannot be reached from here."""

    code = "invalid-transition"


class InvalidValue(HoldfastError):
    """An argument is not what it must be."""

    code = "invalid-value"


class InvalidInput(InvalidValue):
    """Arguments do not fit the function they are for."""

    code = "invalid-input"


class InvalidId(InvalidValue):
    """An id has characters or a length that is not allowed."""

    code = "invalid-id"


class InvalidMessage(InvalidValue):
    """No provider would take this message; says where."""

    code = "invalid-message"


class WindowTooSmall(InvalidValue):
    """What must be kept does not fit into the limit."""

    code = "window-too-small"


class InvalidUrl(InvalidValue):
    """The store's address is not understood."""

    code = "invalid-url"


class NotSerializable(HoldfastError):
    """A value is not JSON; says where."""

    code = "not-serializable"

    def __init__(self, path: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"{path} {why}",
            hint=hint or "give JSON values: None, bool, int, float, str, lists and dicts of them, or a dataclass",
            path=path,
        )


class UnknownEvent(HoldfastError):
    """An event of a kind this version does not know."""

    code = "unknown-event"

    def __init__(self, log: str, seq: int, kind: str) -> None:
        super().__init__(
            f"event {seq} of {log!r} is of the kind {kind!r}, which this version does not know",
            hint="it was written by a newer version: upgrade holdfast; nothing was changed",
            log=log,
            seq=seq,
            kind=kind,
        )


class LogCorrupt(HoldfastError):
    """What is stored is not what was written; says where."""

    code = "log-corrupt"

    def __init__(self, log: str, seq: int, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"the log of {log!r} is damaged at seq {seq}: {why}" if seq else f"{log!r} is damaged: {why}",
            hint=hint or "other tasks are not affected: copy them to a new store, and import this one from a backup",
            log=log,
            seq=seq,
            why=why,
        )


class ValueDamaged(HoldfastError):
    """A large value is missing or not what was written."""

    code = "value-damaged"

    def __init__(self, hash: str, why: str) -> None:
        super().__init__(f"the value {hash[:12]}… {why}", hint="verify names the events that refer to it", hash=hash)
