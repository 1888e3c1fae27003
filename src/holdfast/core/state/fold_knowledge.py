"""The fold of what an agent knows: plan, facts, questions, artifacts, flags, messages, and the state bag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core import codec, events as ev
from holdfast.core.events import Event
from holdfast.core.state.shapes import Artifact, Fact, Hot, Messages, PlanStep, Summarised


def _message_added(hot: Hot, event: ev.MessageAdded, seq: int, at_us: int) -> None:
    step = hot.steps.get(event.step)
    raw = event.message if event.message is not UNSET else step.result if step is not None else codec.JSON_NULL
    hot.messages = Messages(hot.messages.count + 1, codec.running(hot.messages.digest, raw))


def _messages_summarised(hot: Hot, event: ev.MessagesSummarised, seq: int, at_us: int) -> None:
    """The newest summary counts. Its step goes with the turn, so what it gave is kept here."""
    step = hot.steps.get(event.step)
    text = event.summary if event.summary is not UNSET else step.result if step is not None else None
    if text is not None:  # else its step was erased
        told = {name: getattr(event, name) for name in ("covers", "model", "tokens_in", "tokens_out", "basis")}
        hot.summarised = Summarised(text, **told, seq=seq)


def _plan_step_done(hot: Hot, step: str) -> None:
    hot.plan = [replace(one, done=True) if one.text == step else one for one in hot.plan]


def _artifact_added(hot: Hot, event: ev.ArtifactAdded, seq: int, at_us: int) -> None:
    hot.artifacts[event.artifact_id] = Artifact(event.type, event.summary, event.bytes, event.step, seq, event.data)


def _learn(hot: Hot, key: str, fact: Fact) -> None:
    """What was last learned, or learned anew, comes last."""
    hot.facts.pop(key, None)
    hot.facts[key] = fact


def _raise_flag(hot: Hot, flag: str) -> None:
    if flag not in hot.flags:
        hot.flags.append(flag)


def _without(items: list[str], gone: str) -> list[str]:
    return [item for item in items if item != gone]


def _state_set(hot: Hot, event: ev.StateSet, seq: int, at_us: int) -> None:
    _under(hot, event.state_version)
    hot.bag[event.name] = event.value


def _state_deleted(hot: Hot, event: ev.StateDeleted, seq: int, at_us: int) -> None:
    _under(hot, event.state_version)
    hot.bag.pop(event.name, None)


def _under(hot: Hot, version: int) -> None:
    """A write under a new version follows the migrated state; should that one be erased, the version still holds."""
    if version > hot.state_version:
        hot.state_version = version


def _state_incremented(hot: Hot, event: ev.StateIncremented, seq: int, at_us: int) -> None:
    _under(hot, event.state_version)
    grown = event.by if event.name in hot.bag else event.start + event.by
    hot.bag[event.name] = codec.increased(hot.bag.get(event.name), grown)


def _state_appended(hot: Hot, event: ev.StateAppended, seq: int, at_us: int) -> None:
    _under(hot, event.state_version)
    start = None if event.start is UNSET else event.start
    hot.bag[event.name] = codec.appended(hot.bag.get(event.name, start), event.value)


def _state_migrated(hot: Hot, event: ev.StateMigrated, seq: int, at_us: int) -> None:
    _join(hot, seq)
    hot.bag, hot.state_version = dict(event.bag), event.version


def _join(hot: Hot, seq: int) -> None:
    """What a fork was patched with as it began is seen where it begins."""
    if hot.joint[1] == seq - 1 and hot.forked_from:
        hot.joint = (hot.joint[0], seq)


def _state_patched(hot: Hot, event: ev.StatePatched, seq: int, at_us: int) -> None:
    _join(hot, seq)
    _under(hot, event.state_version)
    patch = event.patch
    for fact in patch.append_facts:
        _learn(hot, fact.key, Fact(fact.value, fact.source, at_us))
    if patch.replace_plan is not None:
        hot.plan = [PlanStep(text) for text in patch.replace_plan]
    if patch.complete_plan_step is not None:
        _plan_step_done(hot, patch.complete_plan_step)
    for question in patch.add_questions:
        _open_question(hot, question)
    if patch.close_question is not None:
        hot.questions = _without(hot.questions, patch.close_question)
    for one in patch.add_artifacts:
        hot.artifacts[one.artifact_id] = Artifact(one.type, one.summary, one.bytes, one.step, seq)
    for flag in patch.raise_flags:
        _raise_flag(hot, flag)
    for flag in patch.clear_flags:
        hot.flags = _without(hot.flags, flag)
    hot.bag.update(patch.set)
    for name, by in patch.increment.items():
        hot.bag[name] = codec.increased(hot.bag.get(name), by)
    for name, item in patch.append.items():
        hot.bag[name] = codec.appended(hot.bag.get(name), item)
    for name in patch.delete:
        hot.bag.pop(name, None)


def _open_question(hot: Hot, question: str) -> None:
    if question not in hot.questions:
        hot.questions.append(question)


CHANGES: dict[type[Event], Callable[[Hot, Any, int, int], None]] = {
    ev.MessageAdded: _message_added,
    ev.MessagesSummarised: _messages_summarised,
    ev.StateSet: _state_set,
    ev.StateIncremented: _state_incremented,
    ev.StateAppended: _state_appended,
    ev.StateDeleted: _state_deleted,
    ev.StatePatched: _state_patched,
    ev.StateMigrated: _state_migrated,
    ev.UserPatched: lambda hot, e, seq, at: setattr(hot, "user_changes", (*hot.user_changes, e.patch)),
    ev.FactLearned: lambda hot, e, seq, at: _learn(hot, e.key, Fact(e.value, e.source, at)),
    ev.PlanSet: lambda hot, e, seq, at: setattr(hot, "plan", [PlanStep(text) for text in e.steps]),
    ev.PlanStepDone: lambda hot, e, seq, at: _plan_step_done(hot, e.step),
    ev.QuestionOpened: lambda hot, e, seq, at: _open_question(hot, e.question),
    ev.QuestionClosed: lambda hot, e, seq, at: setattr(hot, "questions", _without(hot.questions, e.question)),
    ev.ArtifactAdded: _artifact_added,
    ev.NoteSet: lambda hot, e, seq, at: hot.notes.__setitem__(e.key, e.value),
    ev.FlagRaised: lambda hot, e, seq, at: _raise_flag(hot, e.flag),
    ev.FlagCleared: lambda hot, e, seq, at: setattr(hot, "flags", _without(hot.flags, e.flag)),
    ev.DecisionMade: lambda hot, e, seq, at: setattr(hot, "decisions", hot.decisions + 1),
    ev.GoalSet: lambda hot, e, seq, at: setattr(hot, "goal", e.goal),
}
