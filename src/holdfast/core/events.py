"""Every fact that can be written.

Events are frozen, in the past tense and additive for ever: a new meaning is a new event, a new field has a default.
An event's kind (its class name in snake case) stands in a column of its own; the rest is the body. A field of type
`Value` holds a user's value as encoded JSON, or an envelope that stands for one (see `codec`).
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field

from holdfast.core.patch import Changes
from holdfast.core.wording import shown

Value = Raw
Fields = dict[str, Raw]
Effect = Literal["read", "idempotent", "once", "transaction"]
WaitKind = Literal["person", "timer", "signal", "child", "doubt", "budget", "quarantined", "diverged", "no_worker"]


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """An exception as data: what, where, and because of what."""

    type: str
    message: str
    traceback: tuple[str, ...] = ()
    code: str = ""
    notes: tuple[str, ...] = ()
    cause: Failure | None = None
    group: tuple[Failure, ...] = ()


class Event(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One immutable fact.

    `said` is the branch of the agent that said it, `.` for its own line; what comes from outside has none. With its
    kind, its subject and how often that came before, it tells on replay that it was said already. The nonce keeps
    the hash of an erased body from telling what it was.
    """

    said: str = field(name="@", default="")
    nonce: str = field(name="~", default="")

    def __repr__(self) -> str:
        return shown(self, kind_of(type(self)))


# The life of a task


class TaskCreated(Event, frozen=True):
    """The first event of a task.

    One that lives in a `with` block has no agent that others could call. In a `mock` one every call of a tool is
    answered by its mock, whoever works on it.
    """

    agent: str
    input: Fields = {}
    seed: str = ""
    user: str | None = None
    thread: str | None = None
    parent: str | None = None
    parent_step: str = ""
    deadline_us: int | None = None
    queue: str = "default"
    priority: int = 0
    version: str = ""
    stages: tuple[str, ...] = ()
    goal: str = ""
    salt: str = ""
    block: bool = False
    mock: bool = False


class TaskForked(Event, frozen=True):
    """The first own event of a fork: its past is the parent's log up to and including `at`."""

    parent: str
    at: int
    seed: str = ""
    effects: Literal["ask", "live", "recorded"] = "ask"
    deadline_us: int | None = None
    by: str = ""


class TaskClaimed(Event, frozen=True):
    """Taking a task. Whoever's claim is last owns it."""

    holder: str
    lease_seconds: float = 30.0


class TaskReleased(Event, frozen=True):
    why: str = ""


class TaskSuspended(Event, frozen=True):
    """The task holds no memory until `wake_us`, or until an outside event wakes it."""

    why: WaitKind
    wake_us: int | None = None


class TaskCompleted(Event, frozen=True):
    result: Value


class TaskFailed(Event, frozen=True):
    """How a task failed, the seq of the state it failed in (what was known then), and the failed step that ended it."""

    failure: Failure
    state_seq: int = 0
    step: str = ""


class CancelRequested(Event, frozen=True):
    why: str = ""
    by: str = ""


class TaskCancelled(Event, frozen=True):
    why: str = ""
    by: str = ""


class TaskReopened(Event, frozen=True):
    """A failed task goes on; the uncaught failed step that ended it is void."""

    void: str = ""
    by: str = ""
    why: str = ""


class UndoStarted(Event, frozen=True):
    """The task cannot be completed, and what it did is being undone. `failure` is how it will end; none: cancelled."""

    failure: Failure | None = None


class TurnStarted(Event, frozen=True):
    turn: int


class StageSet(Event, frozen=True):
    stage: str


class PhaseSet(Event, frozen=True):
    phase: str
    on: str = ""


class CheckpointMade(Event, frozen=True):
    label: str
    key: str = ""


class RolledBack(Event, frozen=True):
    """Back to what was known at `to`. `hot` is the restored state; the history stays."""

    to: int
    hot: Raw
    by: str = ""
    why: str = ""


# Steps and calls


class StepStarted(Event, frozen=True):
    """A step announced before it acts. With an effect of `once`, it is in doubt until its outcome is recorded."""

    key: str
    name: str
    input: Fields = {}
    tool: str = ""
    effect: Effect = "idempotent"
    idempotency_key: str = ""
    unique: str = ""
    risk: str = ""
    attempt: int = 1
    undo: str = ""


class AttemptFailed(Event, frozen=True):
    """A try failed and another one is due."""

    key: str
    name: str
    attempt: int
    failure: Failure
    retry_us: int
    input: Fields = {}
    tool: str = ""
    effect: Effect = "idempotent"
    idempotency_key: str = ""


class StepCompleted(Event, frozen=True):
    """A step has its result.

    `undo` names what would undo it. `source` is the call whose outcome this is, if it was not made here. One recorded
    `behind` was written while the agent went on, so it does not move what the agent sees.
    """

    key: str
    name: str
    result: Value
    input: Fields = {}
    attempts: int = 1
    started_us: int = 0
    tool: str = ""
    effect: Effect = "idempotent"
    idempotency_key: str = ""
    undo: str = ""
    source: str = ""
    behind: bool = False


class StepFailed(Event, frozen=True):
    """A step failed for good. One that is `safe` is known not to have happened."""

    key: str
    name: str
    failure: Failure
    input: Fields = {}
    attempts: int = 1
    started_us: int = 0
    tool: str = ""
    effect: Effect = "idempotent"
    idempotency_key: str = ""
    source: str = ""
    safe: bool = False


class StepDoubted(Event, frozen=True):
    """An announced call whose outcome nobody knows."""

    key: str
    why: str = ""


class StepSettled(Event, frozen=True):
    """The destination or a person said whether a call in doubt happened."""

    key: str
    happened: bool
    result: Value | UnsetType = UNSET
    by: str = ""
    why: str = ""


class StepVoided(Event, frozen=True):
    """A recorded step that counts no more: it is called with another input now, and done again."""

    key: str
    why: str = ""


class StepObserved(Event, frozen=True):
    """A late answer, kept as an observation and never used as a result."""

    key: str
    result: Value | UnsetType = UNSET
    failure: Failure | None = None
    holder: str = ""


class CompensationAdded(Event, frozen=True):
    """Something the agent wants undone, should the task not come to a good end."""

    name: str
    input: Fields = {}


# Waits


class WaitStarted(Event, frozen=True):
    key: str
    wait: WaitKind
    name: str = ""
    prompt: Value | UnsetType = UNSET
    wake_us: int | None = None


class WaitEnded(Event, frozen=True):
    """What was waited for has come. `signal` is the seq of the signal it was."""

    key: str
    value: Value | UnsetType = UNSET
    expired: bool = False
    by: str = ""
    why: str = ""
    signal: int = 0
    failure: Failure | None = None


class ApprovalAsked(Event, frozen=True):
    """A call, or the agent itself, needs a person's consent. It is bound to exactly this call (`bound`)."""

    key: str
    name: str = ""
    bound: str = ""
    tool: str = ""
    risk: str = ""
    input: Fields = {}
    prompt: Value | UnsetType = UNSET
    wake_us: int | None = None


class ApprovalGiven(Event, frozen=True):
    key: str
    bound: str = ""
    by: str = ""
    why: str = ""
    until_us: int | None = None


class ApprovalRefused(Event, frozen=True):
    key: str
    bound: str = ""
    by: str = ""
    why: str = ""
    expired: bool = False


class SignalReceived(Event, frozen=True):
    """Something happened outside. One that is `unawaited` came while the task waited for other things: it stays so."""

    name: str
    value: Value
    by: str = ""
    unawaited: bool = False


# What the agent knows


class GoalSet(Event, frozen=True):
    goal: str


class DecisionMade(Event, frozen=True):
    question: str
    choice: Value
    why: str = ""
    options: Value | UnsetType = UNSET


class FactLearned(Event, frozen=True):
    key: str
    value: Value
    source: str = ""


class PlanSet(Event, frozen=True):
    steps: tuple[str, ...]


class PlanStepDone(Event, frozen=True):
    step: str


class QuestionOpened(Event, frozen=True):
    question: str


class QuestionClosed(Event, frozen=True):
    question: str
    answer: Value | UnsetType = UNSET


class ArtifactAdded(Event, frozen=True):
    artifact_id: str
    type: str
    data: Value
    summary: str = ""
    bytes: int = 0
    step: str = ""


class NoteSet(Event, frozen=True):
    key: str
    value: Value


class FlagRaised(Event, frozen=True):
    flag: str


class FlagCleared(Event, frozen=True):
    flag: str


class MessageAdded(Event, frozen=True):
    """A message of the conversation: its own value, or the result of the step that made it."""

    message: Value | UnsetType = UNSET
    step: str = ""


class LogWritten(Event, frozen=True):
    text: str


# The state bag


class StateSet(Event, frozen=True):
    name: str
    value: Value


class StateIncremented(Event, frozen=True):
    name: str
    by: int | float = 1


class StateAppended(Event, frozen=True):
    name: str
    value: Value


class StateDeleted(Event, frozen=True):
    name: str


class StatePatched(Event, frozen=True):
    """Several changes at once, from inside or outside, all or nothing."""

    patch: Changes
    by: str = ""
    why: str = ""


class Erased(Event, frozen=True):
    """Stands in for an event whose body was erased. Never written: the row keeps its own kind."""


def kind_of(cls: type[Event]) -> str:
    """The stored name of an event's class.

    >>> kind_of(StepCompleted)
    'step_completed'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


KIND: dict[type[Event], str] = {cls: kind_of(cls) for cls in Event.__subclasses__() if cls is not Erased}
BY_KIND: dict[str, type[Event]] = {kind: cls for cls, kind in KIND.items()}

COLD_KINDS = ("checkpoint_made", "decision_made", "message_added", "rolled_back", "turn_started")
"""Kinds read by index when someone asks, since the hot state keeps only their count (law 6)."""
