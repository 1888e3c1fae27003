"""The verbs as generators. A flow yields what it needs of the world and is sent the answer: it decides, it never acts.

Two drivers answer the same flows, one for `def` agents and one for `async def` ones, so no rule is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from msgspec import UNSET, Raw, Struct

from holdfast.core import codec
from holdfast.core import events as ev
from holdfast.core.errors import Cancelled, NotDone, StepChanged, StepFailed, TimeLimit
from holdfast.core.events import Effect, Event, Fields
from holdfast.core.hot import Hot, Step
from holdfast.core.policy import Retry

# What a flow may ask for


class Now(Struct, frozen=True):
    """The time, in microseconds."""


class Record(Struct, frozen=True):
    """Write events, durable when answered. A `decided` one is answered False if the log had moved on: decide again."""

    events: tuple[Event, ...]
    decided: bool = False


class Act(Struct, frozen=True):
    """Call the user's function; answered with an Outcome."""

    key: str
    want: Want
    attempt: int
    idempotency_key: str = ""


class Ask(Struct, frozen=True):
    """Ask the destination whether a call happened; answered with Happened, DidNotHappen or Unknown."""

    step: Step
    want: Want


class Sleep(Struct, frozen=True):
    """Let time pass until then. A long sleep suspends the task instead."""

    until_us: int


class Park(Struct, frozen=True):
    """Nothing can be done until something comes from outside, or until a time. Never answered: the task suspends."""

    why: ev.WaitKind
    wake_us: int | None = None


Wish = Now | Record | Act | Ask | Sleep | Park
Flow = Generator[Wish, Any, Raw]


class Happened:
    """A call in doubt did happen, with this result."""

    def __init__(self, result: Any = None) -> None:
        self.result = result


class DidNotHappen:
    """A call in doubt did not happen, and will not."""


class Unknown:
    """Nobody can tell whether a call in doubt happened."""


class Outcome(Struct, frozen=True):
    """What became of calling a function: a value, an error, or no answer in time."""

    value: Raw | None = None
    error: Exception | None = None
    timed_out: bool = False


class Want(Struct, frozen=True, kw_only=True):
    """A step somebody wants done."""

    name: str
    fn: Callable[..., Any]
    input: Fields
    arguments: dict[str, Any]
    given: tuple[str, ...] = ()
    retry: Retry
    timeout: float | None = None
    tool: str = ""
    effect: Effect = "idempotent"
    risk: str = ""
    unique: str = ""
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    reconcile: Callable[..., Any] | None = None
    reconcile_after: float = 2.0
    on_doubt: str = "ask"
    on_change: str = "error"


class Branch:
    """One line of execution inside a task: how often each name was used in it, and how far it sees."""

    def __init__(self, path: str = "", seen: int = 0) -> None:
        self.path = path
        self.seen = seen
        self.own: list[Any] = []
        self.said: dict[str, int] = {}
        self._used: dict[str, int] = {}

    @property
    def mark(self) -> str:
        """What its sayings carry: `.` for the agent's own line."""
        return self.path or "."

    def key(self, name: str) -> str:
        """The key of the next step of that name."""
        number = self._used[name] = self._used.get(name, 0) + 1
        return f"{self.path}/{name}#{number}" if self.path else f"{name}#{number}"

    def see(self, seq: int) -> None:
        """From now on this branch sees the state up to that event."""
        self.seen = max(self.seen, seq)
        self.own.clear()


class Desk(Protocol):
    """What flows read: the state as folded so far."""

    @property
    def hot(self) -> Hot: ...


# Steps and calls


def step(desk: Desk, branch: Branch, want: Want) -> Flow:
    """Do something once: the recorded result if there is one, else the function, its retries, its record."""
    key = branch.key(want.name)
    if desk.hot.summary.status != "running" and key not in desk.hot.steps:
        raise AssertionError("a step needs a claim")
    while True:
        known = desk.hot.steps.get(key)
        if known is not None and known.status in ("completed", "failed"):
            if _changed(known, want):
                yield Record((ev.StepVoided(key=key, why="its input changed"),), decided=True)
                continue
            branch.see(known.last_seq)
            if known.status == "failed":
                raise _failed(known)
            return known.result
        if known is not None and known.status in ("running", "doubt") and want.effect == "once":
            yield from _settle(desk, known, want)
            continue
        kept = desk.hot.kept.get(idempotency_key(desk.hot, key, want)) if known is None else None
        if kept is not None:
            yield Record(_again(key, kept, want), decided=True)
            continue
        if known is not None and known.status == "retrying":
            yield Sleep(known.retry_us)
        yield from within_time(desk)
        yield from _attempt(desk, key, known, want)


def _attempt(desk: Desk, key: str, known: Step | None, want: Want) -> Generator[Wish, Any, None]:
    """One try: announced if it cannot be repeated, then made, then recorded."""
    attempt = known.attempts + 1 if known is not None and known.status == "retrying" else 1
    same: dict[str, Any] = {"key": key, "name": want.name, "tool": want.tool, "effect": want.effect}
    same |= {"input": want.input, "idempotency_key": idempotency_key(desk.hot, key, want)}
    if want.effect == "once":
        announced = ev.StepStarted(**same, attempt=attempt, unique=want.unique, risk=want.risk)
        if not (yield Record((announced,), decided=True)):
            return
    started_us: int = yield Now()
    outcome: Outcome = yield Act(key, want, attempt, same["idempotency_key"])
    if outcome.value is not None:
        yield Record((ev.StepCompleted(**same, result=outcome.value, attempts=attempt, started_us=started_us),))
        return
    if outcome.timed_out and want.effect == "once":
        yield Record((ev.StepDoubted(key=key, why="no answer in time"),))
        return
    assert outcome.error is not None
    failure = codec.failure(outcome.error)
    if attempt < want.retry.attempts and _may_repeat(outcome.error, want):
        now_us: int = yield Now()
        retry_us = now_us + int(want.retry.delay(attempt) * 1_000_000)
        yield Record((ev.AttemptFailed(key=key, name=want.name, attempt=attempt, failure=failure, retry_us=retry_us),))
    else:
        yield Record((ev.StepFailed(**same, failure=failure, attempts=attempt, started_us=started_us),))


def _again(key: str, kept: Step, want: Want) -> tuple[Event, ...]:
    """What a rollback voided but the world has seen: the call is not made again, its outcome is recorded again."""
    same: dict[str, Any] = {"key": key, "name": want.name, "tool": want.tool, "effect": want.effect}
    same |= {"input": want.input, "idempotency_key": kept.idempotency_key}
    started = ev.StepStarted(**same, attempt=kept.attempts)
    if kept.failure is not None:
        return started, ev.StepFailed(**same, failure=kept.failure, attempts=kept.attempts)
    return started, ev.StepCompleted(**same, result=kept.result, attempts=kept.attempts)


def _settle(desk: Desk, known: Step, want: Want) -> Generator[Wish, Any, None]:
    """A call that was announced and has no outcome: ask the destination, else follow the policy, else ask a person."""
    if known.status == "running":
        yield Record((ev.StepDoubted(key=known.key, why="announced, without an outcome"),), decided=True)
        return
    if want.reconcile is not None:
        yield Sleep(known.started_us + int(want.reconcile_after * 1_000_000))
        answer = yield Ask(known, want)
        if isinstance(answer, Happened):
            result = codec.pack(answer.result, f"the reconciled result of {known.key!r}")
            yield Record((ev.StepSettled(key=known.key, happened=True, result=result, by="reconcile"),), decided=True)
            return
        if isinstance(answer, DidNotHappen):
            yield Record((ev.StepSettled(key=known.key, happened=False, by="reconcile"),), decided=True)
            return
    if want.on_doubt == "retry":
        yield Record((ev.StepSettled(key=known.key, happened=False, by="policy"),), decided=True)
    elif want.on_doubt == "fail":
        failure = ev.Failure("InDoubt", f"nobody knows whether {known.key!r} happened", code="in-doubt")
        yield Record((ev.StepFailed(key=known.key, name=known.name, failure=failure, attempts=known.attempts),))
    else:
        yield Park("doubt")


def idempotency_key(hot: Hot, key: str, want: Want) -> str:
    """A key that stays the same however often a call is tried: task, step, tool and arguments."""
    if not want.tool:
        return ""
    place = f"{hot.turn}/{key}" if hot.turn else key
    return f"{hot.summary.id}:{place}:{want.tool}:{codec.fingerprint(want.input)[:16]}"


def _changed(known: Step, want: Want) -> bool:
    """Whether a recorded step must be done again, because it was another one."""
    if known.input == want.input or want.on_change == "keep":
        return False
    if want.on_change == "rerun":
        return True
    raise StepChanged(known.key, _shown(known.input), _shown(want.input))


def _shown(input: Fields) -> str:
    text = ", ".join(f"{name}={bytes(raw).decode()[:60]}" for name, raw in input.items())
    return f"({text})"


def _failed(step: Step) -> StepFailed:
    assert step.failure is not None
    return StepFailed(step.key, step.attempts, step.failure.type, step.failure.message)


def _may_repeat(error: Exception, want: Want) -> bool:
    if isinstance(error, NotDone):
        return True
    return isinstance(error, want.retry_on) if want.effect == "once" else isinstance(error, want.retry_on or Exception)


def within_time(desk: Desk) -> Generator[Wish, Any, None]:
    """Refuse to begin anything once the task was cancelled, or after its deadline."""
    if desk.hot.cancel is not None:
        raise Cancelled
    deadline_us = desk.hot.summary.deadline_us
    if deadline_us is not None:
        now_us: int = yield Now()
        if now_us >= deadline_us:
            raise TimeLimit(f"the deadline of task {desk.hot.summary.id!r} has passed", hint="resume it with a new one")


# Waits


def wait(desk: Desk, branch: Branch, name: str, kind: ev.WaitKind, prompt: Raw | None, seconds: float | None) -> Flow:
    """Wait for a person, a signal or a time; what ended the wait is its result."""
    key = branch.key(name)
    while True:
        done = desk.hot.steps.get(key)
        if done is not None:
            branch.see(done.last_seq)
            return done.result
        waiting = desk.hot.waits.get(key)
        now_us: int = yield Now()
        if waiting is None:
            wake_us = None if seconds is None else now_us + int(seconds * 1_000_000)
            asked = UNSET if prompt is None else prompt
            yield Record((ev.WaitStarted(key=key, wait=kind, name=name, prompt=asked, wake_us=wake_us),), decided=True)
            continue
        signal = next((one for one in desk.hot.signals if kind == "signal" and one.name == name), None)
        if signal is not None:
            yield Record((ev.WaitEnded(key=key, value=signal.value, by=signal.by),), decided=True)
        elif waiting.wake_us is not None and now_us >= waiting.wake_us:
            yield Record((ev.WaitEnded(key=key, expired=True),), decided=True)
        else:
            yield Park(kind, waiting.wake_us)
