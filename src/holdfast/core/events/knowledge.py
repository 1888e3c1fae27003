"""Events of what an agent knows: goal, decisions, facts, plan, messages, the state bag; and of people and threads."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from holdfast.core.events.base import Event, Fields, Value
from holdfast.core.events.changes import Changes


class GoalSet(Event, frozen=True):
    goal: str


class DecisionMade(Event, frozen=True):
    """A choice, its reason and the options not taken. `step` is the last step before it, with its turn in a loop."""

    question: str
    choice: Value
    why: str = ""
    options: Value | UnsetType = UNSET
    step: str = ""


class FactLearned(Event, frozen=True):
    key: str
    value: Value
    source: str = ""


class PlanSet(Event, frozen=True):
    """A plan in place of the one before. `done` are those of its steps that were done already."""

    steps: tuple[str, ...]
    done: tuple[str, ...] = ()


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
    """A message of the conversation: its own value, or the result of the step that made it.

    In a thread's log, `task` is whose it is, `index` which of that task's messages, from 1, and `user` the task's user;
    or it is `by` another actor. A `raw` one is the JSON text of an item, kept as it was given.
    `said_us` is when the agent recorded it, which may be long before it was written.
    """

    message: Value | UnsetType = UNSET
    step: str = ""
    task: str = ""
    index: int = 0
    by: str = ""
    user: str = ""
    raw: bool = False
    said_us: int = 0


class MessagesRemoved(Event, frozen=True):
    """Messages were taken out of a thread: those at these seqs, and all up to and with one. Their events stay."""

    seqs: tuple[int, ...] = ()
    upto: int = 0
    by: str = ""


class MessagesSummarised(Event, frozen=True):
    """A summary (its own value, or a step's result) stands for the messages at these positions where they do not fit.

    Each pair is a range, its end not included. A later one covers what the earlier ones did, and more.
    """

    covers: tuple[tuple[int, int], ...]
    step: str = ""
    summary: Value | UnsetType = UNSET
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    basis: str = "estimate"


class LogWritten(Event, frozen=True):
    """A line that an agent wrote, and values that programs can read of it."""

    text: str
    fields: Fields = {}


# The state bag. A write under a newer version of the state than the one in the log says so (`state_version`). If it is
# `nested`, its name is a path into an object; in older logs a name with a dot is the name of a field.


class StateSet(Event, frozen=True):
    name: str
    value: Value
    state_version: int = 0
    nested: bool = False


class StateIncremented(Event, frozen=True):
    """A number grew; one that was not there began at `start`."""

    name: str
    by: int | float = 1
    start: int | float = 0
    state_version: int = 0
    nested: bool = False


class StateAppended(Event, frozen=True):
    """A list grew; one that was not there began as `start`."""

    name: str
    value: Value
    start: Value | UnsetType = UNSET
    state_version: int = 0
    nested: bool = False


class StateDeleted(Event, frozen=True):
    name: str
    state_version: int = 0
    nested: bool = False


class StateUpdated(Event, frozen=True):
    """A function made a new value of the one that was there; `key` is the verb's place, as a step's is."""

    key: str
    name: str
    value: Value
    state_version: int = 0
    nested: bool = False


class StatePatched(Event, frozen=True):
    """Several changes at once, from inside or outside, all or nothing. In a user's log, `task` is the one it is by.

    `plan_done` are those steps of a new plan that were done already.
    """

    patch: Changes
    by: str = ""
    why: str = ""
    state_version: int = 0
    task: str = ""
    plan_done: tuple[str, ...] = ()


class PatchRefused(Event, frozen=True):
    """A change that an agent asked for was not made: others had changed the same, or what it requires was not so.

    The agent gets it as PatchConflict, on replay too. If it was of its user's or its thread's state, `seen` is how far
    the task sees that log from then on.
    """

    patch: Changes
    path: str
    mine: str
    theirs: str
    base: Value | UnsetType = UNSET
    by: str = ""
    required: bool = False
    user: bool = False
    seen: int = 0
    thread: bool = False


class StateMigrated(Event, frozen=True):
    """The whole bag as the agent's upcasters made it, before the first write under a new version."""

    version: int
    bag: Fields = {}


# Logs of people and conversations


class UserCreated(Event, frozen=True):
    """The first event of a person's log, or the first after everything in it was erased."""

    salt: str = ""


class ThreadCreated(Event, frozen=True):
    """The first event of a conversation that spans tasks."""

    salt: str = ""
    user: str | None = None


class TaskJoined(Event, frozen=True):
    """A task began on a thread on which no other was under way; in the same group as its first event."""

    task: str


class MetadataSet(Event, frozen=True):
    """What a program notes about a thread, by name; those in `delete` go."""

    set: Fields = {}
    delete: tuple[str, ...] = ()
    by: str = ""


class ExpirySet(Event, frozen=True):
    """How long after its last event the log of a thread or a user may be removed; 0: never."""

    expire_us: int = 0
    by: str = ""


class UserPatched(Event, frozen=True):
    """A task changed its user's state; the change itself stands in the user's log too, in the same group.

    A read-modify-write has the `key` of its verb; `seen` is how far the task sees the user's log from then on.
    """

    patch: Changes
    key: str = ""
    seen: int = 0


class ThreadPatched(Event, frozen=True):
    """A task changed the state of its thread; the change itself stands in the thread's log too, in the same group.

    `key` and `seen` are as in UserPatched: from then on the task sees its thread up to `seen`.
    """

    patch: Changes
    key: str = ""
    seen: int = 0
