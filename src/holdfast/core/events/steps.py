"""Events of work: steps, calls, what they cost, waits, approvals, signals."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from holdfast.core.events.base import Event, Failure, Fields, Limits, Usage, Value, WaitKind
from holdfast.core.events.effects import Effect


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
    maybe_done: bool = False
    """Whether the attempt may have had its effect: then an approval was used up by it."""
    output: Value | UnsetType = UNSET
    """What the attempt had streamed until it failed."""


class StepCompleted(Event, frozen=True):
    """A step has its result.

    `undo` names what would undo it. `source` is the call whose outcome this is, if it was not made here, and `task` the
    task whose call it was, if that is another one. One recorded `behind` was written while the agent continued, so it
    does not move what the agent sees.
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
    task: str = ""


class StepFailed(Event, frozen=True):
    """A step failed for good. One that is `safe` is known not to have happened.

    One that is `maybe_done` may have happened: the task does not make the same call again before it is settled. `undo`
    names what undoes it, should the task not come to a good end. `output` is what it had streamed until it failed.
    """

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
    maybe_done: bool = False
    undo: str = ""
    output: Value | UnsetType = UNSET
    task: str = ""


class StepDoubted(Event, frozen=True):
    """An announced call whose outcome is unknown.

    `failure` is the exception the call raised after it may have had its effect. Before `until_us` an abandoned thread
    may still be at it: until then only the word that it happened is taken.
    """

    key: str
    why: str = ""
    failure: Failure | None = None
    until_us: int = 0
    usage: Usage | None = None


class StepSettled(Event, frozen=True):
    """A call in doubt was settled: the destination or a person knows whether it happened."""

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
    """A late answer, kept as an observation and never used as a result.

    `ended` says that the thread of an abandoned attempt has come to its end: it sends nothing more.
    """

    key: str
    result: Value | UnsetType = UNSET
    failure: Failure | None = None
    holder: str = ""
    ended: bool = False


class CompensationAdded(Event, frozen=True):
    """Something the agent wants undone, should the task not come to a good end."""

    name: str
    input: Fields = {}


class BudgetRaised(Event, frozen=True):
    """A person allows more. Limits that are not named stay; without any, a waiting task only looks again."""

    limits: Limits = Limits()
    by: str = ""
    why: str = ""


class ChildSpent(Event, frozen=True):
    """What a child task, or a child of one, has used up of this task's budget."""

    child: str
    usage: Usage = Usage()
    calls: int = 0
    lost: bool = False


class WaitStarted(Event, frozen=True):
    """A task begins to wait. `phase` is the one it is in meanwhile; in older logs the phase stayed as it was.

    `answer` is the JSON Schema of the answer that a question takes; without it, any JSON is an answer.
    """

    key: str
    wait: WaitKind
    name: str = ""
    prompt: Value | UnsetType = UNSET
    wake_us: int | None = None
    phase: str = ""
    answer: Value | UnsetType = UNSET


class WaitEnded(Event, frozen=True):
    """A wait has ended. `signal` is the seq of the signal that ended it."""

    key: str
    value: Value | UnsetType = UNSET
    expired: bool = False
    by: str = ""
    why: str = ""
    signal: int = 0
    failure: Failure | None = None


class ApprovalAsked(Event, frozen=True):
    """A call, or the agent itself, needs a person's approval. It is bound to exactly this call (`bound`)."""

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
