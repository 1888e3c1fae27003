"""The fold of what an agent knows: plan, facts, questions, artifacts, flags, messages, and the state bag."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, cast

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.core import codec, events as ev
from holdfast.core.events import Changes, Event
from holdfast.core.names import own_name
from holdfast.core.state import paths
from holdfast.core.state.shapes import Artifact, Fact, Messages, PlanStep, Refusal, State, Step, Summarised


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


def _plan(state: State, steps: Sequence[str], done: Collection[str]) -> None:
    state.plan = [PlanStep(text, text in done) for text in steps]


def kept_done(state: State, steps: Iterable[str] | None) -> tuple[str, ...]:
    """Return those of these steps that are done in the present plan: a new plan that names them keeps them so."""
    known = {one.text for one in state.plan if one.done}
    return tuple(dict.fromkeys(step for step in steps or () if step in known))


def _plan_step_done(state: State, step: str) -> None:
    state.plan = [replace(one, done=True) if one.text == step else one for one in state.plan]


def _artifact_added(state: State, event: ev.ArtifactAdded, seq: int, at_us: int) -> None:
    state.artifacts[event.artifact_id] = Artifact(event.type, event.summary, event.bytes, event.step, seq, event.data)


def _learn(state: State, key: str, fact: Fact) -> None:
    """Put what was last learned, or learned anew, last."""
    state.facts.pop(key, None)
    state.facts[key] = fact


def _raise_flag(state: State, flag: str) -> None:
    if flag not in state.flags:
        state.flags.append(flag)


def _without(items: list[str], gone: str) -> list[str]:
    return [item for item in items if item != gone]


def _state_set(state: State, event: ev.StateSet, seq: int, at_us: int) -> None:
    _under(state, event.state_version)
    if event.nested:
        paths.edit(state.bag, event.name, "set", event.value)
    else:
        state.bag[event.name] = event.value


def _state_updated(state: State, event: ev.StateUpdated, seq: int, at_us: int) -> None:
    """A waiting verb that wrote to the state: it is a step too, so that a replay passes it."""
    _state_set(state, ev.StateSet(name=event.name, value=event.value, nested=event.nested), seq, at_us)
    _under(state, event.state_version)
    _verb_done(state, event.key, event.value, seq, at_us)


def _verb_done(state: State, key: str, result: Raw, seq: int, at_us: int) -> None:
    state.steps[key] = Step(key, own_name(key), "completed", seq, seq, at_us, at_us, result=result, effect="read")


def _state_deleted(state: State, event: ev.StateDeleted, seq: int, at_us: int) -> None:
    _under(state, event.state_version)
    if event.nested:
        paths.edit(state.bag, event.name, "delete")
    else:
        state.bag.pop(event.name, None)


def _under(state: State, version: int) -> None:
    """A write under a new version follows the migrated state; should that one be erased, the version still holds."""
    if version > state.state_version:
        state.state_version = version


def _state_incremented(state: State, event: ev.StateIncremented, seq: int, at_us: int) -> None:
    _under(state, event.state_version)
    if event.nested:
        paths.edit(state.bag, event.name, "increment", codec.pack(event.by))
    else:
        grown = event.by if event.name in state.bag else event.start + event.by
        state.bag[event.name] = codec.increased(state.bag.get(event.name), grown)


def _state_appended(state: State, event: ev.StateAppended, seq: int, at_us: int) -> None:
    _under(state, event.state_version)
    if event.nested:
        paths.edit(state.bag, event.name, "append", event.value)
    else:
        start = None if event.start is UNSET else event.start
        state.bag[event.name] = codec.appended(state.bag.get(event.name, start), event.value)


def _state_migrated(state: State, event: ev.StateMigrated, seq: int, at_us: int) -> None:
    _join(state, seq)
    state.bag, state.state_version = dict(event.bag), event.version


def _join(state: State, seq: int) -> None:
    """Show the patch that a fork began with where the fork begins."""
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
        _plan(state, patch.replace_plan, event.plan_done)
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
    _patch_bag(state.bag, patch)


def _patch_bag(bag: dict[str, Raw], patch: Changes) -> None:
    bag.update({name: raw for name, raw in patch.set.items() if name not in patch.nested})
    flat = [name for name in patch.increment if name not in patch.nested]
    bag.update({name: codec.increased(bag.get(name), patch.increment[name]) for name in flat})
    flat = [name for name in patch.append if name not in patch.nested]
    bag.update({name: codec.appended(bag.get(name), patch.append[name]) for name in flat})
    for name in patch.delete:
        if name not in patch.nested:
            bag.pop(name, None)
    for how, name, part in nested_changes(patch):
        paths.edit(bag, name, how, part)


def nested_changes(patch: Changes) -> Iterator[tuple[codec.How, str, Raw]]:
    """Return the nested changes of a patch: how, at which path, with what."""
    for name in patch.nested:
        if name in patch.set:
            yield "set", name, patch.set[name]
        if name in patch.increment:
            yield "increment", name, codec.pack(patch.increment[name])
        if name in patch.append:
            yield "append", name, patch.append[name]
        if name in patch.delete:
            yield "delete", name, codec.JSON_NULL


def _user_patched(state: State, event: ev.UserPatched, seq: int, at_us: int) -> None:
    if event.seen:
        _see_user(state, event.seen)
    else:
        state.user_changes = (*state.user_changes, event.patch)
    _updated_linked(state, event, seq, at_us)


def _thread_patched(state: State, event: ev.ThreadPatched, seq: int, at_us: int) -> None:
    if event.seen:
        _see_thread(state, event.seen)
    else:
        state.thread_changes = (*state.thread_changes, event.patch)
    _updated_linked(state, event, seq, at_us)


def _updated_linked(state: State, event: ev.UserPatched | ev.ThreadPatched, seq: int, at_us: int) -> None:
    """A read-modify-write is a verb that was done, with the new value as its result."""
    if event.key:
        result = next(iter(event.patch.set.values()), codec.JSON_NULL)
        _verb_done(state, event.key, result, seq, at_us)


def _patch_refused(state: State, event: ev.PatchRefused, seq: int, at_us: int) -> None:
    """Kept until the turn is over: a replay that comes to it again gets the same answer."""
    identity = identity_of(event.branch, event)
    key = refusal_key(state.turn, identity, state.immediates.get(identity, 0) + 1)
    told = {name: getattr(event, name) for name in ("path", "mine", "theirs", "by", "required", "user", "thread")}
    refusal = Refusal(**told, base=codec.JSON_NULL if event.base is UNSET else event.base, seq=seq)
    state.refused = {**state.refused, key: refusal}
    if event.seen:
        (_see_thread if event.thread else _see_user)(state, event.seen)


def _see_user(state: State, seq: int) -> None:
    """From here on the task sees its user's log up to there, with what it wrote to it itself."""
    state.pins, state.user_changes = replace(state.pins, user=seq), ()


def _see_thread(state: State, seq: int) -> None:
    """The same for its thread: the messages there up to that seq are seen, too."""
    state.pins, state.thread_changes = replace(state.pins, thread=seq), ()


def _messages_removed(state: State, event: ev.MessagesRemoved, seq: int, at_us: int) -> None:
    state.cleared = max(state.cleared, event.upto)
    state.popped = tuple(one for one in (*state.popped, *event.seqs) if one > state.cleared)


def _metadata_set(state: State, event: ev.MetadataSet, seq: int, at_us: int) -> None:
    kept = {name: raw for name, raw in state.metadata.items() if name not in event.delete}
    state.metadata = {**kept, **event.set}


def identity_of(branch: str, event: Event) -> str:
    """Return the identity of an agent's writing, apart from its number: branch, kind and subject.

    A refused change is known by its own content, whatever came of it.

    >>> identity_of(".", ev.FactLearned(key="city", value=codec.JSON_NULL))
    '. FactLearned city'
    """
    kind = type(event)
    if kind is ev.PatchRefused:
        refused = cast("ev.PatchRefused", event)
        kind_said = "UserPatched" if refused.user else "ThreadPatched" if refused.thread else "StatePatched"
        return f"{branch} {kind_said} "
    return f"{branch} {kind.__name__} {getattr(event, _SUBJECTS.get(kind, ''), '')}"


_SUBJECTS: dict[type[Event], str] = {
    **dict.fromkeys((ev.FactLearned, ev.NoteSet), "key"),
    **dict.fromkeys((ev.StateSet, ev.StateIncremented, ev.StateAppended, ev.StateDeleted), "name"),
    **dict.fromkeys((ev.QuestionOpened, ev.QuestionClosed, ev.DecisionMade), "question"),
    **dict.fromkeys((ev.FlagRaised, ev.FlagCleared), "flag"),
    **dict.fromkeys((ev.CompensationAdded,), "name"),
    ev.PlanStepDone: "step",
    ev.ArtifactAdded: "type",
}


def refusal_key(turn: int, identity: str, count: int) -> str:
    """Return the state's name for the refusal of the n-th writing of a kind."""
    return f"{turn} {identity}{count}"


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
    ev.StateUpdated: _state_updated,
    ev.StatePatched: _state_patched,
    ev.StateMigrated: _state_migrated,
    ev.UserPatched: _user_patched,
    ev.ThreadPatched: _thread_patched,
    ev.MessagesRemoved: _messages_removed,
    ev.MetadataSet: _metadata_set,
    ev.ExpirySet: lambda state, e, seq, at: setattr(state, "expire_us", e.expire_us),
    ev.PatchRefused: _patch_refused,
    ev.FactLearned: lambda state, e, seq, at: _learn(state, e.key, Fact(e.value, e.source, at)),
    ev.PlanSet: lambda state, e, seq, at: _plan(state, e.steps, e.done),
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
