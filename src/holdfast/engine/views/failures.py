"""How a task failed, in one record: when, in which step, with what input and output, of which exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, field
from msgspec.structs import asdict

from holdfast.core import codec, events as ev
from holdfast.core.codec import moment
from holdfast.core.events import Failure
from holdfast.core.state.shapes import State, Step
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.views.attempts import StepAttempt, attempts_of


class FailureContext(codec.JsonStruct, frozen=True, kw_only=True):
    """A failure and what was around it.

    `step`, `tool`, `input` and `output` are of the step that failed; of a failure in the agent's own code they are
    empty. `output` is what the step had streamed until then, or a late answer. `exception` is what was raised in the
    first place, with its causes. `seq` is where the state was then: `app.at(task, seq)`.
    """

    task: str
    at: datetime
    seq: int
    exception: Failure
    step: str = ""
    tool: str = ""
    input: dict[str, Any] = field(default_factory=dict[str, Any])
    output: Any = None
    attempts: tuple[StepAttempt, ...] = ()

    @property
    def chain(self) -> list[Failure]:
        """The exception and its causes, the first cause last."""
        return [*causes_of(self.exception)]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return codec.as_json(asdict(self))


class TaskFailure(Failure, frozen=True, dict=True, gc=True):
    """How a task failed: the failure as it is recorded, and its context, which is read when it is asked for."""

    @property
    def context(self) -> FailureContext:
        """When and where it failed, of what, and what was known then, in one record."""
        read: Callable[[], FailureContext] = vars(self)["read"]
        return read()


def with_context(failure: Failure, read: Callable[[], FailureContext]) -> TaskFailure:
    """A failure that can be asked for its context."""
    told = TaskFailure(**{name: getattr(failure, name) for name in failure.__struct_fields__})
    vars(told)["read"] = read
    return told


def causes_of(failure: Failure) -> Iterator[Failure]:
    """A failure and what it came of."""
    one: Failure | None = failure
    while one is not None:
        yield one
        one = one.cause


def context_of(logs: Logs, id: str, state: State) -> FailureContext:
    """Read the context of the failure that a state has."""
    failure = state.failure
    assert failure is not None
    named = state.failed_step or next((one.step for one in causes_of(failure) if one.step), "")
    step = state.steps.get(named)
    known: dict[str, Any] = {"task": id, "at": moment(_failed_us(logs, id, state)), "seq": state.failed_at or state.seq}
    if step is None:
        return FailureContext(**known, exception=failure, step=named)
    return FailureContext(
        **known,
        exception=step.failure or failure,
        step=named,
        tool=step.tool,
        input={name: codec.unpack(raw, logs.blob) for name, raw in step.input.items()},
        output=_output(logs, id, state, step),
        attempts=tuple(attempts_of(logs, id, state.turn, named, state.seq)),
    )


def _failed_us(logs: Logs, id: str, state: State) -> int:
    """When the task failed. It may have got events since; while it still undoes what it did, it is now."""
    ended = (row.at_us for _, row in logs.rows(id, after=state.failed_at, upto=state.seq) if row.kind == "task_failed")
    return max(ended, default=state.updated_us) if state.failed_at else state.updated_us


def _output(logs: Logs, id: str, state: State, step: Step) -> Any:
    """What a failed step had given: what it streamed, else the answer that came when it was too late."""
    given: Any = None
    for log, row in logs.rows(id, after=step.first_seq - 1, upto=state.seq):
        event = decoded(log, row) if row.kind in ("step_failed", "step_observed") else None
        if isinstance(event, ev.StepFailed) and event.key == step.key and event.output is not UNSET:
            return codec.unpack(event.output, logs.blob)
        if isinstance(event, ev.StepObserved) and event.key == step.key and isinstance(event.result, Raw):
            given = codec.unpack(event.result, logs.blob)
    return given
