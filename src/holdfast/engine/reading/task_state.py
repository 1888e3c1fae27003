"""TaskState: what people read. A view over the state that decodes values and fetches what is cold when asked."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from msgspec import UNSET, Raw

from holdfast.core import codec, events as ev, names
from holdfast.core.codec import LoggedEvent, Stored, moment
from holdfast.core.context import state_template
from holdfast.core.errors import InvalidValue, TaskFailed
from holdfast.core.phases import DEFAULT, Moves
from holdfast.core.state import shapes
from holdfast.core.state.shapes import Spent, State, goal_of
from holdfast.engine.definitions.types import R_co
from holdfast.engine.logs.log import Log, decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading.steps import StepState, Values, iso, messages, state_values, steps as steps_of
from holdfast.engine.reading.waiting import Waiting, waiting
from holdfast.engine.views.budget import BudgetState
from holdfast.engine.views.failures import TaskFailure, context_of, with_context

if TYPE_CHECKING:
    from holdfast.core.context.slices import ContextSlice
    from holdfast.core.messages.tokens import Counter

STATUSES = ("pending", "running", "waiting", "completed", "failed", "cancelled")


class FactState:
    """Something the agent learned, and from where."""

    def __init__(self, fact: shapes.Fact, logs: Logs) -> None:
        self.value = codec.unpack(fact.value, logs.blob)
        self.source = fact.source
        self.at = moment(fact.at_us)

    def __repr__(self) -> str:
        return f"<fact {self.value!r} from {self.source!r}>"


class ArtifactState:
    """Something the agent made; its data is fetched when asked for."""

    def __init__(self, id: str, artifact: shapes.Artifact, logs: Logs) -> None:
        self._artifact = artifact
        self._logs = logs
        self.id, self.type, self.summary = id, artifact.type, artifact.summary
        self.bytes, self.step = artifact.bytes, artifact.step

    @property
    def data(self) -> Any:
        """The thing itself."""
        return codec.unpack(self._artifact.data, self._logs.blob)

    def __repr__(self) -> str:
        return f"<artifact {self.id} {self.type} {self.bytes} bytes>"


def one_artifact(task: TaskState, id: str) -> ArtifactState:
    """Return one of the things a task made; refuses an id that it has not."""
    found = task.artifacts.get(names.encodable(id, "id of an artifact"))
    if found is None:
        known = ", ".join([*task.artifacts][-10:]) or "none"
        raise InvalidValue(f"task {task.id!r} has no artifact {id!r}", hint=f"it has: {known}")
    return found


class TaskState(Generic[R_co]):
    """A task at one moment. Reading it never changes anything. `TaskState[R]` is one whose agent returns `R`."""

    def __init__(self, log: Log, logs: Logs, typed_result: Callable[[Any], Any] | None = None) -> None:
        self._typed_result = typed_result
        self._state: State = log.state
        self._logs = logs
        self.id = log.name
        self.digest = log.head.digest.hex()

    def __repr__(self) -> str:
        return f"<{'mock ' if self.mock else ''}task {self.id} {self.status} at seq {self.seq}>"

    @property
    def agent(self) -> str:
        return self._state.summary.agent

    @property
    def status(self) -> str:
        """pending, running, waiting, completed, failed or cancelled."""
        return self._state.summary.status

    @property
    def interrupted(self) -> bool:
        """Running, as far as the log knows, but its worker is dead, or silent for longer than its lease."""
        holder, lease = self._state.summary.holder, self._state.summary.lease_seconds
        return self.status == "running" and holder is not None and not self._logs.store.alive(holder, lease)

    @property
    def cancelling(self) -> bool:
        """Whether it was asked to stop, and has not ended yet."""
        return self._state.cancel is not None and not self._state.ended

    @property
    def expired(self) -> bool:
        """Whether it was cancelled because nothing happened to it for longer than its `expire`."""
        return self._state.expired

    @property
    def expires_at(self) -> datetime | None:
        """When `gc` cancels it, unless something happens before; None if it does not wait, or never expires."""
        return self._state.summary.expires_at

    @property
    def stage(self) -> str | None:
        return self._state.summary.stage

    @property
    def phase(self) -> str:
        return self._state.phase

    @property
    def phases(self) -> Moves:
        """The machine its phase moves by."""
        return self._state.phases or DEFAULT

    @property
    def turn(self) -> int:
        return self._state.turn

    @property
    def seq(self) -> int:
        return self._state.seq

    @property
    def input(self) -> Mapping[str, Any]:
        """The input of the task."""
        return self._values(self._state.input)

    @property
    def result(self) -> R_co:
        """The result, of the type that the agent declares if the agent was given; None until the task is completed.

        Without the agent, as in `app.get(id)`, it is plain JSON; `agent.read_result(task)` gives the type.
        """
        stored = self.stored_result
        return stored if self._typed_result is None or self._state.result is UNSET else self._typed_result(stored)

    @property
    def stored_result(self) -> Any:
        """The result as plain JSON."""
        return None if self._state.result is UNSET else codec.unpack(self._state.result, self._logs.blob)

    def unwrap(self) -> R_co:
        """Return the result, or raise TaskFailed: the task failed, was cancelled, or has not ended."""
        if self.status == "completed":
            return self.result
        waiting, failure = self._state.summary.waiting, self.failure
        told = "" if failure is None else f"{failure.type}: {failure.message}"
        raise TaskFailed(self.id, self.status, told if self.status == "failed" else waiting or "")

    @property
    def failure(self) -> TaskFailure | None:
        """How it failed, as data; `.context` has the time, the step, its tool, input and output, and the exception."""
        state, logs = self._state, self._logs
        return None if state.failure is None else with_context(state.failure, lambda: context_of(logs, self.id, state))

    @property
    def failed_at(self) -> int | None:
        """The seq of the state a task failed in: `app.at(id, task.failed_at)` is what it knew then."""
        return self._state.failed_at if self._state.failure is not None and self.status == "failed" else None

    @property
    def waiting(self) -> Waiting | None:
        """Why the task waits. A pending task may wait for a worker that serves it, which is found out now."""
        return waiting(self._state, self._logs)

    @property
    def mock(self) -> bool:
        """True if its calls of tools are answered by mocks."""
        return self._state.mock

    @property
    def user(self) -> str | None:
        return self._state.summary.user

    @property
    def thread(self) -> str | None:
        return self._state.summary.thread

    @property
    def parent(self) -> str | None:
        return self._state.summary.parent

    @property
    def forked_at(self) -> int | None:
        return self._state.forked_at if self._state.forked_from else None

    @property
    def holder(self) -> str | None:
        return self._state.summary.holder

    @property
    def deadline(self) -> datetime | None:
        deadline_us = self._state.summary.deadline_us
        return None if deadline_us is None else moment(deadline_us)

    @property
    def goal(self) -> str:
        """What it is to reach, as a verb, its start, its contract or its input says."""
        return goal_of(self._state, lambda raw: codec.unpack(raw, self._logs.blob))

    @property
    def constraints(self) -> dict[str, Any]:
        """The constraints of the work, from the contract it began with."""
        constraints = self._state.constraints
        return {} if constraints is UNSET else codec.unpack(constraints, self._logs.blob)

    @property
    def plan(self) -> list[shapes.PlanStep]:
        """The steps planned, each with whether it is done."""
        return list(self._state.plan)

    @property
    def pending(self) -> list[str]:
        """The steps of the plan that are not done yet."""
        return [step.text for step in self._state.plan if not step.done]

    @property
    def steps_completed(self) -> int:
        """How many steps of the plan are done."""
        return len(self._state.plan) - self.steps_remaining

    @property
    def steps_remaining(self) -> int:
        """How many steps of the plan are not done yet."""
        return len(self.pending)

    @property
    def current_step(self) -> str | None:
        """The first step of the plan that is not done yet; None if there is none."""
        return next(iter(self.pending), None)

    def context(
        self,
        step: str,
        *,
        max_bytes: int | None = None,
        max_tokens: int | None = None,
        counter: Counter | None = None,
    ) -> ContextSlice:
        """Return the context of a step in this state, within a limit: what `task.context` gives an agent in it.

        `app.at(id, seq).context(…)` is what a model was shown then. Without a limit, it is the budget's.
        """
        from holdfast.core.context.task_slice import context_of
        from holdfast.engine.system.token_counter import installed

        state, blob, limit = self._state, self._logs.blob, {"max_bytes": max_bytes, "max_tokens": max_tokens}
        found = context_of(state, step, lambda raw: codec.unpack(raw, blob), **limit, counter=counter or installed())
        return found.slice

    @property
    def facts(self) -> Mapping[str, FactState]:
        return Values(self._state.facts, lambda fact: FactState(fact, self._logs))

    @property
    def questions(self) -> list[str]:
        """The open questions."""
        return list(self._state.questions)

    @property
    def artifacts(self) -> Mapping[str, ArtifactState]:
        logs, raw = self._logs, self._state.artifacts
        return {id: ArtifactState(id, artifact, logs) for id, artifact in raw.items()}

    @property
    def notes(self) -> Mapping[str, Any]:
        return self._values(self._state.notes)

    @property
    def flags(self) -> list[str]:
        return list(self._state.flags)

    @property
    def state(self) -> Mapping[str, Any]:
        """The state bag, as it is in the log. It is read-only: `app.patch` changes it."""
        return state_values(self.id, self._state.bag, lambda one: codec.unpack(one, self._logs.blob))

    @property
    def state_version(self) -> int:
        """The version of a typed state's last write; 0 if it has none."""
        return self._state.state_version

    def read(self, states: Any) -> Any:
        """The state as what an agent declares: `agent.read_state(task)`."""
        return states.read(self._state, self._logs.blob)

    def render(self, template: str) -> str:
        """Fill in a template such as `Hello {state.name}`; a name that is not there is UnknownName."""
        blob = self._logs.blob
        return state_template.render(template, self._state, lambda raw: codec.unpack(raw, blob), lambda: self.state)

    @property
    def steps(self) -> Mapping[str, StepState]:
        """The steps of this turn; `app.steps(id, turn=…)` has the others."""
        return Values(self._state.steps, self._step)

    @property
    def calls(self) -> Mapping[str, StepState]:
        """Those steps that called a tool."""
        return Values(_Calls(self._state.steps), self._step)

    def _step(self, step: shapes.Step) -> StepState:
        return StepState(step, self._logs, self.turn, self.id, self.seq)

    def all_steps(self) -> list[StepState]:
        """The steps of every turn up to here, in the order in which they were recorded."""
        return sorted(steps_of(self._logs, self.id, upto=self.seq), key=lambda step: step.before)

    def events(self) -> Iterator[LoggedEvent]:
        """The events that led here, a fork's inherited ones included; those that were rolled back do not count."""
        for log, row in self._logs.live_rows(self.id, upto=self.seq):
            yield LoggedEvent(log, row.seq, row.kind, row.at_us, decoded(log, row), row.digest)

    @property
    def budget(self) -> BudgetState:
        """The limits and the usage. Time held counts up to now."""
        held = self._state.held_since_us and not self._state.ended
        return BudgetState(self._state, self._logs.clock.now_us() if held else self._state.updated_us)

    @property
    def checkpoints(self) -> Mapping[str, int]:
        """Labelled checkpoints and their seqs."""
        return dict(self._state.checkpoints)

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The decisions, with their reasons and the options not taken; when, where, and after which step."""
        return self._decisions(upto=self.seq)

    def _decisions(self, upto: int) -> list[dict[str, Any]]:
        rows = self._logs.rows_of_kind(self.id, "decision_made", upto=upto)
        found = ((row, decoded(self.id, row)) for row in rows)
        return [decision_made(self._logs, one, row) for row, one in found if isinstance(one, ev.DecisionMade)]

    @property
    def messages(self) -> list[Any]:
        """The conversation up to here: messages as they were given. Each also has `.at`, its time, and `.seq`."""
        return messages(self._logs, self.id, self.seq)

    @property
    def summarised(self) -> dict[str, Any] | None:
        """The summary that replaces earlier messages where they don't fit: its text, its ranges, its cost."""
        made = self._state.summarised
        if made is None:
            return None
        kept = {name: getattr(made, name) for name in ("model", "tokens_in", "tokens_out", "basis", "seq")}
        told: Any = codec.unpack(made.text, self._logs.blob)
        text = told.get("text") if isinstance(told, dict) else told  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return {"text": text, "covers": [list(span) for span in made.covers], **kept}

    @property
    def created_at(self) -> datetime:
        return self._state.summary.created_at

    @property
    def updated_at(self) -> datetime:
        return moment(self._state.updated_us)

    @classmethod
    def from_contract(cls, contract: str | bytes | Mapping[str, Any]) -> TaskState:
        """A state that stands alone, of the JSON that `contract` gives."""
        from holdfast.engine.reading.contracts import alone

        return alone(contract)

    def contract(self) -> dict[str, Any]:
        """Return the goal, constraints, facts and plan as JSON: a new task can begin with it."""
        from holdfast.engine.reading.contracts import of_state

        return of_state(self, self._state, self._logs)

    def to_dict(
        self,
        *,
        sections: Collection[str] | None = None,
        steps_after: str | None = None,
        steps_limit: int | None = None,
    ) -> dict[str, Any]:
        """Return everything as JSON, or the `sections` you name; others are not even read.

        `calls` are the steps that called a tool, and which. `budget`, `constraints`, `mock`, `phases` and `summarised`
        are there only if the task has them. `interrupted`, which is not in the log, is there if you name it.
        `steps_after` and `steps_limit` page through the steps of this turn: those after a key, and how many.
        """
        page = StepPage(steps_after, steps_limit)
        return document(Subject(self, self._state, self._logs), checked_sections(sections), page)

    def to_json(self) -> str:
        """Everything, as a line of JSON."""
        return codec.dump(self.to_dict()).decode()

    def _values(self, raw: Mapping[str, Raw]) -> Mapping[str, Any]:
        return Values(raw, lambda one: codec.unpack(one, self._logs.blob))


def decision_made(logs: Logs, event: ev.DecisionMade, row: Stored | None = None) -> dict[str, Any]:
    """A decision as JSON: what was decided, why, the options not taken; when and where, if it is known by its row."""
    options: Any = [] if event.options is UNSET else codec.unpack(event.options, logs.blob)
    choice = codec.unpack(event.choice, logs.blob)
    made = {"question": event.question, "choice": choice, "why": event.why, "options": options, "step": event.step}
    place = {"at": None, "seq": None} if row is None else {"at": iso(row.at_us), "seq": row.seq}
    return {**made, **place}


# The document, in sections


class Subject(NamedTuple):
    """A task at one moment: as people read it, and the state that this is a view of."""

    view: TaskState
    state: State
    logs: Logs

    def value(self, raw: Raw) -> Any:
        """Decode a value of the state."""
        return codec.unpack(raw, self.logs.blob)


class StepPage(NamedTuple):
    """Which steps are wanted: those after a key, and how many."""

    after: str | None = None
    limit: int | None = None

    def keys(self, steps: Mapping[str, Any]) -> list[str]:
        """Their keys."""
        after, limit = self
        if limit is not None and limit < 1:
            raise InvalidValue(f"steps_limit={limit} is not a number of steps", hint="give 1 or more, or None for all")
        if after is not None and after not in steps:
            raise InvalidValue(
                f"steps_after={after!r} is not a step of this turn", hint="give the last key you have seen"
            )
        keys = iter(steps)
        if after is not None:
            keys = itertools.islice(itertools.dropwhile(lambda key: key != after, keys), 1, None)
        return [*itertools.islice(keys, limit)]


class Element(NamedTuple):
    """A section with named elements: where the state holds them, and how one is shown."""

    held: Callable[[State], Mapping[str, Any]]
    shown: Callable[[Subject, Any], Any]


def _fact(task: Subject, one: Any) -> dict[str, Any]:
    return {"value": task.value(one.value), "source": one.source}


def _artifact(task: Subject, one: Any) -> dict[str, Any]:
    return {"type": one.type, "summary": one.summary, "bytes": one.bytes, "step": one.step}


def _shown_step(task: Subject, one: Any) -> dict[str, Any]:
    return StepState(one, task.logs, task.state.turn, task.view.id, task.state.seq).to_dict()


def _value(task: Subject, one: Any) -> Any:
    return task.value(one)


def _same(task: Subject, one: Any) -> Any:
    return one


class _Calls(Mapping[str, shapes.Step]):
    """Those steps that called a tool. One is found among any number of steps at the same cost."""

    def __init__(self, steps: Mapping[str, shapes.Step]) -> None:
        self._steps = steps

    def __getitem__(self, key: str) -> shapes.Step:
        if not self._steps[key].tool:
            raise KeyError(key)
        return self._steps[key]

    def __iter__(self) -> Iterator[str]:
        return (key for key, step in self._steps.items() if step.tool)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _called(state: State) -> Mapping[str, shapes.Step]:
    return _Calls(state.steps)


def _tool_of(task: Subject, one: Any) -> str:
    return one.tool


ELEMENTS: dict[str, Element] = {
    "facts": Element(operator.attrgetter("facts"), _fact),
    "artifacts": Element(operator.attrgetter("artifacts"), _artifact),
    "notes": Element(operator.attrgetter("notes"), _value),
    "state": Element(operator.attrgetter("bag"), _value),
    "steps": Element(operator.attrgetter("steps"), _shown_step),
    "calls": Element(_called, _tool_of),
    "checkpoints": Element(operator.attrgetter("checkpoints"), _same),
}


def _plan(task: Subject) -> list[dict[str, Any]]:
    return [{"step": step.text, "done": step.done} for step in task.state.plan]


def _budget(task: Subject) -> Any:
    """Shown where there is one, or where anything was spent."""
    state = task.state
    if state.budget is None and state.spent == Spent():
        return UNSET
    return codec.as_json(BudgetState(state, state.updated_us).to_dict())


_OF_VIEW = (
    *("id", "agent", "status", "stage", "phase", "turn", "seq", "result", "user", "thread", "parent"),
    *("goal", "questions", "flags", "decisions", "messages"),
)

_MORE_OF_VIEW = ("failed_at", "holder", "state_version", "digest")

INTERRUPTED = "interrupted"
"""A section that is not in the log: whether the worker is alive is found out when it is asked for by name."""


def _deadline(task: Subject) -> str | None:
    deadline_us = task.state.summary.deadline_us
    return None if deadline_us is None else iso(deadline_us)


_WHOLE: dict[str, Callable[[Subject], Any]] = {
    **{name: operator.attrgetter(f"view.{name}") for name in (*_OF_VIEW, *_MORE_OF_VIEW, INTERRUPTED)},
    "result": lambda task: task.view.stored_result,
    "input": lambda task: dict(task.view.input),
    "failure": lambda task: codec.as_json(task.state.failure),
    "waiting": lambda task: task.state.summary.waiting,
    "plan": _plan,
    "created_at": lambda task: iso(task.state.summary.created_us),
    "updated_at": lambda task: iso(task.state.updated_us),
    "budget": _budget,
    "constraints": lambda task: task.view.constraints or UNSET,
    "mock": lambda task: True if task.state.mock else UNSET,
    "deadline": _deadline,
    "phases": lambda task: UNSET if task.state.phases is None else codec.as_json(task.state.phases),
    "summarised": lambda task: task.view.summarised or UNSET,
}
"""Sections without named elements. One that gives UNSET is left out."""

SECTIONS = (
    *(*_OF_VIEW, "input", "failure", "waiting", "plan", "facts", "artifacts", "notes", "state", "steps"),
    *("checkpoints", "created_at", "updated_at", "budget", "constraints", "mock", "deadline", "calls", "phases"),
    *("summarised", *_MORE_OF_VIEW),
)
"""Every section, in the order of the document."""


def checked_sections(sections: Collection[str] | None) -> list[str]:
    """Return sections in the order of the document; all of them for None. An unknown one is refused."""
    if sections is None:
        return [*SECTIONS]
    known = (*SECTIONS, INTERRUPTED)
    unknown = [sections] if isinstance(sections, str) else [one for one in sections if one not in known]
    if unknown:
        raise InvalidValue(
            f"{unknown[0]!r} is not a section of a task, or not a list of them",
            hint=f"use some of {', '.join(known)}",
        )
    return [name for name in known if name in sections]


def document(task: Subject, sections: Collection[str], page: StepPage = StepPage()) -> dict[str, Any]:  # noqa: B008
    """The sections of a task that are asked for, as JSON. Others are not read."""
    found: dict[str, Any] = {}
    for name in sections:
        if name not in ELEMENTS:
            value = _WHOLE[name](task)
            if value is not UNSET:
                found[name] = value
            continue
        held = ELEMENTS[name].held(task.state)
        keys = page.keys(held) if name == "steps" else held
        found[name] = {key: ELEMENTS[name].shown(task, held[key]) for key in keys}
    return found
