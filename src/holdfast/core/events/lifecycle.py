"""The facts of a task's life, from its creation to its end.

Events are frozen, in the past tense and additive for ever: a new meaning is a new event, a new field has a default.
An event's kind (its class name in snake case) stands in a column of its own; the rest is the body. A field of type
`Value` holds a user's value as encoded JSON, or an envelope that stands for one (see `codec`).
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.events.base import Event, Failure, Fields, Limits, Value, WaitKind
from holdfast.core.phases import Moves

# The life of a task


class TaskCreated(Event, frozen=True):
    """The first event of a task.

    One that lives in a `with` block has no agent that others could call. In a `mock` one every call of a tool is
    answered by its mock in every process. A queue may limit how many tasks of one `queue_key` are worked on at a
    time; no worker begins before `start_us`. `phases` is its machine, if it is not the default one. A task that begins
    with a contract has its constraints word for word, the risks among them whose calls wait for an approval, its
    budget, and the identity of all of it. `key_space` tells the store and the tenant it began in: idempotency keys
    cover it. Older tasks have none. `by` is who started it, where that is known. One that is `alone` began when no
    other task of its thread was under way. It expires after it has waited for `expire_us` without any change.
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
    key_space: str = ""
    by: str = ""
    alone: bool = False
    expire_us: int = 0


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
    """A worker claims a task. The last claim owns it.

    `taken` says how it could be taken from another worker. `proven`: that process is dead, or signed off. `presumed`:
    it gave no sign of life, and may still be at work. Older logs have `dead` (its lock was gone) and `lease` (it was
    silent for longer than its lease).
    """

    holder: str
    lease_seconds: float = 30.0
    pins: Pins | None = None
    taken: Literal["", "dead", "lease", "proven", "presumed"] = ""


class TaskReleased(Event, frozen=True):
    """The task is released, for other workers to take; they do not before `wake_us`."""

    why: str = ""
    wake_us: int | None = None


class Blocker(Struct, frozen=True, omit_defaults=True, gc=False):
    """What keeps a suspended task from continuing, where no event of its own tells: a budget, a call in doubt, a rate.

    `task` is whose it is: the task's own, or that of another. `key` names the limit, or the call's step. Of a limit it
    tells how much was used, of how much, and how much more was asked for. Of a rate it tells the moment that is
    reserved for an attempt, and until when the attempt may begin.
    """

    why: WaitKind
    task: str
    key: str
    used: float = 0.0
    of: float = 0.0
    ahead: float = 0.0
    attempt: int = 0
    until_us: int = 0
    late_us: int = 0


class TaskSuspended(Event, frozen=True):
    """The task holds no memory until `wake_us`, or until an outside event wakes it. `note` tells people more.

    `looked` says that every branch had looked at the log as it was. Older versions could suspend a task whose answer
    had come already. `blockers` is what keeps it from continuing, where no other event tells.
    """

    why: WaitKind
    wake_us: int | None = None
    note: str = ""
    looked: bool = False
    blockers: tuple[Blocker, ...] = ()


class TaskCompleted(Event, frozen=True):
    """The task's result. `phase` is the phase that follows from it; in older logs the phase stayed as it was."""

    result: Value
    phase: str = ""


class TaskFailed(Event, frozen=True):
    """How a task failed, the seq of the state it failed in (what was known then), and the failed step that ended it.

    `phase` is the phase that follows from it; in older logs the phase stayed as it was.
    """

    failure: Failure
    state_seq: int = 0
    step: str = ""
    phase: str = ""


class CancelRequested(Event, frozen=True):
    """The task is asked to stop. With `failure` it ends failed, not cancelled: its parent has failed of that.

    One that `expired` waited for longer than it may.
    """

    why: str = ""
    by: str = ""
    failure: Failure | None = None
    expired: bool = False


class TaskCancelled(Event, frozen=True):
    why: str = ""
    by: str = ""


class TaskReopened(Event, frozen=True):
    """A failed task is resumed; the uncaught failed step that ended it is void. `phase` is the one it failed in."""

    void: str = ""
    by: str = ""
    why: str = ""
    deadline_us: int | None = None
    phase: str = ""


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
    calls may have been made that can't be named.
    """

    known_seq: int
    known_digest: str
    head_seq: int
    calls: tuple[LostCall, ...] = ()
    unsure_upto: int = -1
    by: str = ""


class DivergenceAccepted(Event, frozen=True):
    """A person lets a task continue from what is left of its log."""

    by: str = ""
    why: str = ""
