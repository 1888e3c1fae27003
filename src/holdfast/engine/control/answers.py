"""Signals, answers, approvals, settlements. Each gives a decision, which `change.change` applies to the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, Raw

from holdfast.core import codec, events as ev
from holdfast.core.codec import Fetch, UniqueKey
from holdfast.core.errors import InvalidEvent, InvalidInput, InvalidValue, SelfApproval, TaskFinished
from holdfast.core.events import Event
from holdfast.core.state.fold import address
from holdfast.core.state.rules import bound_digest, may_correct
from holdfast.core.state.shapes import Approval, State, Step
from holdfast.engine.control.change import Decide, Keys
from holdfast.engine.definitions.call import BODY, CALLER
from holdfast.engine.definitions.json_schema import refuse_unfit
from holdfast.engine.definitions.tool import Tool
from holdfast.engine.logs.logs import Logs


def here(state: State, key: str) -> str:
    """A key as it is in this turn: in a loop `3/pay#1` is what turn 3 calls `pay#1`."""
    own = key.removeprefix(f"{state.turn}/") if state.turn else key
    return own if own in state.steps or own in state.waits or own in state.approvals else key


def signal(name: str, value: Any, by: str) -> Decide:
    """Something happened that the task may wait for, now or later. One that waits for other things keeps waiting."""
    packed = codec.pack(value, "the signal's value")

    def decide(state: State) -> Sequence[Event]:
        awaited = any(wait.kind == "signal" and wait.name == name for wait in state.waits.values())
        other = state.summary.status == "waiting" and not awaited
        return (ev.SignalReceived(name=name, value=packed, by=by, unawaited=other),)

    return decide


def answer(question: str, value: Any, by: str, why: str, fetch: Fetch) -> Decide:
    """End a wait for a person, named by its key or by its only question. An answer must fit what was asked for."""
    packed = codec.pack(value, "the answer")

    def decide(state: State) -> Sequence[Event]:
        asked = {key: wait for key, wait in state.waits.items() if wait.kind == "person"}
        named = here(state, question)
        keys = [named] if named in asked else [key for key, wait in asked.items() if wait.name == question]
        if state.ended:
            raise TaskFinished(state.summary.id, state.summary.status, "app.answer")
        if len(keys) != 1:
            wrong = f"{question!r} may be one of {keys}" if keys else f"no open question is named {question!r}"
            if not keys and _was_answered(state, named, question):
                wrong = f"the question {question!r} was answered already"
            still = f"open questions: {', '.join(sorted(asked)) or 'none'}"
            raise InvalidEvent(wrong, hint=_other_verb(state, question) or still)
        schema = asked[keys[0]].answer
        if isinstance(schema, Raw):
            refuse_unfit(codec.parse(bytes(packed).decode()), codec.unpack(schema, fetch), "the answer")
        return (ev.WaitEnded(key=keys[0], value=packed, by=by, why=why),)

    return decide


def _was_answered(state: State, key: str, name: str) -> bool:
    """Return whether a wait of that name is over. It is a step then, of no tool, that did nothing to the world."""
    known = (one for one in state.steps.values() if one.key == key or one.name == name)
    return any(one.status == "completed" and one.effect not in ev.CHANGING and not one.tool for one in known)


def _other_verb(state: State, name: str) -> str:
    """Name the verb that ends the wait which was taken for a question; empty if there is no such wait."""
    key = here(state, name)
    for one in state.approvals.values():
        if one.status == "asked" and (one.key == key or name in (one.tool, one.name)):
            return f"it waits for approval: app.approve(id, {one.key!r}) or app.reject(id, {one.key!r})"
    for wait in state.waits.values():
        if wait.kind == "signal" and (wait.key == key or wait.name == name):
            return f"it waits for a signal: app.signal(id, {wait.name!r}, value)"
    for step in state.steps.values():
        if step.status == "doubt" and (step.key == key or name in (step.tool, step.name)):
            return f"it is in doubt: app.settle(id, {step.key!r}, happened=…)"
    return ""


def settle(call: str, happened: bool, result: Any, by: str, why: str, tools: Mapping[str, Tool]) -> Decide:
    """Say whether a call in doubt happened. Its result must be one that its tool can have, where that is known."""

    def decide(state: State) -> Sequence[Event]:
        key, step = _unsettled(state, call)
        if step is None:
            raise _not_in_doubt(state, call)
        packed = _fitting(result, tools.get(step.tool)) if happened else UNSET
        return (ev.StepSettled(key=key, happened=happened, result=packed, by=by, why=why),)

    return decide


def in_doubt(state: State, call: str) -> Step:
    """Return the call in doubt of that name; refuses one that is not."""
    _, step = _unsettled(state, call)
    if step is None:
        raise _not_in_doubt(state, call)
    return step


def _not_in_doubt(state: State, call: str) -> InvalidEvent:
    known = state.steps.get(here(state, call))
    if known is not None and known.status == "running":
        told = f"call {call!r} has no outcome yet, and is not in doubt while its process may be making it"
        return InvalidEvent(told, hint="if that process is dead, resume the task first: app.resume(id, agent)")
    doubts = [one.key for one in state.steps.values() if one.status == "doubt"]
    return InvalidEvent(f"call {call!r} is not in doubt", hint=f"calls in doubt: {', '.join(doubts) or 'none'}")


def _fitting(result: Any, tool: Tool | None) -> Raw:
    """Encode a settled result; refuse one that its tool can't have returned."""
    if tool is None:
        return codec.pack(result, "the result")
    try:
        return codec.pack(result, "the result", restore=tool.parameters.result, must_fit=True)
    except InvalidInput as error:
        raise InvalidValue(
            f"{tool.name!r} can't have given {result!r}: {error.message}", hint="give its result: result=…"
        ) from None


def _unsettled(state: State, call: str) -> tuple[str, Step | None]:
    """The call in doubt of that name, or one that failed and may have happened, or whose settlement can be corrected.

    It is given with the key it is kept by.
    """
    key = here(state, call)
    step = state.steps.get(key)
    if step is not None and (step.status == "doubt" or may_correct(state, step)):
        return key, step
    place = address(state.turn, key) if state.turn else key
    failed = state.maybe_done.get(place)
    return place, failed if failed is not None and failed.status == "failed" else None


def keys_of_settling(call: str, happened: bool) -> Keys:
    """A call that did not happen gives its unique key back; one that did after all takes it again."""

    def keys(state: State) -> tuple[tuple[UniqueKey, ...], tuple[str, ...]]:
        key, step = _unsettled(state, call)
        if step is None or not step.unique:
            return (), ()
        if not happened:
            return (), (step.unique,)
        if step.status != "void":
            return (), ()
        place = address(state.turn, key) if state.turn else key
        return (UniqueKey(step.unique, state.summary.id, place, codec.fingerprint(step.input)),), ()

    return keys


def approval(
    call: str, given: bool, by: str, why: str, until_us: int | None = None, shown: str | None = None
) -> Decide:
    """Approve a call, or refuse it; the call is named by its key, or by its tool if only one is asked for.

    `shown` is the digest of what the person was shown. Without one, nothing is decided once the arguments changed.
    """

    def decide(state: State) -> Sequence[Event]:
        key = _asked(state, call)
        known = state.approvals.get(key)
        bound = "" if known is None else known.bound
        if known is not None and known.status == "asked":
            _refuse_unseen(known, shown)
        if given:
            return (ev.ApprovalGiven(key=key, bound=bound, by=by, why=why, until_us=until_us),)
        return (ev.ApprovalRefused(key=key, bound=bound, by=by, why=why),)

    return decide


def _refuse_unseen(asked: Approval, shown: str | None) -> None:
    """Refuse a decision about arguments that the person has not seen."""
    look = "look at them as they are now, and give their digest: holdfast inbox"
    if shown is not None and shown not in (bound_digest(asked), asked.bound):
        told = f"the digest {shown!r} does not match the arguments of {asked.key!r}; nothing was decided"
        raise InvalidEvent(told, hint=look)
    if shown is None and asked.changed:
        told = f"the arguments of {asked.key!r} have changed, so the digest is required; nothing was decided"
        raise InvalidEvent(told, hint=look)


def refuse_self(logs: Logs, id: str, verb: str, by: str) -> None:
    """Refuse a decision that an agent makes about a task, or who acts for one: a person decides."""
    caller, body = CALLER.get(), BODY.get()
    if caller is not None or body is not None:
        where = "an agent's body" if caller is None else f"step {caller.call.step!r}"
        raise SelfApproval(verb, id, f"it was called from {where}")
    task: str | None = id
    while by and task is not None:
        state = logs.load(task).state
        known = {state.summary.agent: "is its agent", state.summary.holder: "is its worker"}
        known |= dict.fromkeys(state.actors, "started or changed it through MCP")
        if by in known:
            parent = "" if task == id else f" (its parent {task!r})"
            raise SelfApproval(verb, id, f"{by!r} {known[by]}{parent}")
        task = state.summary.parent


def _asked(state: State, call: str) -> str:
    if here(state, call) in state.approvals:
        return here(state, call)
    named = [one for one in state.approvals.values() if call in (one.tool, one.name)]
    open = [one.key for one in named if one.status == "asked"]
    if len(open) > 1:
        raise InvalidEvent(f"{call!r} may be one of {open}", hint="name the call by its key")
    return open[0] if open else named[-1].key if named else call
