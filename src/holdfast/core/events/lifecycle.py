"""Every fact that can be written.

Events are frozen, in the past tense and additive for ever: a new meaning is a new event, a new field has a default.
An event's kind (its class name in snake case) stands in a column of its own; the rest is the body. A field of type
`Value` holds a user's value as encoded JSON, or an envelope that stands for one (see `codec`).
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.events.base import Effect, Event, Failure, Fields, Limits, Usage, Value, WaitKind, kind_of
from holdfast.core.phases import Moves

# The life of a task


class TaskCreated(Event, frozen=True):
    """The first event of a task.

    One that lives in a `with` block has no agent that others could call. In a `mock` one every call of a tool is
    answered by its mock, whoever works on it. A queue may limit how many tasks of one `queue_key` are worked on at a
    time; no worker begins before `start_us`. `phases` is its machine, if it is not the default one. A task that begins
    with a contract has its constraints word for word, the risks among them whose calls wait for an approval, its
    budget, and the identity of all of it.
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
    queue_key: str | None = None
    start_us: int | None = None
    version: str = ""
    stages: tuple[str, ...] = ()
    goal: str = ""
    salt: str = ""
    block: bool = False
    budget: Limits | None = None
    payers: tuple[str, ...] = ()
    phases: Moves | None = None
    constraints: Value | UnsetType = UNSET
    risks: tuple[str, ...] = ()
    contract: str = ""
    state_version: int = 0
    mock: bool = False


class TaskForked(Event, frozen=True):
    """The first own event of a fork: its past is the parent's log up to and including `at`."""

    parent: str
    at: int
    seed: str = ""
    effects: Literal["ask", "live", "recorded"] = "ask"
    deadline_us: int | None = None
    by: str = ""


class Pins(Struct, frozen=True, omit_defaults=True, gc=False):
    """How much of its user's and its thread's log a task sees, until its next turn begins."""

    user: int = 0
    thread: int = 0


class TaskClaimed(Event, frozen=True):
    """Taking a task. Whoever's claim is last owns it.

    `taken` says why it could be taken from another holder: that one was dead, or silent for longer than its lease, in
    which case it may still be at work and has only not noticed.
    """

    holder: str
    lease_seconds: float = 30.0
    pins: Pins | None = None
    taken: Literal["", "dead", "lease"] = ""


class TaskReleased(Event, frozen=True):
    """The task is let go of, for others to take; workers do not before `wake_us`."""

    why: str = ""
    wake_us: int | None = None


class TaskSuspended(Event, frozen=True):
    """The task holds no memory until `wake_us`, or until an outside event wakes it. `note` tells people more."""

    why: WaitKind
    wake_us: int | None = None
    note: str = ""


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
    deadline_us: int | None = None


class UndoStarted(Event, frozen=True):
    """The task cannot be completed, and what it did is being undone. `failure` is how it will end; none: cancelled."""

    failure: Failure | None = None


class TurnStarted(Event, frozen=True):
    turn: int
    pins: Pins | None = None


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


class LostCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """A call that can be done once only, whose record is gone: what its status was when it was last known."""

    key: str
    tool: str = ""
    idempotency_key: str = ""
    status: str = ""


class TaskDiverged(Event, frozen=True):
    """Events that were acknowledged are gone: the log was at `known_seq`, and is now at `head_seq`, where this follows.

    Those of the lost calls that may have happened follow as calls in doubt. `unsure_upto` is the last turn in which
    calls may have been made that nobody can name.
    """

    known_seq: int
    known_digest: str
    head_seq: int
    calls: tuple[LostCall, ...] = ()
    unsure_upto: int = -1
    by: str = ""


class DivergenceAccepted(Event, frozen=True):
    """Somebody lets a task go on from what is left of its log."""

    by: str = ""
    why: str = ""


# Steps and calls


class StepStarted(Event, frozen=True):
    """A step announced before it acts. With an effect of `once`, it is in doubt until its outcome is recorded.

    One that turns out to take long announces itself late, and says when it began.
    """

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
    estimate: Usage | None = None
    started_us: int = 0


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
    usage: Usage | None = None


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
    usage: Usage | None = None


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
    usage: Usage | None = None


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


# Budgets


class BudgetRaised(Event, frozen=True):
    """Somebody allows more. Limits that are not named stay; without any, a waiting task only looks again."""

    limits: Limits = Limits()
    by: str = ""
    why: str = ""


class ChildSpent(Event, frozen=True):
    """What a child task, or a child of one, has used up of this task's budget."""

    child: str
    usage: Usage = Usage()
    calls: int = 0
    lost: bool = False


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


class Erased(Event, frozen=True):
    """Stands in for an event whose body was erased. Never written: the row keeps its own kind."""


KIND: dict[type[Event], str] = {cls: kind_of(cls) for cls in Event.__subclasses__() if cls is not Erased}
BY_KIND: dict[str, type[Event]] = {kind: cls for cls, kind in KIND.items()}

COLD_KINDS = ("checkpoint_made", "decision_made", "message_added", "rolled_back", "turn_started")
"""Kinds read by index when someone asks, since the hot state keeps only their count (law 6)."""
