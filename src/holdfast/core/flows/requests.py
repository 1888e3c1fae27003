"""What flows ask of the world, and the answers. Plain data: the drivers carry it out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Literal, Protocol

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core import events as ev, limits, names
from holdfast.core.codec import Head, UniqueKey
from holdfast.core.events import Effect, Event, Fields, Usage
from holdfast.core.retries import Retry
from holdfast.core.state.paths import Path
from holdfast.core.state.shapes import Refusal, State, Step

Linked = Literal["user", "thread"]
"""Whose log a task changes beside its own: the person's whose task it is, or that of its conversation."""


class Now(Struct, frozen=True, gc=False):
    """The time, in microseconds."""


class Append(Struct, frozen=True, gc=False):
    """Write events, durable when answered with True.

    A `decided` one is answered with False if the log had moved on: decide again. A taken key is answered with KeyTaken.
    A `deferred` one may be written later, when the agent's checkpoint strategy says. With `reads` it is answered with
    False, too, if any of that was changed since; with `heads`, if the log of the task's user or thread has another one.
    """

    events: tuple[Event, ...] = ()
    decided: bool = False
    unique_keys: tuple[UniqueKey, ...] = ()
    freed_keys: tuple[str, ...] = ()
    deferred: bool = False
    reads: Reads | None = None
    heads: tuple[tuple[Linked, Head], ...] = ()


class Reads(Struct, frozen=True, gc=False):
    """What a decision was made of: the state at a seq, and which parts of it."""

    seq: int
    paths: tuple[Path, ...]


class Invoke(Struct, frozen=True, gc=False):
    """Call the user's function; answered with an Outcome. After `late_us`, if that is not 0, it is not called."""

    key: str
    request: StepRequest
    attempt: int
    idempotency_key: str = ""
    late_us: int = 0


class Transact(Struct, frozen=True, gc=False):
    """Call the user's function inside a transaction of the store and record its outcome in the same, if it has a value.

    Answered with that Outcome, or with None if the log had moved on.
    """

    act: Invoke
    record: Callable[[Outcome], Event]


class Reconcile(Struct, frozen=True, gc=False):
    """Ask the destination whether a call happened; answered with Happened, DidNotHappen, Unknown or Unfit."""

    step: Step
    request: StepRequest


class CheckResult(Struct, frozen=True, gc=False):
    """Compare a result with what the step's function returns; answered with what is wrong, empty if it fits."""

    result: Raw
    request: StepRequest


class Recall(Struct, frozen=True, gc=False):
    """What became of a step in the log this one was forked from; answered with a Step or None."""

    key: str


class FindOwner(Struct, frozen=True, gc=False):
    """Who has a unique key, and what became of that call; answered with a KeyOwner, or None if it is free."""

    unique: str


class KeyOwner(Struct, frozen=True, gc=False):
    """A unique key's owner. Without a step the call came to nothing; `gone` means its log was removed."""

    take: UniqueKey
    step: Step | None
    gone: bool = False


class AwaitCall(Struct, frozen=True, gc=False):
    """Wait until no other branch has this call under way."""

    key: str


class AwaitReplay(Struct, frozen=True, gc=False):
    """Wait until other branches have come back to their recorded steps of that name, or can't move any more."""

    name: str


class Timer(Struct, frozen=True, gc=False):
    """A wait until then begins now, and is recorded next: a clock that is set meanwhile does not change its length."""

    until_us: int


class Sleep(Struct, frozen=True, gc=False):
    """Let time pass until then, or until the log moves. A long sleep suspends the task instead, for that reason.

    One that does not suspend it ends at `ends_us`, when the time for which the task may be held is over.
    """

    until_us: int
    why: ev.WaitKind = "timer"
    note: str = ""
    ends_us: int | None = None
    blockers: tuple[ev.Blocker, ...] = ()


class Park(Struct, frozen=True, gc=False):
    """Nothing can be done until something comes from outside, or until a time. The task suspends, unless it came.

    `looked` is the seq of the state that was looked at. If the log has moved since, the flow looks again: the answer
    may have been folded in with the record of another branch.
    """

    why: ev.WaitKind
    looked: int
    wake_us: int | None = None
    note: str = ""
    """A text for people, shown with it."""
    blockers: tuple[ev.Blocker, ...] = ()
    """What keeps the flow from continuing, where no event tells."""


class Reserve(Struct, frozen=True, gc=False):
    """Reserve the next moment at which the rate of a tool lets a call begin.

    Answered with how many microseconds that is away, by how many the call may be late, and whether the moment is
    reserved; if not, ask again then.
    """

    tool: str
    rate: str


class RunChild(Struct, frozen=True, gc=False):
    """Start or resume a child task, here, until it ends or waits."""

    id: str
    agent: Any
    input: Fields
    step: str


class Advise(Struct, frozen=True, gc=False):
    """Tell the developer something about a tool, once a process."""

    tool: str
    text: str


class RunBody(Struct, frozen=True, gc=False):
    """Call the agent's own function, for the whole task or for one turn; answered with what it returned."""


class ReadPayers(Struct, frozen=True, gc=False):
    """The states of the tasks whose budgets this one uses up."""

    ids: tuple[str, ...]


class PinLinked(Struct, frozen=True, gc=False):
    """How far the logs of the task's user and thread have come; they are read up to there."""


class ReadLinked(Struct, frozen=True, gc=False):
    """The state of the task's user, or thread, now, and what was written to its log after a seq: LinkedNow."""

    of: Linked
    after: int | None = None
    """Without it, nothing that was written is asked for."""


class LinkedNow(Struct, frozen=True, gc=False):
    """A user's or a thread's state and its head; no head if what the task changes of it stays with the task."""

    state: State
    head: Head | None
    later: tuple[tuple[int, Event], ...] = ()


class Revise(Struct, frozen=True, gc=False):
    """Let a user's function make a new value of what is in a state; answered with the event that says so."""

    make: Callable[[State], Event]
    state: State
    key: str


class AwaitIdle(Struct, frozen=True, gc=False):
    """Wait until no branch of the task has anything under way."""


Request = (
    Advise
    | AwaitCall
    | AwaitReplay
    | CheckResult
    | Now
    | Append
    | Invoke
    | Transact
    | Reconcile
    | Recall
    | Reserve
    | FindOwner
    | Timer
    | Sleep
    | Park
    | RunChild
    | RunBody
    | AwaitIdle
    | ReadPayers
    | PinLinked
    | ReadLinked
    | Revise
)
Flow = Generator[Request, Any, Raw]
Subflow = Generator[Request, Any, Any]
"""A piece of a flow."""


class Happened:
    """A call in doubt did happen, with this result."""

    def __init__(self, result: Any = None) -> None:
        self.result = result


class DidNotHappen:
    """A call in doubt did not happen, and will not."""


class Unknown:
    """It can't be found out whether a call in doubt happened."""


class Unfit:
    """A call in doubt did happen, says its destination, with a result that cannot be one. Never given by users."""

    def __init__(self, why: str) -> None:
        self.why = why


class Outcome(Struct, frozen=True, gc=False):
    """What became of calling a function: a value, an error, or no answer in time; and when it was called."""

    value: Raw | None = None
    error: Exception | None = None
    timed_out: bool = False
    usage: Usage | None = None
    started_us: int = 0
    sent: bool = True
    """False if the function declares that it marks its sending, and raised before it did."""
    abandoned: bool = False
    """Whether its thread was left behind, and may still be at it."""
    cut: bool = False
    """True if it was cut off with its task, which is out of time or cancelled. The function did not fail."""
    missed: bool = False
    """True if it was too late to call the function."""
    output: Raw | UnsetType = UNSET
    """What a function that failed had streamed until then."""


ErrorTest = Callable[[BaseException], bool]
"""Says of an exception whether it is one of those a tool declares."""


class StepRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A step to be done."""

    name: str
    key: str = ""
    """The key that the user gave it; default: its branch, name and occurrence."""
    fn: Callable[..., Any]
    input: Fields
    arguments: dict[str, Any]
    given: tuple[str, ...] = ()
    retry: Retry
    timeout: float | None = None
    tool: str = ""
    effect: Effect = "idempotent"
    risk: str = ""
    rate: str = ""
    """How often its tool may be called, by all processes of the store."""
    unique: str = ""
    frees: str = ""
    """The unique key that is free again when this is done: it undoes the call that took it."""
    undo: str = ""
    approval: bool = False
    approval_seconds: float | None = None
    retry_on: ErrorTest | None = None
    definite: ErrorTest | None = None
    reconcile: Callable[..., Any] | None = None
    reconcile_after: float = 2.0
    abandoned_after: float = limits.ABANDONED_SECONDS
    """How long the thread of an abandoned attempt may still be at it."""
    on_doubt: str = "ask"
    on_raise: str = "ask"
    """`on_doubt` for a call that raised after it may have had its effect."""
    marks_sending: bool = False
    declared: bool = True
    """Whether the tool declares its effect."""
    on_change: str = "error"
    mock: Any = UNSET
    secrets: tuple[str, ...] = ()
    """Texts that must not be read in what it returns or raises."""
    secret_print: Callable[[], str] | None = None
    """Gives the fingerprint of its secret arguments that an approval is bound to."""
    old_input: Fields | None = None
    """Its input as older versions recorded it, if it has secrets: unique keys may be known by it."""
    result: Callable[[Any], Any] | None = None
    is_async: bool = False
    estimate: Usage | None = None


class Condition(Struct, frozen=True, gc=False):
    """Under which a change is made, beside what its patch requires.

    `since` has the fields of the user's or thread's state that it sets and that the branch had read, each with the seq
    at which it read them. `base` is what the first of them was then.
    """

    since: dict[Path, int]
    base: Raw


class Held(Struct, frozen=True, gc=False):
    """Something that a branch has recorded, to be written at its next waiting verb.

    A change under a condition may be refused then; `key` is where the state keeps that. `said` is what the branch had
    recorded up to it, as `Branch.own` has it.
    """

    event: Event
    key: str
    said: Any
    condition: Condition | None = None


class Unsettled:
    """What a branch has read of linked states, what it holds back until its next waiting verb, what was refused.

    A path in `reads` begins with whose state it is: the user's or the thread's.
    """

    __slots__ = ("held", "reads", "refused")

    def __init__(self, reads: dict[Path, int]) -> None:
        self.reads = reads
        self.held: list[Held] = []
        self.refused: list[tuple[Refusal, Any]] = []


class Branch:
    """One line of execution inside a task: how often each name was used in it, and how far it sees.

    `own` is what it has recorded since its last waiting verb, newest first, as linked pairs: a branch that begins here
    starts from it without a copy. `sketch` is what was worked out of that so far.
    """

    __slots__ = (
        *("_used", "branches", "immediates", "is_old", "last", "own", "owner", "path", "seen", "sketch"),
        *("turn", "unsettled", "verbs"),
    )

    def __init__(self, path: str = "", seen: int = 0, turn: int = 0, own: Any = None, *, is_old: bool = False) -> None:
        """In a task that `is_old`, names that could be taken for other branches are let in as they were then."""
        self.path = path
        self.is_old = is_old
        self.seen = seen
        self.turn = turn
        self.own = own
        self.owner: Any = None
        self.branches = 0
        self.verbs = 0
        self.immediates: dict[str, int] = {}
        self.last: tuple[str, Raw] | None = None
        self.sketch: State | None = None
        self.unsettled: Unsettled | None = None
        self._used: dict[str, int] = {}

    @property
    def mark(self) -> str:
        """The prefix of its writings: `.` for the agent's own line."""
        return self.path or "."

    @property
    def after_step(self) -> str:
        """The last step that it has done, with its turn in a loop; empty if there is none."""
        key = "" if self.last is None else self.last[0]
        return f"{self.turn}/{key}" if key and self.turn else key

    def key(self, name: str) -> str:
        """Return the key of the next step of that name."""
        number = self._used.get(name, 0) + 1
        if number == 1 and not self.is_old:
            names.step_name(name)
        key = self.next_key(name)
        self._used[name] = number
        return key

    def next_key(self, name: str) -> str:
        """Return the key that the next step of that name will have."""
        number = self._used.get(name, 0) + 1
        return f"{self.path}/{name}#{number}" if self.path else f"{name}#{number}"

    def child(self, name: str = "", seen: int | None = None, own: Any = None) -> Branch:
        """A branch that begins where this one is, or was."""
        if not name:
            self.branches += 1
            name = str(self.branches)
        path = f"{self.path}/~{name}" if self.path else f"~{name}"
        said = self.own if seen is None else own
        child = Branch(path, self.seen if seen is None else seen, self.turn, said, is_old=self.is_old)
        if self.unsettled is not None:
            child.unsettled = Unsettled(dict(self.unsettled.reads))
        return child

    def see(self, seq: int) -> None:
        """From now on this branch sees the state up to that event."""
        if seq > self.seen:
            self.seen = seq
        self.own = self.sketch = None

    def see_refused(self, seq: int, said: Any) -> None:
        """From now on this branch sees the state up to a refusal, and what it recorded after that."""
        later: list[Any] = []
        own = self.own
        while own is not None and own is not said:
            one, own = own
            later.append(one)
        self.see(seq)
        for one in reversed(later):
            self.own = (one, self.own)


class Stopping(Protocol):
    """Whether the process was asked to stop before the next step."""

    asked: bool


class Calls(Protocol):
    """The calls of this execution that can be made once only: which are under way, and which were left behind."""

    def begin(self, key: str, request: StepRequest) -> bool:
        """A call is announced, and will be made; False if a branch makes one like it, which comes first."""
        ...

    def like(self, key: str, request: StepRequest) -> str | None:
        """The key of a call of the same tool with the same arguments that another branch is making."""
        ...

    def end(self, key: str, *, left_behind: bool = False) -> None:
        """The call has its outcome, or the wait for it is over."""
        ...

    @property
    def any(self) -> bool:
        """True if a call is under way, or may be open though it is not being made."""
        ...

    def not_over(self) -> Iterable[str]:
        """The keys of calls that were open when this execution began, or that it left behind."""
        ...

    def is_live(self, key: str) -> bool:
        """Return whether a branch of this execution is making the call."""
        ...

    def is_left_behind(self, key: str) -> bool:
        """Return whether the branch that made the call continued without its outcome."""
        ...

    def is_sending(self, key: str) -> bool:
        """Return whether a thread of this process that was left behind is still at it."""
        ...


class Surroundings(Protocol):
    """What flows read: the state as folded so far, and whether anything waits to be written."""

    @property
    def state(self) -> State: ...

    @property
    def unwritten(self) -> bool: ...

    @property
    def stop(self) -> Stopping: ...

    @property
    def called(self) -> dict[str, StepRequest]: ...

    @property
    def calls(self) -> Calls: ...

    @property
    def unclaimed(self) -> set[str]:
        """The keys of recorded steps that no branch has asked for since the replay began."""
        ...

    def claim(self, key: str) -> None:
        """Take a recorded step as asked for."""
        ...

    @property
    def replaying(self) -> bool:
        """True if branches have recorded results before them."""
        ...

    @property
    def underway(self) -> dict[str, Any]: ...

    @property
    def secrets(self) -> set[str]:
        """Texts that must not be read in what is recorded."""
        ...

    @property
    def unsettled(self) -> list[Branch]:
        """The branches that hold something back, or do not know of a refusal yet."""
        ...

    def value(self, raw: Any) -> Any:
        """Decode a value of the log."""
        ...

    def field(self, state: State, name: str) -> Any:
        """Return the value at a path of the task's own state, set or by default; None if there is none."""
        ...

    @property
    def priced(self) -> Callable[[Usage], Usage]: ...
