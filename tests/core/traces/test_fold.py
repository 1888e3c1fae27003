"""Spans as a fold of the log: which there are, whose children they are, and that they follow from the log alone."""

import pytest
from hypothesis import given, strategies as st

from holdfast.core import codec, events as ev
from holdfast.core.traces import attributes as at
from holdfast.core.traces.attributes import Reader
from holdfast.core.traces.fold import TraceFold
from holdfast.core.traces.span import MAX_SPAN_EVENTS
from tests.legal import histories

ONE = codec.pack(1)
BOOM = ev.Failure("ValueError", "canary")
CREATED = ev.TaskCreated(agent="trip", version="2", thread="t-9")


def folded(*events, fold=None, first=1, **options):
    """The spans of some events, one a second."""
    fold = fold or TraceFold("store-1", "trip-7", **options)
    found = []
    for seq, event in enumerate(events, start=first):
        found += fold.add(seq, seq * 1_000_000, event)
    return found


def by_name(spans):
    named = {span.name: span for span in spans}
    assert len(named) == len(spans), [span.name for span in spans]
    return named


def claimed(taken="", holder="w1"):
    return ev.TaskClaimed(holder=holder, taken=taken)


def announced(key="pay#1", **more):
    return ev.StepStarted(key=key, name="pay", tool="pay", effect="once", idempotency_key="k-1", **more)


def test_a_task_is_a_tree_of_lives_and_steps_under_one_root():
    done = ev.StepCompleted(key="draft#1", name="draft", result=ONE, started_us=2_500_000)
    found = by_name(folded(CREATED, claimed(), done, ev.TaskCompleted(result=ONE)))
    root, life, step = found["invoke_agent trip"], found["holdfast.life 1"], found["holdfast.step draft"]
    assert root.parent_id == b"" and life.parent_id == root.span_id and step.parent_id == life.span_id
    assert {span.trace_id for span in found.values()} == {root.trace_id}
    assert (root.start_us, root.end_us, root.status) == (1_000_000, 4_000_000, "ok")
    assert (step.start_us, step.end_us) == (2_500_000, 3_000_000)
    assert root.attributes["gen_ai.agent.name"] == "trip" and root.attributes["gen_ai.agent.version"] == "2"
    assert root.attributes["gen_ai.agent.id"] == "trip"
    assert root.attributes["gen_ai.conversation.id"] == "t-9" and root.attributes[at.KIND] == "AGENT"
    assert step.attributes[at.KEY] == "draft#1" and step.attributes[at.KIND] == "CHAIN"


def test_ids_follow_from_the_store_the_task_and_the_place_and_from_nothing_else():
    events = (CREATED, claimed(), ev.TaskCompleted(result=ONE))
    one, again = folded(*events), folded(*events)
    assert one == again
    others = (
        folded(*events, fold=TraceFold("store-2", "trip-7")),
        folded(*events, fold=TraceFold("store-1", "trip-8")),
        folded(*events, tenant="acme"),
    )
    ids = [{span.span_id for span in spans} for spans in (one, *others)]
    assert len(set.union(*ids)) == sum(map(len, ids))


def test_a_take_over_ends_the_life_before_and_is_linked_to_it():
    found = by_name(folded(CREATED, claimed(), claimed("proven", "w2"), claimed("presumed", "w3")))
    first, second = found["holdfast.life 1"], found["holdfast.life 2"]
    assert first.links == [] and (first.status, first.attributes[at.OUTCOME]) == ("error", "killed")
    assert [(one.span_id, one.attributes[at.LINK]) for one in second.links] == [(first.span_id, "taken over from")]
    assert second.attributes[at.OUTCOME] == "lost" and second.end_us == 3_000_000


def test_a_life_after_a_release_is_no_take_over():
    found = folded(CREATED, claimed(), ev.TaskReleased(), claimed(), ev.TaskCompleted(result=ONE))
    assert [span.links for span in found] == [[], [], []]


def test_a_call_that_was_cut_off_is_in_doubt_until_it_is_settled():
    begun = (CREATED, claimed(), announced(), claimed("proven"))
    fold = TraceFold("store-1", "trip-7")
    cut = by_name(folded(*begun, fold=fold))
    call = cut["execute_tool pay"]
    assert (call.status, call.attributes[at.IN_DOUBT], call.attributes[at.OUTCOME]) == ("error", True, "in doubt")
    assert call.parent_id == cut["holdfast.life 1"].span_id
    assert call.attributes["gen_ai.tool.call.id"] == "k-1" and call.attributes["holdfast.effect"] == "once"
    (doubt,) = folded(ev.StepSettled(key="pay#1", happened=True, result=ONE), fold=fold, first=5)
    assert doubt.name == "holdfast.in_doubt pay" and doubt.attributes[at.OUTCOME] == "happened"
    assert (doubt.start_us, doubt.end_us) == (3_000_000, 5_000_000)
    (ended, root) = folded(ev.TaskCompleted(result=ONE), fold=fold, first=6)
    assert doubt.parent_id == root.span_id == ended.parent_id


def test_a_repeatable_step_that_was_cut_off_is_not_in_doubt():
    begun = ev.StepStarted(key="look#1", name="look", tool="look", effect="read")
    found = by_name(folded(CREATED, claimed(), begun, claimed("proven")))
    assert found["execute_tool look"].attributes[at.OUTCOME] == "interrupted"
    assert at.IN_DOUBT not in found["execute_tool look"].attributes


def test_attempts_are_events_of_one_span():
    failed = [ev.AttemptFailed(key="a#1", name="a", attempt=n, failure=BOOM, retry_us=9) for n in (1, 2)]
    done = ev.StepCompleted(key="a#1", name="a", result=ONE, attempts=3)
    (span,) = folded(CREATED, claimed(), *failed, done)
    told = [(one.name, one.attributes["holdfast.attempt"], one.attributes["error.type"]) for one in span.events]
    assert told == [("holdfast.attempt_failed", 1, "ValueError"), ("holdfast.attempt_failed", 2, "ValueError")]
    assert span.attributes["holdfast.attempts"] == 3 and span.start_us == 2_000_000


def test_waits_approvals_and_suspensions_are_spans_that_outlast_lives():
    asked = ev.ApprovalAsked(key="pay#1", tool="pay", risk="money")
    waits = (ev.WaitStarted(key="ask#1", wait="person"), asked, ev.TaskSuspended(why="person"))
    ends = (ev.ApprovalGiven(key="pay#1"), ev.WaitEnded(key="ask#1", value=ONE))
    found = by_name(folded(CREATED, claimed(), *waits, *ends, claimed(), ev.TaskCompleted(result=ONE)))
    root = found["invoke_agent trip"].span_id
    wait, approval = found["holdfast.wait ask"], found["holdfast.approval pay"]
    assert wait.parent_id == approval.parent_id == root
    assert (wait.start_us, wait.end_us, approval.end_us) == (3_000_000, 7_000_000, 6_000_000)
    assert approval.attributes[at.OUTCOME] == "approved" and approval.attributes["holdfast.risk"] == "money"
    found = by_name(folded(CREATED, claimed(), ev.TaskSuspended(why="budget"), claimed()))
    assert found["holdfast.wait budget"].end_us == 4_000_000


@pytest.mark.parametrize(
    ("reply", "provider"),
    [
        ({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}, "openai"),
        ({"object": "response", "usage": {"input_tokens": 9, "output_tokens": 1}}, "openai"),
        ({"finish_reason": "stop", "usage": {"prompt_tokens": 9, "cache_read_input_tokens": 4}}, "openai"),
        ({"type": "message", "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 1}}, "anthropic"),
        ({"usage": {"input_tokens": 9, "output_tokens": 1}}, None),
        ("Almost.", None),
    ],
)
def test_the_form_of_a_reply_says_who_provides_the_model(reply, provider):
    asked = ev.StepCompleted(key="model#1", name="model", result=codec.pack(reply), usage=ev.Usage(9, 1))
    chat = by_name(folded(CREATED, claimed(), asked))["chat"]
    assert chat.attributes.get("gen_ai.provider.name") == provider


def test_steps_made_again_and_again_have_ids_and_attributes_of_their_own():
    done = [
        ev.StepCompleted(key=f"look#{n}", name="look", result=ONE, started_us=n * 1_000_000, attempts=1 + n // 3)
        for n in (1, 2, 3)
    ]
    paid = ev.StepCompleted(key="pay#1", name="pay", tool="pay", effect="idempotent", result=ONE, idempotency_key="k")
    taken = claimed(taken="proven", holder="w2")
    spans = folded(CREATED, claimed(), *done[:2], taken, done[2], paid)
    lives = [span.parent_id for span in spans if span.name == "holdfast.step look"]
    assert lives[0] == lives[1] != lives[2] and len({span.span_id for span in spans}) == len(spans)
    told = [span.attributes for span in spans if span.name == "holdfast.step look"]
    assert [(one[at.KEY], one[at.SEQ], one["holdfast.life"], one["holdfast.attempts"]) for one in told] == [
        ("look#1", 3, 1, 1),
        ("look#2", 4, 1, 1),
        ("look#3", 6, 2, 2),
    ]
    call = spans[-1].attributes
    assert (
        call["gen_ai.tool.call.id"] == call["holdfast.idempotency_key"] == "k" and call[at.OPERATION] == "execute_tool"
    )


def test_a_model_is_a_client_and_its_usage_is_told():
    reply = codec.pack({"id": "r-1", "finish_reason": "stop", "usage": {"cache_read_input_tokens": 4}})
    usage = ev.Usage(12, 3, 0.5, "gpt-6")
    asked = ev.StepCompleted(key="model#1", name="model", result=reply, usage=usage)
    found = by_name(folded(CREATED, claimed(), asked, ev.TaskCompleted(result=ONE)))
    chat, root = found["chat gpt-6"], found["invoke_agent trip"]
    assert chat.client and chat.attributes[at.KIND] == "LLM" and chat.attributes[at.OPERATION] == "chat"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 12 == root.attributes["gen_ai.usage.input_tokens"]
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert chat.attributes["gen_ai.usage.cache_read.input_tokens"] == 4
    assert chat.attributes["holdfast.cost"] == 0.5 == root.attributes["holdfast.cost"]
    old = ("gen_ai.system", "gen_ai.prompt", "gen_ai.completion", "gen_ai.usage.prompt_tokens")
    assert not any(name in span.attributes for span in found.values() for name in old)


def test_turns_keep_the_same_key_apart():
    step = ev.StepCompleted(key="model#1", name="model", result=ONE)
    turns = (ev.TurnStarted(turn=1), step, ev.TurnStarted(turn=2), step)
    one, two = folded(CREATED, claimed(), *turns)
    assert (one.attributes[at.KEY], two.attributes[at.KEY]) == ("1/model#1", "2/model#1")
    assert one.span_id != two.span_id


def test_a_task_that_is_reopened_has_another_root_linked_to_the_first():
    failed = ev.TaskFailed(failure=BOOM)
    spans = folded(CREATED, claimed(), failed, ev.TaskReopened(), claimed(), ev.TaskCompleted(result=ONE))
    roots = [span for span in spans if span.name == "invoke_agent trip"]
    assert [one.status for one in roots] == ["error", "ok"] and roots[0].attributes["error.type"] == "ValueError"
    assert [(one.span_id, one.attributes[at.LINK]) for one in roots[1].links] == [(roots[0].span_id, "reopened from")]
    assert len({one.trace_id for one in spans}) == 1


def test_a_fork_is_a_trace_of_its_own_that_begins_where_it_left_its_parent():
    step = ev.StepCompleted(key="a#1", name="a", result=ONE)
    fork = ev.TaskForked(parent="trip-7", at=3)
    events = (CREATED, claimed(), step, fork, claimed(), ev.TaskCompleted(result=ONE))
    found = by_name(folded(*events, fold=TraceFold("store-1", "trip-8", after=3)))
    assert {*found} == {"holdfast.life 1", "invoke_agent trip"}
    root = found["invoke_agent trip"]
    (parent,) = [one for one in folded(CREATED, claimed(), ev.TaskCompleted(result=ONE)) if not one.parent_id]
    assert (root.links[0].trace_id, root.links[0].span_id) == (parent.trace_id, parent.span_id)
    assert root.attributes[at.TASK] == "trip-8" and root.start_us == 4_000_000


def test_parent_and_child_are_linked_in_both_directions():
    wait = ev.WaitStarted(key="sub#1", wait="child", name="trip-7/sub#1")
    parent = folded(CREATED, claimed(), wait, ev.WaitEnded(key="sub#1", value=ONE), ev.TaskCompleted(result=ONE))
    born = ev.TaskCreated(agent="sub", parent="trip-7", parent_step="sub#1")
    child = folded(born, claimed(), ev.TaskCompleted(result=ONE), fold=TraceFold("store-1", "trip-7/sub#1"))
    roots = [next(one for one in spans if not one.parent_id) for spans in (parent, child)]
    waited = next(one for one in parent if one.name == "holdfast.wait child")
    assert (waited.links[0].trace_id, waited.links[0].span_id) == (roots[1].trace_id, roots[1].span_id)
    assert (roots[1].links[0].trace_id, roots[1].links[0].span_id) == (roots[0].trace_id, roots[0].span_id)


def test_a_span_has_so_many_events_and_counts_the_rest():
    flags = [ev.FlagRaised(flag=f"f{n}", branch=".") for n in range(MAX_SPAN_EVENTS + 7)]
    (life,) = folded(CREATED, claimed(), *flags, ev.TaskReleased())
    assert len(life.events) == MAX_SPAN_EVENTS and life.dropped_events == 8


# What follows from the log alone


@given(histories(max_size=40), st.data())
def test_the_spans_of_a_log_are_those_of_any_prefix_and_of_the_rest(events, data):
    cut = data.draw(st.integers(0, len(events)))
    whole = folded(*events)
    fold = TraceFold("store-1", "trip-7")
    prefix = folded(*events[:cut], fold=fold)
    as_given = [codec.dump(one) for one in prefix]
    rest = folded(*events[cut:], fold=fold, first=cut + 1)
    assert prefix + rest == whole
    assert [codec.dump(one) for one in prefix] == as_given, "a span that was given out is never changed"
    assert folded(*events[:cut]) == whole[: len(prefix)], "what comes later changes nothing that came before"


@given(histories(max_size=40))
def test_no_two_spans_have_one_id_and_every_parent_is_in_the_same_trace(events):
    spans = folded(*events, ev.TaskCancelled())
    ids = [span.span_id for span in spans]
    assert len(set(ids)) == len(ids)
    assert all(span.parent_id in ids for span in spans if span.parent_id)
    assert {span.trace_id for span in spans} <= {spans[0].trace_id if spans else b""}
    assert all(span.start_us <= span.end_us for span in spans)


CANARY = "c4n4ry"


def test_nothing_that_users_wrote_is_in_a_span_unless_it_is_asked_for():
    said = codec.pack(CANARY)
    events = (
        ev.TaskCreated(agent="trip", input={"to": said}, goal=CANARY),
        claimed(),
        ev.FactLearned(key="who", value=said, source=CANARY),
        ev.DecisionMade(question=CANARY, choice=said, why=CANARY),
        ev.QuestionOpened(question=CANARY),
        ev.PlanSet(steps=(CANARY,)),
        ev.LogWritten(text=CANARY, fields={"a": said}),
        ev.NoteSet(key="n", value=said),
        ev.MessageAdded(message=said),
        ev.ArtifactAdded(artifact_id="1", type="t", data=said, summary=CANARY),
        ev.StateSet(name="n", value=said),
        ev.SignalReceived(name="go", value=said, by=CANARY),
        ev.StepStarted(key="pay#1", name="pay", tool="pay", effect="once", input={"card": said}),
        ev.AttemptFailed(key="pay#1", name="pay", attempt=1, failure=ev.Failure("E", CANARY), retry_us=9, output=said),
        ev.StepCompleted(key="pay#1", name="pay", tool="pay", result=said, input={"card": said}),
        ev.WaitStarted(key="ask#1", wait="person", prompt=said, name="who"),
        ev.WaitEnded(key="ask#1", value=said, by=CANARY, why=CANARY),
        ev.ApprovalAsked(key="pay#2", tool="pay", input={"card": said}, prompt=said),
        ev.ApprovalRefused(key="pay#2", by=CANARY, why=CANARY),
        ev.StepFailed(key="pay#2", name="pay", failure=ev.Failure("E", CANARY), input={"card": said}),
        ev.TaskFailed(failure=ev.Failure("E", CANARY)),
    )
    assert CANARY not in str(folded(*events))
    told = str(folded(*events, reader=Reader(lambda hash: b"")))
    assert told.count(CANARY) > 8 and "gen_ai.tool.call.arguments" in told and "gen_ai.tool.call.result" in told
