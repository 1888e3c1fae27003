"""Legal histories for Hypothesis: any events, of which those that may not follow are left out."""

from hypothesis import strategies as st

from holdfast.core import codec, events as ev
from holdfast.core.codec import Head, Stored
from holdfast.core.errors import HoldfastError
from holdfast.core.events.effects import EFFECTS
from holdfast.core.state import rules
from holdfast.core.state.fold import evolve
from holdfast.core.state.patch import StatePatch, changes_of
from holdfast.store.protocol import place

LOG = "task-1"

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(["$blob", "$json", "$append", "$edits", "~"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
packed = json_values.map(codec.pack)
large = st.integers(4096, 9000).map(lambda n: codec.pack("z" * n))
values = st.one_of(packed, packed, packed, large)
names = st.sampled_from(["a", "b", "c", "ü"])
paths = st.sampled_from(["a.b", "a.b.c", "b.ü", "b.a"])
keys = st.sampled_from(["draft#1", "draft#2", "pay#1", "~1/pay#1"])
fields = st.dictionaries(names, values, max_size=2)
failures = st.builds(ev.Failure, type=names, message=st.text(max_size=5))
effects = st.sampled_from(sorted(EFFECTS))
waits = st.sampled_from(["person", "timer", "signal", "child"])
unset_or_value = st.just(codec.JSON_NULL) | values

patches = st.builds(
    StatePatch,
    set=st.dictionaries(names | paths, json_values, max_size=2),
    delete=st.lists(names | paths, max_size=1),
    require=st.dictionaries(names | paths, json_values, max_size=1),
    append_facts=st.lists(st.fixed_dictionaries({"key": names, "value": json_values, "source": names}), max_size=2),
    raise_flags=st.lists(names, max_size=2),
    add_questions=st.lists(names, max_size=2),
    replace_plan=st.none() | st.lists(names, max_size=3),
).map(changes_of)

IMMEDIATE = {
    ev.StageSet: st.builds(ev.StageSet, stage=names),
    ev.PhaseSet: st.builds(
        ev.PhaseSet, phase=st.sampled_from(["planning", "executing", "reflecting", "done", "error"])
    ),
    ev.DecisionMade: st.builds(ev.DecisionMade, question=names, choice=values, options=unset_or_value),
    ev.FactLearned: st.builds(ev.FactLearned, key=names, value=values, source=names),
    ev.PlanSet: st.builds(ev.PlanSet, steps=st.lists(names, max_size=3).map(tuple)),
    ev.PlanStepDone: st.builds(ev.PlanStepDone, step=names),
    ev.QuestionOpened: st.builds(ev.QuestionOpened, question=names),
    ev.QuestionClosed: st.builds(ev.QuestionClosed, question=names),
    ev.ArtifactAdded: st.builds(ev.ArtifactAdded, artifact_id=names, type=names, data=values, bytes=st.integers(0, 99)),
    ev.NoteSet: st.builds(ev.NoteSet, key=names, value=values),
    ev.FlagRaised: st.builds(ev.FlagRaised, flag=names),
    ev.FlagCleared: st.builds(ev.FlagCleared, flag=names),
    ev.MessageAdded: st.builds(ev.MessageAdded, message=values) | st.builds(ev.MessageAdded, step=keys),
    ev.MessagesSummarised: st.builds(ev.MessagesSummarised, step=keys, covers=st.just(((0, 1),)), model=names),
    ev.LogWritten: st.builds(ev.LogWritten, text=st.text(max_size=5)),
    ev.StateSet: st.builds(ev.StateSet, name=names, value=values),
    ev.StateIncremented: st.builds(ev.StateIncremented, name=names, by=st.integers(-5, 5))
    | st.builds(ev.StateIncremented, name=names, by=st.integers(-5, 5), start=st.integers(-5, 5)),
    ev.StateAppended: st.builds(ev.StateAppended, name=names, value=values)
    | st.builds(ev.StateAppended, name=names, value=values, start=st.lists(scalars, max_size=2).map(codec.pack)),
    ev.StateDeleted: st.builds(ev.StateDeleted, name=names),
    ev.StatePatched: st.builds(ev.StatePatched, patch=patches, by=names),
    ev.UserPatched: st.builds(ev.UserPatched, patch=patches, seen=st.integers(0, 3)),
    ev.ThreadPatched: st.builds(ev.ThreadPatched, patch=patches, seen=st.integers(0, 3)),
    ev.CompensationAdded: st.builds(ev.CompensationAdded, name=names, input=fields),
}
"""What immediate verbs record, by the class of the event."""

any_event = st.one_of(
    st.builds(ev.TaskClaimed, holder=names),
    st.builds(ev.TaskReleased, why=names),
    st.builds(ev.TaskSuspended, why=waits, wake_us=st.none() | st.integers(0, 2**50)),
    st.builds(ev.StepStarted, key=keys, name=names, input=fields, tool=names, effect=effects, idempotency_key=names),
    st.builds(ev.StepCompleted, key=keys, name=names, result=values, input=fields, effect=effects, tool=names),
    st.builds(ev.StepFailed, key=keys, name=names, failure=failures, effect=effects),
    st.builds(ev.AttemptFailed, key=keys, name=names, attempt=st.integers(1, 3), failure=failures, retry_us=st.just(9)),
    st.builds(ev.StepDoubted, key=keys),
    st.builds(ev.StepSettled, key=keys, happened=st.booleans(), result=unset_or_value),
    st.builds(ev.StepObserved, key=keys, result=unset_or_value),
    st.builds(ev.WaitStarted, key=keys, wait=waits, name=names, prompt=unset_or_value),
    st.builds(ev.WaitEnded, key=keys, value=unset_or_value),
    st.builds(ev.SignalReceived, name=names, value=values),
    st.builds(ev.TurnStarted, turn=st.integers(1, 4)),
    *IMMEDIATE.values(),
    st.builds(ev.StateMigrated, version=st.integers(1, 4), bag=fields),
    st.builds(ev.StateSet, name=paths, value=values, nested=st.booleans()),
    st.builds(ev.StateIncremented, name=paths, by=st.integers(-5, 5), nested=st.just(True)),
    st.builds(ev.StateAppended, name=paths, value=values, nested=st.just(True)),
    st.builds(ev.StateDeleted, name=paths, nested=st.booleans()),
    st.builds(ev.StateUpdated, key=keys, name=names, value=values),
    st.builds(ev.StateUpdated, key=keys, name=paths, value=values, nested=st.just(True)),
    st.builds(ev.UserPatched, patch=patches, key=keys, seen=st.integers(0, 3)),
    st.builds(ev.ThreadPatched, patch=patches, key=keys, seen=st.integers(0, 3)),
    st.builds(
        ev.PatchRefused, patch=patches, path=names, mine=names, theirs=names, user=st.booleans(), branch=st.just(".")
    ),
    st.builds(ev.CheckpointMade, label=names),
    st.builds(ev.CancelRequested, by=names),
    st.builds(ev.TaskReopened, by=names),
    st.builds(ev.TaskDiverged, known_seq=st.integers(1, 9), known_digest=st.just("00"), head_seq=st.integers(0, 9)),
    st.builds(ev.DivergenceAccepted, by=names),
    st.builds(ev.TaskClaimed, holder=names),
)
endings = st.one_of(
    st.builds(ev.TaskCompleted, result=values),
    st.builds(ev.TaskFailed, failure=failures),
    st.builds(ev.TaskCancelled, by=names),
)
first_events = st.builds(ev.TaskCreated, agent=names, input=fields, user=st.none() | names, goal=st.text(max_size=4))


def keep_legal(events, stored):
    """Those events that may follow each other, as they are given or as they would be stored."""
    state, kept = None, []
    for event in events:
        try:
            rules.check(state, event)
        except HoldfastError:
            continue
        slim = codec.draft(event, len(kept))[0].event
        state = evolve(state, LOG, len(kept) + 1, len(kept), slim)
        kept.append(slim if stored else event)
    return kept


@st.composite
def histories(draw, max_size=25, stored=True):
    """A legal history, from creation on, perhaps to its end; with large values in place unless `stored`."""
    events = [draw(first_events), *draw(st.lists(any_event, max_size=max_size))]
    if draw(st.booleans()):
        events.append(draw(endings))
    return keep_legal(events, stored)


def rows_of(events):
    """A history as rows, with their digests."""
    drafts = [codec.draft(event, at)[0] for at, event in enumerate(events)]
    placed = place(Head(0, codec.genesis(LOG)), drafts)
    return [
        Stored(seq, draft.kind, draft.at_us, draft.body, draft.body_hash, digest)
        for seq, (draft, digest) in enumerate(zip(drafts, placed.digests, strict=True), start=1)
    ]
