"""What others do to a task: signals, answers, settlements, cancellation. Each reads the log, decides and appends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Raw

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import Group, Stored, Write
from holdfast.core.errors import (
    Conflict,
    Diverged,
    HoldfastError,
    InvalidEvent,
    InvalidValue,
    LeaseLost,
    PatchConflict,
    SeqOutOfRange,
    StateNotMigrated,
    StepNotFound,
    TaskCollected,
    TaskFinished,
)
from holdfast.core.events import Changes, Event, Limits
from holdfast.core.state import budget, merge, rules
from holdfast.core.state.shapes import Hot, Step
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.logs.log import Log, Logs, decoded
from holdfast.engine.reading import timeline

Decide = Callable[[Hot], Sequence[Event]]
Frees = Callable[[Hot], tuple[str, ...]]


def change(logs: Logs, id: str, decide: Decide, frees: Frees | None = None) -> Log:
    """Append what a decision about the present state asks for. If the log moves meanwhile, decide again."""
    log = logs.load(id)
    for _ in range(limits.MAX_APPEND_TRIES):
        events = decide(log.state)
        log.check(events)
        try:
            parent = log.state.summary.parent if isinstance(events[-1], ev.TaskCancelled) else None
            also = () if parent is None else child_ended(logs, parent, id, events[-1])
            if log.state.payers:
                told = list(budget.shares(log.state, events))
                also += tuple(logs.beside(one, told, log.state.salt) for one in log.state.payers if told)
            log.append(events, frees=() if frees is None else frees(log.state), also=also)
            log.remember()
        except Conflict:
            log.refresh()
        else:
            return log
    raise Conflict(id, log.head.seq, None)


def here(hot: Hot, key: str) -> str:
    """A key as it is in this turn: in a loop `3/pay#1` is what turn 3 calls `pay#1`."""
    own = key.removeprefix(f"{hot.turn}/") if hot.turn else key
    return own if own in hot.steps or own in hot.waits or own in hot.approvals else key


def signal(name: str, value: Any, by: str) -> Decide:
    """Something happened that the task may wait for, now or later. One that waits for other things goes on waiting."""
    packed = codec.pack(value, "the signal's value")

    def decide(hot: Hot) -> Sequence[Event]:
        awaited = any(wait.kind == "signal" and wait.name == name for wait in hot.waits.values())
        other = hot.summary.status == "waiting" and not awaited
        return (ev.SignalReceived(name=name, value=packed, by=by, unawaited=other),)

    return decide


def answer(question: str, value: Any, by: str, why: str) -> Decide:
    """End a wait for a person, named by its key or by its only question."""
    packed = codec.pack(value, "the answer")

    def decide(hot: Hot) -> Sequence[Event]:
        asked = {key: wait for key, wait in hot.waits.items() if wait.kind == "person"}
        named = here(hot, question)
        keys = [named] if named in asked else [key for key, wait in asked.items() if wait.name == question]
        if hot.ended:
            raise TaskFinished(hot.summary.id, hot.summary.status, "app.answer")
        if len(keys) != 1:
            wrong = f"{question!r} may be one of {keys}" if keys else f"nobody asked {question!r}"
            still = f"open questions: {', '.join(sorted(asked)) or 'none'}"
            raise InvalidEvent(wrong, hint=_other_verb(hot, question) or still)
        return (ev.WaitEnded(key=keys[0], value=packed, by=by, why=why),)

    return decide


def _other_verb(hot: Hot, name: str) -> str:
    """What ends the wait that somebody took for a question; empty if there is none of that name."""
    key = here(hot, name)
    for one in hot.approvals.values():
        if one.status == "asked" and (one.key == key or name in (one.tool, one.name)):
            return f"it waits for consent: app.approve(id, {one.key!r}) or app.reject(id, {one.key!r})"
    for wait in hot.waits.values():
        if wait.kind == "signal" and (wait.key == key or wait.name == name):
            return f"it waits for a signal: app.signal(id, {wait.name!r}, value)"
    for step in hot.steps.values():
        if step.status == "doubt" and (step.key == key or name in (step.tool, step.name)):
            return f"it is in doubt: app.settle(id, {step.key!r}, happened=…)"
    return ""


def settle(call: str, happened: bool, result: Any, by: str, why: str) -> Decide:
    """Say whether a call in doubt happened."""
    packed = codec.pack(result, "the result") if happened else UNSET

    def decide(hot: Hot) -> Sequence[Event]:
        key = here(hot, call)
        step = hot.steps.get(key)
        if step is None or step.status != "doubt":
            doubts = [one.key for one in hot.steps.values() if one.status == "doubt"]
            raise InvalidEvent(f"call {call!r} is not in doubt", hint=f"in doubt: {', '.join(doubts) or 'none'}")
        return (ev.StepSettled(key=key, happened=happened, result=packed, by=by, why=why),)

    return decide


def patch(
    logs: Logs, id: str, changes: Changes, expect: int | None, by: str, why: str, agents: Mapping[str, Agent]
) -> Decide:
    """Change what an agent knows. What others changed since `expect` must go together with it."""

    def decide(hot: Hot) -> Sequence[Event]:
        if expect is not None and expect < hot.seq:
            rows = logs.rows(id, after=expect, upto=hot.seq)
            found = merge.first_clash(changes, (decoded(log, row) for log, row in rows))
            if found is not None:
                raise _patch_conflict(logs, id, expect, *found)
        elif expect is not None and expect > hot.seq:
            raise SeqOutOfRange(id, expect, hot.seq)
        events = admitted(logs, hot, ev.StatePatched(patch=changes, by=by, why=why), agents)
        _refuse_migrating(logs, hot, events)
        return events

    return decide


def admitted(logs: Logs, hot: Hot, event: ev.StatePatched, agents: Mapping[str, Agent]) -> Sequence[Event]:
    """A patch, if it fits the state that the task's agent declares; an agent nobody knows here meets it later."""
    agent = None if hot.block else agents.get(hot.summary.agent)
    if agent is None or agent.states is None:
        return (event,)
    from holdfast.engine.verbs import typed_bag

    return typed_bag.admitted(agent.states, hot, event, logs.blob)


def _refuse_migrating(logs: Logs, hot: Hot, events: Sequence[Event]) -> None:
    """An agent at work reads the version it knows; it would not know a newer one."""
    holder = hot.summary.holder
    if len(events) > 1 and hot.state_version and holder is not None and logs.store.alive(holder):
        raise StateNotMigrated(
            f"is of version {hot.state_version}, and an agent of that version is at work on it; nothing was written",
            hint="patch it when the task waits or has ended, or with the older agent",
            found=hot.state_version,
        )


def _patch_conflict(logs: Logs, id: str, expect: int, mine: merge.Touch, theirs: merge.Touch) -> PatchConflict:
    section, _, name = mine.path.partition(".")
    known = logs.load(id, upto=expect).state
    base: Any = None
    if section == "state" and name in known.bag:
        base = codec.unpack(known.bag[name], logs.blob)
    elif section == "facts" and name in known.facts:
        base = codec.unpack(known.facts[name].value, logs.blob)
    elif section == "plan":
        base = [step.text for step in known.plan]
    shown = [f"{one.how} {one.value.decode()[:80]}".strip() for one in (mine, theirs)]
    return PatchConflict(id, mine.path, base=base, mine=shown[0], theirs=shown[1])


def freed_by_settling(call: str, happened: bool) -> Frees:
    """A call that did not happen gives its unique key back."""

    def frees(hot: Hot) -> tuple[str, ...]:
        step = hot.steps.get(here(hot, call))
        return (step.unique,) if step is not None and step.unique and not happened else ()

    return frees


def approval(call: str, given: bool, by: str, why: str, until_us: int | None = None) -> Decide:
    """Consent to a call, or refuse it; the call is named by its key, or by its tool if only one is asked for."""

    def decide(hot: Hot) -> Sequence[Event]:
        key = _asked(hot, call)
        known = hot.approvals.get(key)
        bound = "" if known is None else known.bound
        if given:
            return (ev.ApprovalGiven(key=key, bound=bound, by=by, why=why, until_us=until_us),)
        return (ev.ApprovalRefused(key=key, bound=bound, by=by, why=why),)

    return decide


def _asked(hot: Hot, call: str) -> str:
    if here(hot, call) in hot.approvals:
        return here(hot, call)
    named = [one for one in hot.approvals.values() if call in (one.tool, one.name)]
    open = [one.key for one in named if one.status == "asked"]
    if len(open) > 1:
        raise InvalidEvent(f"{call!r} may be one of {open}", hint="name the call by its key")
    return open[0] if open else named[-1].key if named else call


def observed(event: ev.StepCompleted | ev.StepFailed, holder: str) -> ev.StepObserved:
    """A result that came too late to be one."""
    if isinstance(event, ev.StepFailed):
        return ev.StepObserved(key=event.key, failure=event.failure, holder=holder)
    return ev.StepObserved(key=event.key, result=event.result, holder=holder)


def keep_late(logs: Logs, id: str, events: Sequence[Event]) -> None:
    """Results that came too late are kept as observations, if that is possible, and used by nobody."""
    done = [one for one in events if isinstance(one, ev.StepCompleted | ev.StepFailed)]
    late = [observed(one, logs.store.holder()) for one in done]
    with contextlib.suppress(HoldfastError):
        if late:
            change(logs, id, lambda hot: late)


def taken(hot: Hot, rows: Sequence[Stored]) -> LeaseLost | Diverged | None:
    """Why whoever held a task holds it no more, if what others wrote says so; `hot` is the state after it."""
    if any(row.kind == "task_diverged" for row in rows):
        try:
            rules.refuse_diverged(hot)
        except Diverged as error:
            return error
    fence = next((row for row in rows if row.kind in ("task_claimed", "rolled_back", "task_diverged")), None)
    return None if fence is None else LeaseLost(f"task {hot.summary.id!r} was taken over at seq {fence.seq}")


def observe(logs: Logs, id: str, key: str, result: Raw | None, failure: ev.Failure | None) -> None:
    """Keep an answer nobody waited for any more. If even that is not possible, it is as if it had never come."""
    late = ev.StepObserved(key=key, result=UNSET if result is None else result, failure=failure)
    with contextlib.suppress(HoldfastError):
        change(logs, id, lambda hot: (late,))


def step_of(logs: Logs, id: str, key: str) -> Step | None:
    """A step of any task, by the key it has seen from outside."""
    try:
        return timeline.raw_step(logs, id, key)
    except StepNotFound:
        return None


def kept_step(logs: Logs, id: str, unique: str) -> Step | None:
    """A call that a rollback voided, by its unique key: the world has seen it."""
    return next((one for one in logs.load(id).state.kept.values() if one.unique == unique), None)


def child_ended(logs: Logs, parent: str, child: str, ending: Event) -> tuple[Write, ...]:
    """What to write to the parent's log in the same group as a child's end; nothing if it no longer waits."""
    try:
        log = logs.load(parent)
    except TaskCollected:
        return ()
    key = next((wait.key for wait in log.state.waits.values() if wait.kind == "child" and wait.name == child), None)
    if key is None or log.state.ended:
        return ()
    match ending:
        case ev.TaskCompleted():
            ended = ev.WaitEnded(key=key, value=ending.result)
        case ev.TaskFailed():
            ended = ev.WaitEnded(key=key, failure=ending.failure)
        case _:
            failure = ev.Failure("Cancelled", f"task {child!r} was cancelled", code="cancelled")
            ended = ev.WaitEnded(key=key, failure=failure)
    return (log.draft([ended]),)


def raise_budget(logs: Logs, id: str, given: Limits, by: str, why: str) -> Log:
    """Allow a task more, and let its children that wait for that look again."""

    def decide(hot: Hot) -> Sequence[Event]:
        before = {} if hot.budget is None else dict(budget.allowed(hot.budget))
        wanted = dict(budget.allowed(given))
        lower = next((name for name, most in wanted.items() if most <= before.get(name, 0)), None)
        if lower is not None or not (wanted or given.artifact_bytes):
            told = f"{lower}={wanted[lower]:g} is not above {before[lower]:g}" if lower else "no limit is named"
            raise InvalidValue(f"this raises nothing: {told}", hint="name a limit and a number above the present one")
        return (ev.BudgetRaised(limits=given, by=by, why=why),)

    log = change(logs, id, decide)
    _look_again(logs, log.state, by)
    return log


def _look_again(logs: Logs, hot: Hot, by: str) -> None:
    for wait in hot.waits.values():
        if wait.kind == "child" and logs.store.origin(wait.name) is not None:
            child = logs.load(wait.name).state
            if child.summary.waiting == "budget":
                change(logs, wait.name, lambda hot: (ev.BudgetRaised(by=by, why="somebody who pays was allowed more"),))
            _look_again(logs, child, by)


def child_again(logs: Logs, parent: str, child: str) -> None:
    """A parent that was reopened waits for a child that has ended before: a failed one goes on, others tell again."""
    state = logs.load(child).state
    waits = logs.load(parent).state.waits.values()
    if not state.ended or not any(wait.kind == "child" and wait.name == child for wait in waits):
        return
    if state.summary.status == "failed" and not state.undoing:
        change(logs, child, reopen("", "its parent goes on"))
        return
    result = codec.JSON_NULL if state.result is UNSET else state.result
    failed = state.failure or ev.Failure("Cancelled", f"task {child!r} was cancelled", code="cancelled")
    done = state.summary.status == "completed"
    ending = ev.TaskCompleted(result=result) if done else ev.TaskFailed(failure=failed)
    writes = child_ended(logs, parent, child, ending)
    if writes:
        with contextlib.suppress(Conflict):  # somebody else told it
            logs.committer.commit(Group(writes))


def cancel(by: str, why: str, *, alone: bool = True) -> Decide:
    """Ask a task to stop. One that nobody holds stops at once, unless it has children that still do something."""

    def decide(hot: Hot) -> Sequence[Event]:
        asked = ev.CancelRequested(by=by, why=why)
        open_calls = any(step.unsettled for step in hot.steps.values())
        at_rest = hot.summary.status in ("pending", "waiting") and not open_calls and not hot.undo and alone
        return (asked, ev.TaskCancelled(by=by, why=why)) if at_rest else (asked,)

    return decide


def reopen(by: str, why: str, deadline_us: int | None = None) -> Decide:
    """Let a failed task go on: the step that ended it is tried afresh."""

    def decide(hot: Hot) -> Sequence[Event]:
        failed = [step for step in hot.steps.values() if step.status == "failed"]
        void = hot.failed_step if any(step.key == hot.failed_step for step in failed) else ""
        return (ev.TaskReopened(void=void, by=by, why=why, deadline_us=deadline_us),)

    return decide
