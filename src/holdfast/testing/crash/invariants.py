"""What must hold after a crash anywhere. Each check gives what is wrong, in words; nothing if all is well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from msgspec import Struct

from holdfast.core import events as ev, limits
from holdfast.core.codec import LoggedEvent
from holdfast.engine.app import App
from holdfast.engine.reading.task_state import TaskState
from holdfast.testing.crash.world import World, WorldRequest

ENDED = ("completed", "failed", "cancelled")
SHOWN_EVENTS = 60


class ObservedCall:
    """A call as the logs tell it. `flagged` counts the events that admit that it may be made once more."""

    def __init__(self, step: str, effect: str) -> None:
        self.step = step
        self.effect = effect
        self.flagged = 0
        self.done_here = False

    def made(self, request: WorldRequest) -> bool:
        """Return whether a request with this call's key came out of it, and not out of one that undoes it, say."""
        return request.step in ("", self.step)


class Evidence(Struct, frozen=True):
    """What a store and the world tell at one moment. The task itself may not have been there yet."""

    logs: dict[str, tuple[LoggedEvent, ...]] = {}
    requests: tuple[WorldRequest, ...] = ()
    listed: str = ""
    outcome: tuple[str, ...] = ()
    result: Any = None

    @property
    def calls(self) -> dict[str, ObservedCall]:
        """The calls of all logs, by their idempotency key."""
        return {key: call for records in self.logs.values() for key, call in calls_of(records).items()}

    @property
    def doubts(self) -> int:
        """The number of calls flagged in doubt."""
        return sum(record.kind == "step_doubted" for records in self.logs.values() for record in records)

    def reached(self, effects: Container[str] | None = None) -> Counter[tuple[str, str]]:
        """Count how often the world recorded the calls of some effects, or of any, under their keys."""
        calls = self.calls
        made = (one for one in self.requests if one.key in calls and calls[one.key].made(one))
        return Counter((one.what, one.key) for one in made if effects is None or calls[one.key].effect in effects)


def gather(app: App, id: str, world: World | None, result: Callable[[TaskState], Any] | None = None) -> Evidence:
    """Look at everything, change nothing."""
    logs = {row.id: tuple(app.events(row.id)) for row in app.list(limit=limits.MAX_PAGE_SIZE)}
    requests = () if world is None else tuple(world.requests())
    if id not in logs:
        return Evidence(logs, requests)
    row, state = app.store.summary(id), app.get(id)
    return Evidence(logs, requests, row.status if row else "", outcome(state), result and result(state))


def outcome(state: TaskState) -> tuple[str, ...]:
    """Return how a task ended, or its wait."""
    if state.waiting is not None:
        return state.status, state.waiting.kind
    return (state.status, state.failure.type) if state.failure is not None else (state.status,)


def calls_of(records: Sequence[LoggedEvent]) -> dict[str, ObservedCall]:
    """The calls of one log. Step keys begin anew each turn, so the newest call of a key is the one meant."""
    by_key: dict[str, ObservedCall] = {}
    by_step: dict[str, ObservedCall] = {}
    for record in records:
        match record.event:
            case (ev.StepStarted() | ev.StepCompleted() | ev.StepFailed()) as event if event.idempotency_key:
                call = by_key.setdefault(event.idempotency_key, ObservedCall(event.key, event.effect))
                by_step[event.key] = call
                made_elsewhere = getattr(event, "source", "")
                call.done_here |= isinstance(event, ev.StepCompleted) and not made_elsewhere
            case (ev.StepDoubted() | ev.AttemptFailed() | ev.StepVoided()) as event if event.key in by_step:
                by_step[event.key].flagged += 1
            case ev.TaskReopened() as event if event.void in by_step:
                by_step[event.void].flagged += 1
            case _:
                pass
    return by_key


# Right after the crash


def after_crash(left: Evidence, whole: Evidence, id: str) -> Iterator[str]:
    """Nothing is reported finished while work remains, and what cannot be repeated was announced before it was done."""
    kinds = [record.kind for record in left.logs.get(id, ())]
    if left.listed == "completed" and "task_completed" not in kinds:
        yield "right after the crash the task was listed as completed, but nothing in its log says so"
    announced, known = left.calls, whole.calls
    for one in left.requests:
        call = known.get(one.key)
        if call is not None and call.effect in ev.ANNOUNCED and call.made(one) and one.key not in announced:
            yield f"{call.step} ({call.effect}) reached the world as {one.what!r} before it was announced in the log"


# When everything has come to rest


def at_rest(app: App, id: str, left: Evidence, now: Evidence) -> Iterator[str]:
    """The log is whole and only grew, the state is its fold, the list agrees, and no call is open in what has ended."""
    for name, before in left.logs.items():
        if [one.digest for one in now.logs.get(name, ())][: len(before)] != [one.digest for one in before]:
            yield f"events of {name!r} that were there after the crash are gone or changed"
    for problem in app.verify().problems:
        yield f"verify found {problem}"
    yield from _same_without_snapshots(app)
    for name in now.logs:
        app.logs.cache.states.clear()  # what is remembered would hide what the snapshots say
        before = app.get(name).to_dict()
        app.store.drop_snapshots(log=name)
        app.logs.cache.states.clear()
        if app.get(name).to_dict() != before:
            yield f"the state of {name!r} is another when it is folded without snapshots"
        for step in app.steps(name):
            if app.get(name).status in ENDED and step.effect in ev.ANNOUNCED and step.status in ("running", "doubt"):
                yield f"{name!r} has ended, but its call {step.key} is still open ({step.status})"
    if now.outcome and now.listed != now.outcome[0]:
        yield f"the task is {now.outcome[0]}, but listed as {now.listed}"


def _same_without_snapshots(app: App) -> Iterator[str]:
    """Check that users and threads are the fold of their logs. They are not tasks, and no list has them."""
    for name in app.store.logs():
        if name.startswith("@") and not name.startswith("@records/"):
            app.logs.cache.states.clear()
            before = app.logs.load(name).state
            app.store.drop_snapshots(log=name)
            app.logs.cache.states.clear()
            if app.logs.load(name).state != before:
                yield f"the state of {name!r} is another when it is folded without snapshots"


def same_effects(now: Evidence, whole: Evidence) -> Iterator[str]:
    """No effect silently happened twice, and none is recorded as done that the world never saw."""
    calls, reached = now.calls, now.reached()
    for (what, key), times in now.reached(ev.ANNOUNCED).items():
        if times > 1 + calls[key].flagged:
            step = f"{calls[key].step} ({calls[key].effect})"
            yield f"{step} reached the world {times} times as {what!r}, and no event flags it as in doubt"
    for one in now.requests if now.outcome == ("completed",) else ():
        if one.key not in calls and any(one.key.startswith(f"{log}:") for log in now.logs):
            yield f"the world recorded {one.what!r} with the key {one.key!r}, which no log knows"
    for what, key in whole.reached():
        call = calls.get(key)
        if call is not None and call.done_here and (what, key) not in reached:
            yield f"{call.step} is recorded as done, but its {what!r} never reached the world"


def was_told(now: Evidence, error: str) -> bool:
    """Return whether an injected exception came to the agent as a failed step: it may do something else then."""
    events = [record.event for records in now.logs.values() for record in records]
    return any(isinstance(one, ev.StepFailed) and one.failure.type == error for one in events)


def no_more_effects(now: Evidence, whole: Evidence) -> Iterator[str]:
    """A fault makes no effect happen more often than it does without one."""
    usual, seen = whole.reached(ev.ANNOUNCED), now.reached(ev.ANNOUNCED)
    for (what, key), times in seen.items():
        if times > max(1, usual[what, key]) + now.calls[key].flagged:
            yield f"{now.calls[key].step} ({now.calls[key].effect}) reached the world {times} times as {what!r}"


def repeated(now: Evidence) -> int:
    """Count the announced calls that the world saw more than once, each with an event that flags it."""
    return sum(times > 1 for times in now.reached(ev.ANNOUNCED).values())


def same_end(now: Evidence, whole: Evidence) -> Iterator[str]:
    """The task ends as it does without a crash, with the same result."""
    if now.outcome != whole.outcome:
        yield f"the task is {' · '.join(now.outcome) or 'missing'}; without a crash it is {' · '.join(whole.outcome)}"
    elif now.result != whole.result:
        yield f"its result is {now.result!r}; without a crash it is {whole.result!r}"


def timeline(now: Evidence, left: Evidence | None) -> Iterator[str]:
    """The logs as lines of text, with the place of the crash."""
    for name, records in now.logs.items():
        cut = None if left is None else len(left.logs.get(name, ()))
        shown = ["✂ crash"] if cut == 0 else []
        for count, record in enumerate(records, start=1):
            subject: str = getattr(record.event, "key", "")
            shown.append(f"{record.seq} {record.kind}{' ' if subject else ''}{subject}")
            if count == cut:
                shown.append("✂ crash")
        hidden = ["…"] if len(shown) > SHOWN_EVENTS else []
        yield f"log of {name}: " + " · ".join([*hidden, *shown[-SHOWN_EVENTS:]])
