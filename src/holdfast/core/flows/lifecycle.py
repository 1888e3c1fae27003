"""The life of a task as a flow: its turns, its endings, and undoing what was done when it cannot end well."""

from __future__ import annotations

from typing import Protocol

from holdfast.core import codec, events as ev
from holdfast.core.codec import failures
from holdfast.core.errors import Cancelled, LeaseLost, NotRecorded, StepFailed, StoreError, Suspended, TurnLimit
from holdfast.core.events import Event, Failure
from holdfast.core.flows.doubt import settle_all
from holdfast.core.flows.requests import (
    Append,
    AwaitIdle,
    Branch,
    Park,
    PinLinked,
    RunBody,
    StepRequest,
    Subflow,
    Surroundings,
)
from holdfast.core.flows.spending import within_budget
from holdfast.core.flows.step import step
from holdfast.core.flows.stops import in_time, is_limited, may_begin
from holdfast.core.flows.writers import settle_all as settle_all_writes, write_all_held
from holdfast.core.phases import DONE, ERROR, following
from holdfast.core.state.shapes import State, Undo


class Rules(Protocol):
    """What a life needs to know of its agent."""

    @property
    def name(self) -> str: ...
    @property
    def loop(self) -> bool: ...
    @property
    def max_turns(self) -> int | None: ...
    @property
    def typed_result(self) -> codec.Restore: ...


class Work(Surroundings, Protocol):
    """Surroundings that know of turns, and of how things are undone."""

    @property
    def suspended(self) -> bool: ...
    def begin_turn(self) -> None: ...
    def undoing(self, one: Undo) -> StepRequest: ...


def task_flow(work: Work, agent: Rules) -> Subflow:
    """A task from its claim to its end or its next wait. Whatever interrupts it, the task is released."""
    try:
        yield from life(work, agent)
    except Suspended:
        return
    except (LeaseLost, StoreError, GeneratorExit):
        raise
    except BaseException as stop:
        if not isinstance(stop, KeyboardInterrupt):
            yield AwaitIdle()
        yield from _let_go(work, type(stop).__name__)
        raise


def _let_go(work: Work, why: str) -> Subflow:
    """Release a task. One that was asked to stop meanwhile, and has nothing to settle or to undo, ends instead."""
    while not work.suspended and not work.state.ended:
        state = work.state
        unfinished = state.undo or state.undoing or any(one.kind == "child" for one in state.waits.values())
        unfinished = unfinished or any(one.unsettled for one in state.steps.values())
        last: Event = ev.TaskReleased(why=why)
        if state.cancel is not None and not unfinished:
            last = _cancelled(state, []) if state.failure is None else _failed(state, state.failure)
        if (yield Append((last,), decided=True)):
            return


def life(work: Work, agent: Rules) -> Subflow:
    """Let the agent work until it is done, and end the task as that went."""
    try:
        result = yield from _turns(work, agent) if agent.loop else _once()
        yield AwaitIdle()
        if work.unsettled:
            yield from settle_all_writes(work)
        if work.state.undoing or work.state.cancel is not None:
            raise Cancelled
        if is_limited(work.state):
            yield from in_time(work)  # a result after the deadline does not count
        packed = codec.pack(result, "the result of agent %r", agent.name, restore=agent.typed_result, must_fit=True)
        ending: Event = ev.TaskCompleted(result=packed, phase=following(work.state.phases, work.state.phase, DONE))
    except Cancelled:
        ending = yield from unwind(work, work.state.failure)
    except StoreError:
        raise  # what the task did is not the question: nothing can be written
    except Exception as error:  # noqa: BLE001 — whatever an agent raises is how its task ends
        known = work.state.failure if work.state.undoing else failures.failure(error, secrets=tuple(work.secrets))
        ending = yield from unwind(work, known, failures.failed_step(error))
    yield from end(work, ending)


def _once() -> Subflow:
    return (yield RunBody())


def _turns(work: Work, agent: Rules) -> Subflow:
    """Call a looping agent once a turn until it returns anything but None."""
    over = work.state.turn == 0
    while True:
        if over:
            yield from next_turn(work, agent.max_turns, agent.name)
        result = yield RunBody()
        if result is not None:
            return result
        over = True


def next_turn(work: Work, most: int | None, name: str) -> Subflow:
    """Begin another turn, when everything of the last one is done."""
    yield AwaitIdle()
    if work.unsettled:
        yield from settle_all_writes(work)
    while True:
        turn = work.state.turn
        if most is not None and turn >= most:
            raise TurnLimit(
                f"{name!r} took {turn} turns", hint="raise max_turns= (max= in a block), then resume it; or end sooner"
            )
        yield from may_begin(work, None, f"turn {turn + 1}")
        yield from within_budget(work, f"turn {turn + 1}", None)
        summary, pins = work.state.summary, None
        if summary.user is not None or summary.thread is not None:
            if work.unwritten:
                yield Append()  # what the task itself changed and recorded is seen from the next turn on
            pins = yield PinLinked()
        if (yield Append((ev.TurnStarted(turn=turn + 1, pins=pins),), decided=True)):
            return work.begin_turn()


def end(work: Work, ending: Event) -> Subflow:
    """Write the last event, once no call is open: a task whose effects are unknown has not ended."""
    while True:
        yield from settle_all(work, work.called)
        if (yield Append((ending,), decided=True)):
            return


def unwind(work: Work, failure: Failure | None, step_key: str = "") -> Subflow:
    """Undo what was done, last things first; gives the event that ends the task."""
    yield AwaitIdle()
    yield from write_all_held(work)
    if work.unwritten:
        yield Append()
    state_seq = work.state.seq
    unable: list[str] = []
    if any(one.unsettled and one.undo for one in work.state.steps.values()):
        yield from settle_all(work, work.called)  # one that happened has to be undone
    if work.state.undo or work.state.undoing or _unsure_to_undo(work.state):
        yield from _begin_undo(work, failure)
        branch = Branch("~undo", work.state.seq, work.state.turn)
        for one in list(reversed(work.state.undo)):
            try:
                yield from step(work, branch, work.undoing(one))
            except (NotRecorded, StepFailed) as error:
                unable.append(f"{one.step or one.name} could not be undone: {error.message}")
    unsure = (one for one in work.state.maybe_done.values() if one.status == "failed")
    unable += [f"{one.key} may have happened: {one.failure.message if one.failure else ''}" for one in unsure]
    if failure is None:
        return _cancelled(work.state, unable)
    return _failed(work.state, failures.noted(failure, unable), state_seq=state_seq, step=step_key)


def _failed(state: State, failure: Failure, *, state_seq: int = 0, step: str = "") -> Event:
    phase = following(state.phases, state.phase, ERROR)
    return ev.TaskFailed(failure=failure, state_seq=state_seq, step=step, phase=phase)


def _cancelled(state: State, unable: list[str]) -> Event:
    by, why = state.cancel or ("", "")
    return ev.TaskCancelled(by=by, why="; ".join([why, *unable] if why else unable))


def _begin_undo(work: Work, failure: Failure | None) -> Subflow:
    """Begin to undo when every call has its outcome: one that may have happened is asked about first."""
    while not work.state.undoing:
        looked = work.state.seq
        yield from settle_all(work, work.called)
        if unsure := _unsure_to_undo(work.state):
            yield Park(
                "doubt", looked, blockers=tuple(ev.Blocker("doubt", work.state.summary.id, one) for one in unsure)
            )
        else:
            yield Append((ev.UndoStarted(failure=failure),), decided=True)


def _unsure_to_undo(state: State) -> list[str]:
    """The calls that would have to be undone if they happened, which is not known."""
    return [key for key, one in state.maybe_done.items() if one.status == "failed" and one.undo]
