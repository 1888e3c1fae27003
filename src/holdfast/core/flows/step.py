"""Steps and calls as generators. A flow yields what it needs of the world and is sent the answer: it never acts itself.

Two drivers answer the same flows, one for `def` agents and one for `async def` ones, so no rule is written twice.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw

from holdfast.core import codec, events as ev, limits, names, retries
from holdfast.core.codec import UniqueKey, failures
from holdfast.core.errors import (
    ApprovalDenied,
    Cancelled,
    EffectConflict,
    KeyTaken,
    NoMock,
    NotDone,
    NotRecorded,
    ReplayDiverged,
    StepChanged,
    StepFailed,
)
from holdfast.core.events import ANNOUNCED, CHANGING, REPEATABLE, TRANSACTIONAL, Event, Fields, Usage
from holdfast.core.flows.doubt import missed, not_happened, settle, until
from holdfast.core.flows.identity import fingerprint, idempotency_key, known_by, place_of
from holdfast.core.flows.pacing import Turn, at_its_rate, next_attempt
from holdfast.core.flows.requests import (
    Append,
    AwaitCall,
    AwaitReplay,
    Branch,
    CheckResult,
    FindOwner,
    Flow,
    Invoke,
    KeyOwner,
    Now,
    Outcome,
    Park,
    Recall,
    Sleep,
    StepRequest,
    Subflow,
    Surroundings,
    Transact,
)
from holdfast.core.flows.spending import within_budget
from holdfast.core.flows.stops import earliest, ends_us, in_time, is_limited, may_begin, out_of_time, refuse_to_begin
from holdfast.core.state.shapes import State, Step


def step(surroundings: Surroundings, branch: Branch, request: StepRequest) -> Flow:
    """Do something once: the recorded result if there is one, else the function, its retries, its record."""
    key = request.key or branch.key(request.name)
    turn: Turn | None = None
    if request.effect in ANNOUNCED:
        surroundings.called[key] = request  # settling it later needs it
    while True:
        state = surroundings.state
        known = state.steps_of(branch.turn).get(key)
        if surroundings.replaying:
            surroundings.claim(key)
            if known is None:
                yield from after_others(surroundings, key, request.on_change)
        if known is not None and known.done:
            if _changed(known, request):
                yield Append((ev.StepVoided(key=key, why="its input changed"),), decided=True)
                continue
            if known.settled and (yield from _doubted_again(known, request)):
                continue
            return recorded_result(state, branch, known)
        if request.key and surroundings.calls.is_live(key):
            yield AwaitCall(key)  # the same key in two branches: one of them does it, both get its outcome
            continue
        if request.effect in ANNOUNCED and known is not None and known.status in ("running", "doubt"):
            yield from settle(surroundings, known, request)
            continue
        if known is not None and known.raised is not None and known.status == "void":
            yield from _definite_failure(known, request)  # it was settled: the call did not happen
            continue
        refuse_to_begin(surroundings, state, branch, key)
        limited = state.summary.deadline_us is not None or state.budget is not None or state.payers
        if (limited or request.tool) and (yield from _not_now(surroundings, key, known, request)):
            surroundings.underway.pop(key, None)
            continue
        attempt = 1
        if known is not None and known.status == "retrying":
            attempt = yield from _next_attempt(surroundings, branch, known)
        if request.rate and not (turn := (yield from at_its_rate(surroundings, key, attempt, request, turn))).has_come:
            continue
        try:
            if request.tool:
                result = yield from _attempt(surroundings, key, attempt, known, request, turn)
            else:
                result = yield from _plain_attempt(surroundings, key, attempt, request)
        finally:
            if surroundings.underway:
                surroundings.underway.pop(key, None)
        if result is not None:
            branch.last = (key, result)
            return result


def _next_attempt(surroundings: Surroundings, branch: Branch, known: Step) -> Subflow:
    """Wait until the next attempt is due; gives its number."""
    yield from _back_off(surroundings, branch, known)
    return known.attempts + 1


def after_others(surroundings: Surroundings, key: str, on_change: str) -> Subflow:
    """Let a new step wait until other branches have come back to their recorded ones.

    A step of that name that was not reached again would be done again under another key: ReplayDiverged.
    """
    name = names.own_name(key)
    yield AwaitReplay(name)
    left = [one for one in surroundings.unclaimed if names.own_name(one) == name]
    if left and on_change != "rerun":
        raise ReplayDiverged(key, min(left))


def _not_now(surroundings: Surroundings, key: str, known: Step | None, request: StepRequest) -> Subflow:
    """Return the decision that ends the step early: refuse it, wait for others, or take an outcome they have."""
    state = surroundings.state
    if is_limited(state):
        yield from in_time(surroundings)
    if state.budget is not None or state.payers:
        yield from within_budget(surroundings, key, request)
    if request.effect in ANNOUNCED:
        if state.maybe_done and (yield from _known_to_be_unsure(state, key, request)):
            return True
        if surroundings.calls.any and (yield from _after_one_like_it(surroundings, key, request)):
            return True
    return bool(request.tool) and (yield from _answered_elsewhere(surroundings, key, known, request))


def _back_off(surroundings: Surroundings, branch: Branch, known: Step) -> Subflow:
    """Let time pass before the next attempt. The end of the task's time, or a cancel, cuts it short."""
    while (yield Now()) < known.retry_us:
        state = surroundings.state
        until_us = earliest(known.retry_us, state.summary.deadline_us) or known.retry_us
        yield Sleep(until_us, ends_us=ends_us(state))
        yield from may_begin(surroundings, branch, known.key)


def _after_one_like_it(surroundings: Surroundings, key: str, request: StepRequest) -> Subflow:
    """Return whether a call of the same tool with the same arguments is open in the task: that one is settled first.

    One that its branch left behind, as `asyncio.wait_for` does, answers for this one if it happened.
    """
    live = surroundings.calls.like(key, request)
    if live is not None:
        yield AwaitCall(live)
        return True
    found = (surroundings.state.steps.get(one) for one in surroundings.calls.not_over() if one != key)
    same = (one for one in found if one is not None and one.unsettled and one.tool == request.tool)
    other = next((one for one in same if codec.same_fields(one.input, request.input)), None)
    if other is None:
        return False
    yield from settle(surroundings, other, surroundings.called.get(other.key, request))
    settled = surroundings.state.steps.get(other.key)
    if settled is not None and settled.done and surroundings.calls.is_left_behind(other.key):
        yield Append(_again(key, settled, request, other.key), decided=True)
    return True


def _doubted_again(known: Step, request: StepRequest) -> Subflow:
    """Return whether a call was settled with a result that its tool can't have: then it is in doubt again."""
    wrong: str = "" if known.status == "failed" else (yield CheckResult(known.result, request))
    if not wrong:
        return False
    why = f"it was settled as happened, but {wrong}"
    yield Append((ev.StepDoubted(key=known.key, why=why),), decided=True)
    return True


def recorded_result(state: State, branch: Branch, known: Step) -> Raw:
    """Return the result of a recorded step. The branch has then seen up to the step's end."""
    if not known.deferred:
        branch.see(state.joined(known.last_seq) if state.forked_from else known.last_seq)
    if known.status == "failed":
        if state.cancel is not None and known.failure is not None and known.failure.code == "cancelled":
            raise Cancelled  # a child that was cancelled with its parent
        raise _failed(known)
    branch.last = (known.key, known.result)
    return known.result


def _known_to_be_unsure(state: State, key: str, request: StepRequest) -> Subflow:
    """Return whether the same call failed before in this task and may have happened: its outcome counts here too."""
    for one in state.maybe_done.values():
        if one.tool == request.tool and codec.same_fields(one.input, request.input):
            yield Append(_again(key, one, request, one.key), decided=True)
            return True
    return False


def _answered_elsewhere(surroundings: Surroundings, key: str, known: Step | None, request: StepRequest) -> Subflow:
    """Return whether the call need not, or may not, be made now: rolled back, only replayed, or not approved yet."""
    state = surroundings.state
    kept = state.kept.get(idempotency_key(state, key, request)) if known is None and state.kept else None
    if kept is not None:
        yield Append(_again(key, kept, request, f"{kept.key} before the rollback"), decided=True)
        return True
    if state.effects == "recorded":
        return (yield from _replayed(surroundings, key, request))
    if state.mock and request.mock is UNSET:
        raise NoMock(request.tool, key)
    unsure_upto = -1 if state.divergence is None else state.divergence.unsure_upto
    if known is None and state.turn <= unsure_upto and request.effect in ANNOUNCED and not state.mock:
        return (yield from _doubted(surroundings, key, request))
    forked = state.effects == "ask" and request.effect in ANNOUNCED and not state.mock
    if request.approval or (request.risk and request.risk in state.risks) or forked:
        return not (yield from _approved(surroundings, key, request))
    return False


def _attempt(
    surroundings: Surroundings, key: str, attempt: int, known: Step | None, request: StepRequest, turn: Turn | None
) -> Subflow:
    """Make one attempt: announce it if it can't be repeated, call, record. Return the value of a deferred record."""
    same = _identity(surroundings.state, key, known, request)
    is_kept = request.key or request.undo
    is_single = request.effect in ANNOUNCED or request.unique or is_kept
    left_behind = True
    try:
        if is_kept and not request.unique:
            surroundings.calls.begin(key, request)
        result = None
        if (yield from _announced(surroundings, same, attempt, request)):
            act = Invoke(key, request, attempt, same["idempotency_key"], turn.late_us if turn else 0)
            result = yield from _made(surroundings, same, act)
        left_behind = False
        return result
    finally:
        if is_single:
            surroundings.calls.end(key, left_behind=left_behind)


def _made(surroundings: Surroundings, same: dict[str, Any], act: Invoke) -> Subflow:
    """Make a call, and record what became of it. Return the value of a deferred record."""
    key, request = act.key, act.request
    ended: dict[str, Any] = {**same, "attempts": act.attempt}
    if surroundings.state.mock:
        ended["source"] = "mock"

    def completed(outcome: Outcome) -> Event:
        assert outcome.value is not None
        undo = "" if request.effect in ANNOUNCED else request.undo
        given: dict[str, Any] = {**ended, "started_us": outcome.started_us, "usage": outcome.usage}
        return ev.StepCompleted(**given, result=outcome.value, undo=undo)

    if request.effect in TRANSACTIONAL and not surroundings.state.mock:
        outcome: Outcome | None = yield Transact(act, completed)
        if outcome is None or outcome.value is not None:
            return None
    else:
        outcome = yield act
    assert outcome is not None
    if outcome.value is not None:
        freed_keys = (request.frees,) if request.frees else ()
        deferred = request.effect in REPEATABLE and not request.unique and not freed_keys
        answer = yield Append((completed(outcome),), freed_keys=freed_keys, deferred=deferred)
        return outcome.value if answer == "deferred" else None
    if outcome.missed:
        return (yield from missed(surroundings, act))
    assert outcome.error is not None
    if outcome.cut and (request.effect not in ANNOUNCED or not outcome.sent):
        yield from cut_off(surroundings, key, request, sent=outcome.sent)
    elif request.effect in ANNOUNCED and (outcome.timed_out or not is_definite(outcome, request)):
        yield from _doubt(key, outcome, request)
    else:
        ended |= {"usage": outcome.usage, "started_us": outcome.started_us, "output": outcome.output}
        yield from _after_failure(outcome.error, ended, request, sent=outcome.sent)
    return None


def cut_off(surroundings: Surroundings, key: str, request: StepRequest, *, sent: bool = True) -> Subflow:
    """Record of a call that was cut off with its task what it may have done, if that can be undone; else nothing.

    Without a record it is made again, should the task be resumed, as after a crash.
    """
    if request.effect in ANNOUNCED and not sent:
        yield not_happened(surroundings.state.steps[key], "its task, stopped before the call was made")
    if not (request.undo and request.effect in CHANGING and request.effect in REPEATABLE and sent):
        return
    now_us: int = yield Now()
    state = surroundings.state
    known = state.steps.get(key)
    over = Cancelled() if state.cancel is not None else out_of_time(state, now_us)
    if isinstance(over, BaseException) and (known is None or not known.done):
        same = _identity(state, key, known, request)
        told: dict[str, Any] = {"failure": failures.failure(over), "attempts": 1 if known is None else known.attempts}
        yield Append((ev.StepFailed(**same, **told, maybe_done=True, undo=request.undo),), decided=True)


def _doubt(key: str, outcome: Outcome, request: StepRequest) -> Subflow:
    """Record a call in doubt: it did not answer in time, or it raised."""
    if outcome.timed_out:
        now_us: int = yield Now()
        until_us = now_us + int(request.abandoned_after * 1_000_000) if outcome.abandoned else 0
        why = "no answer before its task was stopped" if outcome.cut else "no answer in time"
        yield Append((ev.StepDoubted(key=key, why=why, until_us=until_us),))
    else:
        assert outcome.error is not None
        failure = failures.failure(outcome.error, secrets=request.secrets)
        why = f"it raised {failure.type}, and may have happened"
        yield Append((ev.StepDoubted(key=key, why=why, failure=failure, usage=outcome.usage),))


def _identity(state: State, key: str, known: Step | None, request: StepRequest) -> dict[str, Any]:
    """Return the fields that every event about a call has. A known call keeps its key."""
    inherited = known is not None and codec.same_fields(known.input, request.input) and known.idempotency_key
    same: dict[str, Any] = {"key": key, "name": request.name, "input": request.input, "tool": request.tool}
    return same | {"effect": request.effect, "idempotency_key": inherited or idempotency_key(state, key, request)}


def _doubted(surroundings: Surroundings, key: str, request: StepRequest) -> Subflow:
    """The log has lost events, perhaps those of this very call: it is not made before that is settled."""
    if (yield from _announced(surroundings, _identity(surroundings.state, key, None, request), 1, request)):
        yield Append((ev.StepDoubted(key=key, why="the log lost events, perhaps those of this call"),), decided=True)
    return True


def _plain_attempt(surroundings: Surroundings, key: str, attempt: int, request: StepRequest) -> Subflow:
    """One try of a plain step, which is nothing but done and recorded."""
    if request.estimate is not None:
        given: dict[str, Any] = {"key": key, "name": request.name, "input": request.input, "attempt": attempt}
        if not (yield Append((ev.StepStarted(**given, estimate=request.estimate),), decided=True)):
            return None
    if request.key:
        surroundings.calls.begin(key, request)
    try:
        outcome: Outcome = yield Invoke(key, request, attempt)
        if outcome.value is not None:
            done = ev.StepCompleted(
                key=key,
                name=request.name,
                input=request.input,
                attempts=attempt,
                started_us=outcome.started_us,
                result=outcome.value,
                usage=outcome.usage,
            )
            answer = yield Append((done,), deferred=True)
            return outcome.value if answer == "deferred" else None
    finally:
        if request.key:
            surroundings.calls.end(key)
    if outcome.cut:
        return None
    assert outcome.error is not None
    ended: dict[str, Any] = {"key": key, "name": request.name, "input": request.input, "attempts": attempt}
    ended |= {"usage": outcome.usage, "started_us": outcome.started_us, "output": outcome.output}
    yield from _after_failure(outcome.error, ended, request)
    return None


def _announced(surroundings: Surroundings, same: dict[str, Any], attempt: int, request: StepRequest) -> Subflow:
    """Make sure that everything is durable before a call begins, and that a call made once only is announced."""
    if request.effect not in ANNOUNCED and not request.unique:
        if request.effect in CHANGING and surroundings.unwritten:
            yield Append()
        return True
    event = ev.StepStarted(**same, attempt=attempt, unique=request.unique, risk=request.risk, undo=request.undo)
    if not surroundings.calls.begin(event.key, request):  # before others can see the announcement
        return False
    if not request.unique:
        return (yield Append((event,), decided=True))
    place = place_of(surroundings.state, event.key)
    keys = (UniqueKey(request.unique, surroundings.state.summary.id, place, fingerprint(request)),)
    answer = yield Append((event,), decided=True, unique_keys=keys)
    if isinstance(answer, KeyTaken):
        surroundings.calls.end(event.key)
        if not (yield from _key_may_be_taken(surroundings, place, same, request)):
            return False
        if not surroundings.calls.begin(event.key, request):
            return False
        answer = yield Append((event,), decided=True, unique_keys=keys, freed_keys=(request.unique,))
    return answer is True


def _key_may_be_taken(surroundings: Surroundings, place: str, same: dict[str, Any], request: StepRequest) -> Subflow:
    """Handle a unique key that is taken: True if it is free after all, else take that call's outcome, or wait."""
    owned: KeyOwner | None = yield FindOwner(request.unique)
    if owned is None:
        return True
    owner = f"step {owned.take.step!r} of task {owned.take.log!r}"
    if owned.take.input_hash not in known_by(request):
        raise EffectConflict(request.unique, owner, "which has other arguments")
    if (owned.take.log, owned.take.step) == (surroundings.state.summary.id, place):
        return True
    if owned.gone:
        raise EffectConflict(request.unique, owner, "which was removed with its result")
    if owned.step is None or owned.step.status == "void":
        return True
    if owned.step.done:
        source = f"{owned.take.log}/{owned.take.step}"
        yield Append(_again(same["key"], owned.step, request, source, owned.take.log), decided=True)
    else:
        yield from _wait_for_owner(surroundings, request.unique)
    return False


def _wait_for_owner(surroundings: Surroundings, unique: str) -> Subflow:
    """The other call is under way, or in doubt. Look again soon, then less often; then the task waits for it."""
    begun_us: int = yield Now()
    now_us, pause_us = begun_us, limits.UNIQUE_POLL_US
    while True:
        yield from until(now_us + pause_us)
        looked = surroundings.state.seq
        owned: KeyOwner | None = yield FindOwner(unique)
        if owned is None or owned.step is None or not owned.step.open:
            return
        now_us = yield Now()
        if owned.step.status == "doubt" or now_us - begun_us > limits.UNIQUE_WAIT_US:
            doing = "in doubt" if owned.step.status == "doubt" else "under way"
            note = f"call {owned.take.step!r} of task {owned.take.log!r}, which has the key {unique!r}, is {doing}"
            blocker = ev.Blocker("doubt", owned.take.log, owned.take.step)
            blockers = (blocker,) if owned.step.status == "doubt" else ()
            yield Park("doubt", looked, now_us + limits.UNIQUE_WAIT_US, note, blockers)
            return
        pause_us = min(2 * pause_us, 20 * limits.UNIQUE_POLL_US)


def _after_failure(error: Exception, ended: dict[str, Any], request: StepRequest, *, sent: bool = True) -> Subflow:
    """Record that an attempt failed, and whether another one is due. A call that was surely not made frees its key."""
    failure = failures.failure(error, secrets=request.secrets)
    if request.estimate is not None and ended["usage"] is None and retries.is_refusal(error):
        ended["usage"] = Usage()  # what was estimated was not spent
    definite = request.effect not in REPEATABLE or _is_declared_definite(error, request)
    freed_keys = (request.unique,) if request.unique and definite else ()
    attempt: int = ended["attempts"]
    if attempt < request.retry.attempts and _may_repeat(error, request, sent):
        retry_us: int = yield from next_attempt(request, attempt, error)
        same = ("key", "name", "input", "tool", "effect", "idempotency_key", "usage", "output")
        tried: dict[str, Any] = {name: ended[name] for name in same if name in ended}
        tried["attempt"] = attempt
        yield Append((ev.AttemptFailed(**tried, failure=failure, retry_us=retry_us),), freed_keys=freed_keys)
    else:
        safe = request.effect in ANNOUNCED
        unsure = bool(request.undo) and request.effect in CHANGING and not definite
        undo: dict[str, Any] = {"maybe_done": True, "undo": request.undo} if unsure else {}
        yield Append((ev.StepFailed(**ended, failure=failure, safe=safe, **undo),), freed_keys=freed_keys)


def _definite_failure(known: Step, request: StepRequest) -> Subflow:
    """A call that raised is settled as not happened: it is tried again, or it failed."""
    assert known.raised is not None
    same: dict[str, Any] = {"key": known.key, "name": known.name, "input": known.input, "tool": known.tool}
    same |= {"effect": known.effect, "idempotency_key": known.idempotency_key, "failure": known.raised}
    if known.attempts < request.retry.attempts:
        retry_us: int = yield from next_attempt(request, known.attempts)
        yield Append((ev.AttemptFailed(**same, attempt=known.attempts, retry_us=retry_us),), decided=True)
    else:
        yield Append((ev.StepFailed(**same, attempts=known.attempts, safe=True),), decided=True)


def _again(key: str, known: Step, request: StepRequest, source: str, task: str = "") -> tuple[Event, ...]:
    """An outcome the world has seen already: the call is not made again, its outcome is recorded again.

    `task` is whose call it was, if it is not the task's own.
    """
    same: dict[str, Any] = {
        "key": key,
        "name": request.name,
        "tool": request.tool,
        "effect": request.effect,
        "source": source,
        "task": task,
    }
    same |= {"input": request.input, "idempotency_key": known.idempotency_key, "attempts": known.attempts}
    if known.status == "failed":
        assert known.failure is not None
        return (ev.StepFailed(**same, failure=known.failure, maybe_done=known.maybe_done),)
    return (ev.StepCompleted(**same, result=known.result),)


def _replayed(surroundings: Surroundings, key: str, request: StepRequest) -> Subflow:
    """A fork that touches nothing: what the parent's log says, else the tool's mock."""
    theirs: Step | None = yield Recall(key)
    parent = surroundings.state.forked_from
    if theirs is not None and theirs.done and codec.same_fields(theirs.input, request.input):
        yield Append(_again(key, theirs, request, f"{parent}/{key}", parent), decided=True)
    elif request.mock is not UNSET:
        outcome: Outcome = yield Invoke(key, request, 1, idempotency_key(surroundings.state, key, request))
        same: dict[str, Any] = {"key": key, "name": request.name, "tool": request.tool, "effect": request.effect}
        same |= {"input": request.input, "source": "mock"}
        if outcome.value is not None:
            yield Append((ev.StepCompleted(**same, result=outcome.value),))
        elif not outcome.cut:
            assert outcome.error is not None
            yield Append((ev.StepFailed(**same, failure=failures.failure(outcome.error)),))
    else:
        raise NotRecorded(key, parent)
    return True


# Approvals


def _approved(surroundings: Surroundings, key: str, request: StepRequest) -> Subflow:
    """Return whether a person has agreed to exactly this call. Asks, waits, and takes no for an answer."""
    looked = surroundings.state.seq
    bound = _bound(surroundings.state, key, request)
    known = surroundings.state.approvals.get(key)
    now_us: int = yield Now()
    if known is not None and known.bound == bound:
        covers = known.status == "given" or (known.status == "used" and request.effect not in ANNOUNCED)
        if covers and (known.until_us is None or now_us < known.until_us):
            return True
        if known.status == "refused":
            who = f"{known.by} refused" if known.by else "it was not approved"
            failure = ev.Failure(
                "ApprovalDenied", f"{who}{': ' if known.why else ''}{known.why}", code="approval-denied"
            )
            same: dict[str, Any] = {"key": key, "name": request.name, "tool": request.tool, "input": request.input}
            same["effect"] = request.effect
            yield Append((ev.StepFailed(**same, failure=failure, attempts=0),), decided=True)
            return False
        if known.status == "asked":
            yield from person_answers(surroundings, key, known.wake_us, now_us, looked)
            return False
    wake_us = None if request.approval_seconds is None else now_us + int(request.approval_seconds * 1_000_000)
    asked: dict[str, Any] = {
        "key": key,
        "name": request.name,
        "bound": bound,
        "tool": request.tool,
        "risk": request.risk,
    }
    yield Append((ev.ApprovalAsked(**asked, input=request.input, wake_us=wake_us),), decided=True)
    return False


def _bound(state: State, key: str, request: StepRequest) -> str:
    """Return the digest that an approval is bound to: the call with its arguments, the secret ones too."""
    call = idempotency_key(state, key, request)
    is_old = not state.key_space  # there the arguments cover their secrets
    return call if request.secret_print is None or is_old else f"{call}:{request.secret_print()}"


def person_answers(surroundings: Surroundings, key: str, wake_us: int | None, now_us: int, looked: int) -> Subflow:
    """Wait for a person's approval; silence until the time is up is a no."""
    if wake_us is not None and now_us >= wake_us:
        late = ev.ApprovalRefused(key=key, why="no answer came in time", expired=True)
        yield Append((late,), decided=True)
    else:
        yield from may_begin(surroundings, None, key)
        yield Park("person", looked, earliest(wake_us, surroundings.state.summary.deadline_us))


# What all flows share


def _changed(known: Step, request: StepRequest) -> bool:
    """Return whether a recorded step must be done again, because it was another one."""
    if codec.same_fields(known.input, request.input) or request.on_change == "keep":
        return False
    if request.on_change == "rerun":
        return True
    raise StepChanged(known.key, _shown(known.input), _shown(request.input))


def _shown(input: Fields) -> str:
    text = ", ".join(f"{name}={bytes(raw).decode()[:60]}" for name, raw in input.items())
    return f"({text})"


def _failed(step: Step) -> StepFailed:
    failure = step.failure
    assert failure is not None
    if failure.code == ApprovalDenied.code:
        return ApprovalDenied(step.key, failure.message)
    error = StepFailed(step.key, step.attempts, failure.type, failure.message, maybe_done=step.maybe_done)
    error.failure = failure
    return error


def is_definite(outcome: Outcome, request: StepRequest) -> bool:
    """Return whether a `once` call that raised surely did not happen."""
    assert outcome.error is not None
    return not outcome.sent or _is_declared_definite(outcome.error, request)


def _is_declared_definite(error: Exception, request: StepRequest) -> bool:
    declared = (request.definite, request.retry_on if request.effect in ANNOUNCED else None)
    return isinstance(error, NotDone) or any(test(error) for test in declared if test is not None)


def _may_repeat(error: Exception, request: StepRequest, sent: bool) -> bool:
    """Return whether another attempt makes sense. One that asks a model, and is refused for good, is not repeated."""
    if isinstance(error, NotDone) or not sent:
        return not (isinstance(error, NotDone) and error.permanent)
    if request.retry_on is not None:
        return request.retry_on(error)
    return request.effect not in ANNOUNCED and not (request.estimate is not None and retries.is_permanent(error))
