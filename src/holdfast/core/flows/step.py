"""Steps and calls as generators. A flow yields what it needs of the world and is sent the answer: it never acts itself.

Two drivers answer the same flows, one for `def` agents and one for `async def` ones, so no rule is written twice.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import Take, failures
from holdfast.core.errors import (
    ApprovalDenied,
    Cancelled,
    EffectConflict,
    KeyTaken,
    NoMock,
    NotDone,
    NotRecorded,
    StepChanged,
    StepFailed,
    Stopped,
    TaskFinished,
    TimeLimit,
)
from holdfast.core.events import Event, Fields
from holdfast.core.flows.doubt import settle, until
from holdfast.core.flows.requests import (
    Act,
    Branch,
    Desk,
    Flow,
    Now,
    Outcome,
    Owned,
    Owner,
    Park,
    Part,
    Recall,
    Record,
    Transact,
    Want,
)
from holdfast.core.flows.spending import within_budget
from holdfast.core.state.fold import address
from holdfast.core.state.shapes import ENDED, Hot, Step


def step(desk: Desk, branch: Branch, want: Want) -> Flow:
    """Do something once: the recorded result if there is one, else the function, its retries, its record."""
    key = branch.key(want.name)
    if want.effect == "once":
        desk.called[key] = want  # whoever has to settle it later needs to know how
    while True:
        hot = desk.hot
        known = hot.steps_of(branch.turn).get(key)
        if known is not None and known.done:
            if _changed(known, want):
                yield Record((ev.StepVoided(key=key, why="its input changed"),), decided=True)
                continue
            return found(hot, branch, known)
        if want.effect == "once" and known is not None and known.status in ("running", "doubt"):
            yield from settle(desk, known, want)
            continue
        refuse_to_begin(desk, hot, branch, key)
        if hot.summary.deadline_us is not None:
            yield from before_deadline(hot)
        if hot.budget is not None or hot.payers:
            yield from within_budget(desk, key, want)
        if want.tool and (yield from _answered_elsewhere(desk, key, known, want)):
            desk.underway.pop(key, None)
            continue
        attempt = 1
        if known is not None and known.status == "retrying":
            yield from until(known.retry_us)
            yield from may_begin(desk, branch, key)
            attempt = known.attempts + 1
        try:
            if want.tool:
                result = yield from _attempt(desk, key, attempt, known, want)
            else:
                result = yield from _plain_attempt(key, attempt, want)
        finally:
            if desk.underway:
                desk.underway.pop(key, None)
        if result is not None:
            branch.last = (key, result)
            return result


def found(hot: Hot, branch: Branch, known: Step) -> Raw:
    """What a recorded step gave, from the first time on; the branch sees as far as that."""
    if not known.behind:
        branch.see(hot.joined(known.last_seq) if hot.forked_from else known.last_seq)
    if known.status == "failed":
        if hot.cancel is not None and known.failure is not None and known.failure.code == "cancelled":
            raise Cancelled  # a child that was cancelled with its parent
        raise _failed(known)
    branch.last = (known.key, known.result)
    return known.result


def _answered_elsewhere(desk: Desk, key: str, known: Step | None, want: Want) -> Part:
    """Whether the call need not, or may not, be made now: rolled back, only replayed, or not approved yet."""
    hot = desk.hot
    kept = hot.kept.get(idempotency_key(hot, key, want)) if known is None and hot.kept else None
    if kept is not None:
        yield Record(_again(key, kept, want, f"{kept.key} before the rollback"), decided=True)
        return True
    if hot.effects == "recorded":
        return (yield from _replayed(desk, key, want))
    if hot.mock and want.mock is UNSET:
        raise NoMock(want.tool, key)
    unsure_upto = -1 if hot.divergence is None else hot.divergence.unsure_upto
    if known is None and hot.turn <= unsure_upto and want.effect == "once" and not hot.mock:
        return (yield from _doubted(desk, key, want))
    forked = hot.effects == "ask" and want.effect == "once" and not hot.mock
    if want.approval or (want.risk and want.risk in hot.risks) or forked:
        return not (yield from _approved(desk, key, want))
    return False


def _attempt(desk: Desk, key: str, attempt: int, known: Step | None, want: Want) -> Part:
    """One try: announced if it cannot be repeated, then made, then recorded. Gives what was recorded behind."""
    same = _identity(desk.hot, key, known, want)
    if not (yield from _announced(desk, same, attempt, want)):
        return None
    act = Act(key, want, attempt, same["idempotency_key"])
    ended: dict[str, Any] = {**same, "attempts": attempt}
    if desk.hot.mock:
        ended["source"] = "mock"

    def completed(outcome: Outcome) -> Event:
        assert outcome.value is not None
        undo = "" if want.effect == "once" else want.undo
        given: dict[str, Any] = {**ended, "started_us": outcome.started_us, "usage": outcome.usage}
        return ev.StepCompleted(**given, result=outcome.value, undo=undo)

    if want.effect == "transaction" and not desk.hot.mock:
        outcome: Outcome | None = yield Transact(act, completed)
        if outcome is None or outcome.value is not None:
            return None
    else:
        outcome = yield act
    assert outcome is not None
    if outcome.value is not None:
        behind = want.effect in ("read", "idempotent") and not want.unique
        answer = yield Record((completed(outcome),), behind=behind)
        return outcome.value if answer == "behind" else None
    if outcome.timed_out and want.effect == "once":
        yield Record((ev.StepDoubted(key=key, why="no answer in time"),))
        return None
    assert outcome.error is not None
    yield from _after_failure(outcome.error, {**ended, "usage": outcome.usage, "started_us": outcome.started_us}, want)
    return None


def _identity(hot: Hot, key: str, known: Step | None, want: Want) -> dict[str, Any]:
    """What every event about a call says of it. A call that is known keeps its key."""
    inherited = known is not None and codec.same_fields(known.input, want.input) and known.idempotency_key
    same: dict[str, Any] = {"key": key, "name": want.name, "input": want.input, "tool": want.tool}
    return same | {"effect": want.effect, "idempotency_key": inherited or idempotency_key(hot, key, want)}


def _doubted(desk: Desk, key: str, want: Want) -> Part:
    """The log has lost events, perhaps those of this very call: it is not made before that is settled."""
    if (yield from _announced(desk, _identity(desk.hot, key, None, want), 1, want)):
        yield Record((ev.StepDoubted(key=key, why="the log lost events, perhaps those of this call"),), decided=True)
    return True


def _plain_attempt(key: str, attempt: int, want: Want) -> Part:
    """One try of a plain step, which is nothing but done and recorded."""
    if want.estimate is not None:
        given: dict[str, Any] = {"key": key, "name": want.name, "input": want.input, "attempt": attempt}
        if not (yield Record((ev.StepStarted(**given, estimate=want.estimate),), decided=True)):
            return None
    outcome: Outcome = yield Act(key, want, attempt)
    if outcome.value is not None:
        done = ev.StepCompleted(
            key=key,
            name=want.name,
            input=want.input,
            attempts=attempt,
            started_us=outcome.started_us,
            result=outcome.value,
            usage=outcome.usage,
        )
        behind = yield Record((done,), behind=True)
        return outcome.value if behind == "behind" else None
    assert outcome.error is not None
    ended: dict[str, Any] = {"key": key, "name": want.name, "input": want.input, "attempts": attempt}
    ended |= {"usage": outcome.usage, "started_us": outcome.started_us}
    yield from _after_failure(outcome.error, ended, want)
    return None


def _announced(desk: Desk, same: dict[str, Any], attempt: int, want: Want) -> Part:
    """Make sure that everything is durable before a call begins, and that a call made once only is announced."""
    if want.effect != "once" and not want.unique:
        if want.effect != "read" and desk.unwritten:
            yield Record()
        return True
    event = ev.StepStarted(**same, attempt=attempt, unique=want.unique, risk=want.risk, undo=want.undo)
    if not want.unique:
        return (yield Record((event,), decided=True))
    place = _place(desk.hot, same["key"])
    takes = (Take(want.unique, desk.hot.summary.id, place, _fingerprint(want)),)
    answer = yield Record((event,), decided=True, takes=takes)
    if isinstance(answer, KeyTaken):
        if not (yield from _owner_is_gone(desk, place, same, want)):
            return False
        answer = yield Record((event,), decided=True, takes=takes, frees=(want.unique,))
    return answer is True


def _owner_is_gone(desk: Desk, place: str, same: dict[str, Any], want: Want) -> Part:
    """Somebody has the unique key: True if it is free to take after all, else their outcome is ours, or we wait."""
    owned: Owned | None = yield Owner(want.unique)
    if owned is None:
        return True
    owner = f"step {owned.take.step!r} of task {owned.take.log!r}"
    if owned.take.input_hash != _fingerprint(want):
        raise EffectConflict(want.unique, owner, "which has other arguments")
    if (owned.take.log, owned.take.step) == (desk.hot.summary.id, place):
        return True
    if owned.gone:
        raise EffectConflict(want.unique, owner, "which was removed with its result")
    if owned.step is None or owned.step.status == "void":
        return True
    if owned.step.done:
        source = f"{owned.take.log}/{owned.take.step}"
        yield Record(_again(same["key"], owned.step, want, source), decided=True)
    else:
        yield from _wait_for_owner(want.unique)
    return False


def _wait_for_owner(unique: str) -> Part:
    """The other call is under way, or in doubt. Look again soon, then less often; then the task waits for it."""
    begun_us: int = yield Now()
    now_us, pause_us = begun_us, limits.UNIQUE_POLL_US
    while True:
        yield from until(now_us + pause_us)
        owned: Owned | None = yield Owner(unique)
        if owned is None or owned.step is None or not owned.step.open:
            return
        now_us = yield Now()
        if owned.step.status == "doubt" or now_us - begun_us > limits.UNIQUE_WAIT_US:
            yield Park("doubt", now_us + limits.UNIQUE_WAIT_US)
            return
        pause_us = min(2 * pause_us, 20 * limits.UNIQUE_POLL_US)


def _after_failure(error: Exception, ended: dict[str, Any], want: Want) -> Part:
    """Record that a try failed, and whether another one is due. What is sure not to be done frees its key."""
    failure = failures.failure(error, secrets=want.secrets)
    frees = (want.unique,) if want.unique and isinstance(error, NotDone) else ()
    attempt: int = ended["attempts"]
    if attempt < want.retry.attempts and _may_repeat(error, want):
        now_us: int = yield Now()
        retry_us = now_us + int(want.retry.delay(attempt, (now_us % 1009) / 1009) * 1_000_000)
        same = ("key", "name", "input", "tool", "effect", "idempotency_key", "usage")
        tried: dict[str, Any] = {name: ended[name] for name in same if name in ended}
        tried["attempt"] = attempt
        yield Record((ev.AttemptFailed(**tried, failure=failure, retry_us=retry_us),), frees=frees)
    else:
        safe = want.effect == "once" and _may_repeat(error, want)
        yield Record((ev.StepFailed(**ended, failure=failure, safe=safe),), frees=frees)


def _again(key: str, known: Step, want: Want, source: str) -> tuple[Event, ...]:
    """An outcome the world has seen already: the call is not made again, its outcome is recorded again."""
    same: dict[str, Any] = {"key": key, "name": want.name, "tool": want.tool, "effect": want.effect, "source": source}
    same |= {"input": want.input, "idempotency_key": known.idempotency_key, "attempts": known.attempts}
    if known.failure is not None:
        return (ev.StepFailed(**same, failure=known.failure),)
    return (ev.StepCompleted(**same, result=known.result),)


def _replayed(desk: Desk, key: str, want: Want) -> Part:
    """A fork that touches nothing: what the parent's log says, else the tool's mock."""
    theirs: Step | None = yield Recall(key)
    parent = desk.hot.forked_from
    if theirs is not None and theirs.done and codec.same_fields(theirs.input, want.input):
        yield Record(_again(key, theirs, want, f"{parent}/{key}"), decided=True)
    elif want.mock is not UNSET:
        outcome: Outcome = yield Act(key, want, 1, idempotency_key(desk.hot, key, want))
        same: dict[str, Any] = {"key": key, "name": want.name, "tool": want.tool, "effect": want.effect}
        same |= {"input": want.input, "source": "mock"}
        if outcome.value is not None:
            yield Record((ev.StepCompleted(**same, result=outcome.value),))
        else:
            assert outcome.error is not None
            yield Record((ev.StepFailed(**same, failure=failures.failure(outcome.error)),))
    else:
        raise NotRecorded(key, parent)
    return True


# Approvals


def _approved(desk: Desk, key: str, want: Want) -> Part:
    """Whether a person has agreed to exactly this call. Asks, waits, and takes no for an answer."""
    bound = idempotency_key(desk.hot, key, want)
    known = desk.hot.approvals.get(key)
    now_us: int = yield Now()
    if known is not None and known.bound == bound:
        if known.status == "used" or (known.status == "given" and (known.until_us is None or now_us < known.until_us)):
            return True
        if known.status == "refused":
            who = f"{known.by} refused" if known.by else "nobody approved it"
            failure = ev.Failure(
                "ApprovalDenied", f"{who}{': ' if known.why else ''}{known.why}", code="approval-denied"
            )
            same: dict[str, Any] = {"key": key, "name": want.name, "tool": want.tool, "input": want.input}
            yield Record((ev.StepFailed(**same, failure=failure, attempts=0),), decided=True)
            return False
        if known.status == "asked":
            yield from person_answers(desk, key, known.wake_us, now_us)
            return False
    wake_us = None if want.approval_seconds is None else now_us + int(want.approval_seconds * 1_000_000)
    asked: dict[str, Any] = {"key": key, "name": want.name, "bound": bound, "tool": want.tool, "risk": want.risk}
    yield Record((ev.ApprovalAsked(**asked, input=want.input, wake_us=wake_us),), decided=True)
    return False


def person_answers(desk: Desk, key: str, wake_us: int | None, now_us: int) -> Part:
    """Wait for a person's consent; silence until the time is up is a no."""
    if wake_us is not None and now_us >= wake_us:
        late = ev.ApprovalRefused(key=key, why="nobody answered in time", expired=True)
        yield Record((late,), decided=True)
    else:
        yield from may_begin(desk, None, key)
        yield Park("person", earliest(wake_us, desk.hot.summary.deadline_us))


# What all flows share


def may_begin(desk: Desk, branch: Branch | None, key: str) -> Part:
    """Refuse to begin anything once the task has ended or was cancelled, is being undone, or after its deadline."""
    refuse_to_begin(desk, desk.hot, branch, key)
    yield from before_deadline(desk.hot)


def refuse_to_begin(desk: Desk, hot: Hot, branch: Branch | None, key: str) -> None:
    """Refuse what needs no look at the clock."""
    if hot.summary.status in ENDED:
        raise TaskFinished(hot.summary.id, hot.summary.status, f"step {key!r}")
    if desk.stop.asked:
        raise Stopped
    if (hot.cancel is not None or hot.undoing) and (branch is None or not branch.path.startswith("~undo")):
        raise Cancelled
    if branch is not None and branch.turn != hot.turn:
        raise StepChanged(key, "nothing before the first turn", f"a new step in turn {hot.turn}")


def before_deadline(hot: Hot) -> Part:
    """Refuse what comes after the deadline."""
    deadline_us = hot.summary.deadline_us
    if deadline_us is not None and not hot.undoing:
        now_us: int = yield Now()
        if now_us >= deadline_us:
            raise TimeLimit(f"the deadline of task {hot.summary.id!r} has passed", hint="resume it with a new one")


def earliest(*times: int | None) -> int | None:
    """The first of some times, if there is any."""
    return min((one for one in times if one is not None), default=None)


def idempotency_key(hot: Hot, key: str, want: Want) -> str:
    """A key that stays the same however often a call is tried: task, step, tool and arguments."""
    if not want.tool:
        return ""
    return f"{hot.summary.id}:{_place(hot, key)}:{want.tool}:{_fingerprint(want)[:16]}"


def _place(hot: Hot, key: str) -> str:
    return address(hot.turn, key) if hot.turn else key


def _fingerprint(want: Want) -> str:
    return codec.fingerprint(want.input)


def _changed(known: Step, want: Want) -> bool:
    """Whether a recorded step must be done again, because it was another one."""
    if codec.same_fields(known.input, want.input) or want.on_change == "keep":
        return False
    if want.on_change == "rerun":
        return True
    raise StepChanged(known.key, _shown(known.input), _shown(want.input))


def _shown(input: Fields) -> str:
    text = ", ".join(f"{name}={bytes(raw).decode()[:60]}" for name, raw in input.items())
    return f"({text})"


def _failed(step: Step) -> StepFailed:
    failure = step.failure
    assert failure is not None
    if failure.code == ApprovalDenied.code:
        return ApprovalDenied(step.key, failure.message)
    return StepFailed(step.key, step.attempts, failure.type, failure.message)


def _may_repeat(error: Exception, want: Want) -> bool:
    if isinstance(error, NotDone):
        return True
    return isinstance(error, want.retry_on) if want.effect == "once" else isinstance(error, want.retry_on or Exception)
