"""The fold of what an agent knows: plan, facts, questions, artifacts, flags, messages, and the state bag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core import codec, events as ev
from holdfast.core.events import Event
from holdfast.core.state.shapes import Artifact, Fact, Messages, PlanStep, State, Summarised


def _message_added(state: State, event: ev.MessageAdded, seq: int, at_us: int) -> None:
    step = state.steps.get(event.step)
    raw = event.message if event.message is not UNSET else step.result if step is not None else codec.JSON_NULL
    state.messages = Messages(state.messages.count + 1, codec.running(state.messages.digest, raw))


def _messages_summarised(state: State, event: ev.MessagesSummarised, seq: int, at_us: int) -> None:
    """The newest summary counts. Its step goes with the turn, so what it gave is kept here."""
    step = state.steps.get(event.step)
    text = event.summary if event.summary is not UNSET else step.result if step is not None else None
    if text is not None:  # else its step was erased
        told = {name: getattr(event, name) for name in ("covers", "model", "tokens_in", "tokens_out", "basis")}
        state.summarised = Summarised(text, **told, seq=seq)


def _plan_step_done(state: State, step: str) -> None:
    state.plan = [replace(one, done=True) if one.text == step else one for one in state.plan]


def _artifact_added(state: State, event: ev.ArtifactAdded, seq: int, at_us: int) -> None:
    state.artifacts[event.artifact_id] = Artifact(event.type, event.summary, event.bytes, event.step, seq, event.data)


def _learn(state: State, key: str, fact: Fact) -> None:
    """What was last learned, or learned anew, comes last."""
    state.facts.pop(key, None)
    state.facts[key] = fact


def _raise_flag(state: State, flag: str) -> None:
    if flag not in state.flags:
        state.flags.append(flag)


def _without(items: list[str], gone: str) -> list[str]:
    return [item for item in items if item != gone]


def _state_set(state: State, event: ev.StateSet, seq: int, at_us: int) -> None:
    _under(state, event.state_version)
    state.bag[event.name] = event.value


def _state_deleted(state: State, event: ev.StateDeleted, seq: int, at_us: int) -> None:
    _under(state, event.state_version)
    state.bag.pop(event.name, None)


def _under(state: State, version: int) -> None:
    """A write under a new version follows the migrated state; should that one be erased, the version still holds."""
    if version > state.state_version:
        state.state_version = version


def _state_incremented(state: State, event: ev.StateIncremented, seq: int, at_us: int) -> None:
    _under(state, event.state_version)
    grown = event.by if event.name in state.bag else event.start + event.by
    state.bag[event.name] = codec.increased(state.bag.get(event.name), grown)


def _state_appended(state: State, event: ev.StateAppended, seq: int, at_us: int) -> None:
    _under(state, event.state_version)
    start = None if event.start is UNSET else event.start
    state.bag[event.name] = codec.appended(state.bag.get(event.name, start), event.value)


def _state_migrated(state: State, event: ev.StateMigrated, seq: int, at_us: int) -> None:
    _join(state, seq)
    state.bag, state.state_version = dict(event.bag), event.version


def _join(state: State, seq: int) -> None:
    """What a fork was patched with as it began is seen where it begins."""
    if state.joint[1] == seq - 1 and state.forked_from:
        state.joint = (state.joint[0], seq)


def with_actor(actors: tuple[str, ...], by: str) -> tuple[str, ...]:
    """Return the actors of a task, with one more if it came through MCP."""
    return (*actors, by) if by.startswith("mcp:") and by not in actors else actors


def _state_patched(state: State, event: ev.StatePatched, seq: int, at_us: int) -> None:
    _join(state, seq)
    _under(state, event.state_version)
    state.actors = with_actor(state.actors, event.by)
    patch = event.patch
    for fact in patch.append_facts:
        _learn(state, fact.key, Fact(fact.value, fact.source, at_us))
    if patch.replace_plan is not None:
        state.plan = [PlanStep(text) for text in patch.replace_plan]
    if patch.complete_plan_step is not None:
        _plan_step_done(state, patch.complete_plan_step)
    for question in patch.add_questions:
        _open_question(state, question)
    if patch.close_question is not None:
        state.questions = _without(state.questions, patch.close_question)
    for one in patch.add_artifacts:
        state.artifacts[one.artifact_id] = Artifact(one.type, one.summary, one.bytes, one.step, seq)
    for flag in patch.raise_flags:
        _raise_flag(state, flag)
    for flag in patch.clear_flags:
        state.flags = _without(state.flags, flag)
    state.bag.update(patch.set)
    for name, by in patch.increment.items():
        state.bag[name] = codec.increased(state.bag.get(name), by)
    for name, item in patch.append.items():
        state.bag[name] = codec.appended(state.bag.get(name), item)
    for name in patch.delete:
        state.bag.pop(name, None)


def _open_question(state: State, question: str) -> None:
    if question not in state.questions:
        state.questions.append(question)


CHANGES: dict[type[Event], Callable[[State, Any, int, int], None]] = {
    ev.MessageAdded: _message_added,
    ev.MessagesSummarised: _messages_summarised,
    ev.StateSet: _state_set,
    ev.StateIncremented: _state_incremented,
    ev.StateAppended: _state_appended,
    ev.StateDeleted: _state_deleted,
    ev.StatePatched: _state_patched,
    ev.StateMigrated: _state_migrated,
    ev.UserPatched: lambda state, e, seq, at: setattr(state, "user_changes", (*state.user_changes, e.patch)),
    ev.FactLearned: lambda state, e, seq, at: _learn(state, e.key, Fact(e.value, e.source, at)),
    ev.PlanSet: lambda state, e, seq, at: setattr(state, "plan", [PlanStep(text) for text in e.steps]),
    ev.PlanStepDone: lambda state, e, seq, at: _plan_step_done(state, e.step),
    ev.QuestionOpened: lambda state, e, seq, at: _open_question(state, e.question),
    ev.QuestionClosed: lambda state, e, seq, at: setattr(state, "questions", _without(state.questions, e.question)),
    ev.ArtifactAdded: _artifact_added,
    ev.NoteSet: lambda state, e, seq, at: state.notes.__setitem__(e.key, e.value),
    ev.FlagRaised: lambda state, e, seq, at: _raise_flag(state, e.flag),
    ev.FlagCleared: lambda state, e, seq, at: setattr(state, "flags", _without(state.flags, e.flag)),
    ev.DecisionMade: lambda state, e, seq, at: setattr(state, "decisions", state.decisions + 1),
    ev.GoalSet: lambda state, e, seq, at: setattr(state, "goal", e.goal),
}
