"""Windows and slices: what fits, by whose count, and what is said of the rest."""

import pytest
from hypothesis import assume, given, strategies as st

from holdfast.core import codec
from holdfast.core.context import transcript
from holdfast.core.context.slices import SliceArtifact, SliceFact, slice_context
from holdfast.core.context.tally import Tally, shorten
from holdfast.core.context.window import WindowSummary, fitted, portion, summary_room, window
from holdfast.core.errors import InvalidValue, WindowTooSmall
from holdfast.core.messages import (
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    answer,
    groups,
    parse_all,
    problems,
    render,
    repair,
    system,
)
from holdfast.core.messages.anthropic import OPENING
from holdfast.core.messages.spans import coalesced
from holdfast.core.messages.tokens import Count, count, estimate, estimate_tokens, reported
from tests.conversations import FORMS, broken_conversations, conversations

STRATEGIES = ("drop_oldest", "summarise")
COUNTERS = {"estimate": None, "letters": len, "words": lambda text: len(text.split())}

every_form = pytest.mark.parametrize("form", FORMS)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
limits = st.integers(20, 400) | st.integers(200, 8_000)
counters = st.sampled_from(sorted(COUNTERS)).map(COUNTERS.get)


def say(text, role="user"):
    return Message(role, (Text(text),))


def exchange(id, result, calls=1):
    asked = [ToolCall(f"{id}{number or ''}", "read") for number in range(calls)]
    return [Message("assistant", tuple(asked)), *(answer(call, result) for call in asked)]


def windowed(conversation, counter=None, **options):
    """The window of a conversation, and what is sent."""
    tally = Tally.of(conversation, counter)
    found = window(tally, **options)
    return found, fitted(found, tally, [conversation[at] for at in found.positions])


def attempted(conversation, counter, **options):
    """The same, or how many tokens it would take."""
    try:
        return *windowed(conversation, counter, **options), 0
    except InvalidValue as error:
        return None, None, error.details["needed"]


def total(messages, counter=None):
    return sum(count(message, counter).tokens for message in messages)


def letters(sent):
    """How many letters a provider gets, apart from pictures and from the names of types and fields."""
    if isinstance(sent, dict):
        quiet = ("type", "source", "image_url", *([] if "name" not in sent else ["input"]))
        inputs = len(codec.dump(sent["input"])) if isinstance(sent.get("input"), dict) else 0
        return inputs + sum(letters(value) for key, value in sent.items() if key not in quiet)
    if isinstance(sent, list):
        return sum(map(letters, sent))
    return len(sent) if isinstance(sent, str) else 0


# Whatever the conversation, the limit and the strategy


@every_strategy
@every_form
@given(broken_conversations(), limits, st.none() | st.integers(0, 8), counters, st.data())
def test_what_a_window_gives_fits_is_whole_and_can_be_sent(
    form, strategy, conversation, limit, keep_last, counter, data
):
    conversation = repair(conversation)[0]
    assume(any(message.role == "user" for message in conversation))
    pinned = data.draw(st.sets(st.integers(0, len(conversation) - 1), max_size=2))
    options = {"max_tokens": limit, "keep_last": keep_last, "pinned": pinned, "strategy": strategy}
    options["keep_turns"] = turns = data.draw(st.none() | st.integers(0, 4))
    found, sent, needed = attempted(conversation, counter, **options)
    if needed:
        assert needed > limit and windowed(conversation, counter, **options | {"max_tokens": needed})
        return
    assert found == windowed(conversation, counter, **options)[0], "the same every time"
    assert total(sent, counter) <= found.tokens <= limit
    written = render(sent, form)
    assert problems(written, form) == []
    apart = letters(system(sent)) if form == "anthropic" else 0  # other forms have it among the messages
    assert counter is not len or letters(written) + apart <= limit, "by what is really sent"
    kept = found.positions
    assert kept == sorted(kept)
    assert sorted([*kept, *(at for span in found.left_out for at in span)]) == list(range(len(conversation)))
    for group in groups(conversation):
        assert len(set(group) & set(kept)) in (0, len(group)), "whole groups"
    newest = max(at for at, message in enumerate(conversation) if message.role == "user")
    always = {at for at, message in enumerate(conversation) if message.role in ("system", "developer")}
    assert {newest, len(conversation) - 1, *pinned, *always} <= set(kept)
    assert set(range(len(conversation))[-(keep_last or 0) or len(conversation) :]) <= set(kept), "as many as promised"
    replies = [group.start for group in groups(conversation) if conversation[group.start].role == "assistant"]
    assert set(replies[-turns:] if turns else ()) <= set(kept), "as many turns as promised"
    assert all(sent[index] == conversation[at] for index, at in enumerate(kept) if at in pinned), (
        "pinned means as it is"
    )


@every_form
@given(broken_conversations(), limits)
def test_a_conversation_with_open_calls_fits_even_when_they_are_answered_afterwards(form, conversation, limit):
    unique = {call.id for message in conversation for call in message.calls}
    assume(len(unique) == sum(len(message.calls) for message in conversation))
    try:
        _, sent = windowed(conversation, max_tokens=limit)
    except InvalidValue:
        return
    mended = repair(sent)[0]
    assert total(mended) <= limit
    assert not render(mended, form) or problems(render(mended, form), form) == []


@given(conversations(max_turns=20), st.integers(300, 3_000), st.text("ab ", max_size=300), st.integers(0, 8))
def test_summaries_take_the_place_of_what_they_cover_and_nothing_is_lost(conversation, limit, said, keep_last):
    """A conversation grows; whenever asked to, somebody summarises. All is always kept, covered or named."""
    tally, summary, options = Tally(), None, {"max_tokens": limit, "strategy": "summarise", "keep_last": keep_last}
    for at, message in enumerate(conversation):
        tally.add(message)
        try:
            found = window(tally, summary=summary, **options)
        except InvalidValue:
            return
        if found.summarise:
            summary = WindowSummary(said[: min(512, limit // 4)], found.covers)
            found = window(tally, summary=summary, **options)
            assert not found.summarise, "once is enough"
        sent = fitted(found, tally, [conversation[one] for one in found.positions])
        assert total(sent) <= found.tokens <= limit
        covered = {one for span in (found.summary.covers if found.summary else ()) for one in span}
        assert found.summary is None or set(range(at + 1)) - set(found.positions) <= covered
        for form in FORMS:
            written = render(repair(sent)[0], form)
            assert not written or problems(written, form) == []


@given(conversations(max_turns=20), limits, counters, st.none() | st.integers(0, 12), st.none() | st.integers(0, 4))
def test_who_asks_for_the_newest_messages_gets_no_less_than_who_does_not(conversation, limit, counter, last, turns):
    found, _, refused = attempted(conversation, counter, max_tokens=limit)
    asked, _, too_small = attempted(conversation, counter, max_tokens=limit, keep_last=last, keep_turns=turns)
    if refused or too_small:
        assert too_small, "what must be kept is not less"
    else:
        assert set(found.positions) <= set(asked.positions)


@given(conversations(max_turns=20), limits, counters)
def test_no_more_is_left_out_than_must_be(conversation, limit, counter):
    try:
        found, _ = windowed(conversation, counter, max_tokens=limit, keep_last=0)
    except InvalidValue:
        return
    if total(conversation, counter) + 40 <= limit:
        assert not found.left_out and not found.shortened
    if found.left_out and not found.shortened:
        left_out = [at for span in found.left_out for at in span]
        if any(conversation[at].role == "user" for at in found.positions if at < left_out[-1]):
            back_to = next(one.start for one in groups(conversation) if left_out[-1] in one)
        else:  # it begins with the user if it can: going back to the one before would have been too much
            back_to = max((at for at in left_out if conversation[at].role == "user"), default=0)
        more = total([conversation[at] for at in left_out if at >= back_to], counter)
        assert found.tokens + more + 40 > limit


# Cases


def test_the_oldest_whole_groups_go_first_and_it_says_so():
    conversation = [say("Be brief.", "system"), say("one"), *exchange("a", "1 " * 50), say("two"), *exchange("b", "2")]
    found, sent = windowed(conversation, max_tokens=100, keep_last=2)
    assert [message.text for message in sent] == ["Be brief.", "two", "", "2"]
    assert found.left_out == (range(1, 4),)
    assert str(found) == f"4 messages, {found.tokens} tokens (estimate); left out: 1-3 ({found.left_out_tokens} tokens)"


def test_the_newest_message_of_the_user_survives_any_number_of_calls():
    conversation = [say("do it"), *(message for n in range(50) for message in exchange(f"c{n}-", "done"))]
    found, sent = windowed(conversation, max_tokens=200)
    assert sent[0] == say("do it") and sent[-1] == conversation[-1]
    assert len(found.left_out) == 1 and found.left_out[0].start == 1


def test_a_window_begins_with_the_user_if_it_can():
    conversation = [message for n in range(20) for message in (say(f"question {n}"), say(f"answer {n}", "assistant"))]
    for limit in range(60, 200):
        _, sent = windowed(conversation, max_tokens=limit, keep_last=2)
        assert sent[0].role == "user"


def test_a_result_too_large_is_cut_and_points_to_the_whole():
    tally = Tally()
    conversation = [say("read it"), *exchange("c1", "line of a file\n" * 5_000)]
    for message in conversation:
        tally.add(message, pointer="all of it is artifact log-1")
    found = window(tally, max_tokens=500)
    sent = fitted(found, tally, conversation)
    assert found.shortened.keys() == {2}
    assert "all of it is artifact log-1" in sent[2].text and sent[2].text.startswith("line of a file")
    assert total(sent) <= 500 and total(sent) > 450, "the room there is, is used"
    assert sent[2].result.call_id == "c1"


def test_of_several_large_results_the_largest_are_cut_first():
    conversation = [say("read"), *exchange("c", "", 3)[:1]]
    sizes = {"c": 40, "c1": 4_000, "c2": 40_000}
    conversation += [answer(ToolCall(id, "read"), "word " * (size // 5)) for id, size in sizes.items()]
    found, sent = windowed(conversation, max_tokens=1_000)
    assert found.shortened.keys() == {3, 4} and len(set(found.shortened.values())) == 1
    assert sent[2] == conversation[2]


def test_what_is_pinned_is_never_cut():
    conversation = [say("read"), *exchange("a", "word " * 100), *exchange("b", "word " * 400)]
    found, sent = windowed(conversation, max_tokens=300, pinned=[2])
    assert found.shortened.keys() == {4} and sent[2] == conversation[2]
    with pytest.raises(InvalidValue):
        windowed(conversation, max_tokens=300, pinned=[4])


def test_results_can_be_kept_short_always():
    conversation = [say("read"), *exchange("a", "word " * 1_000), *exchange("b", "short")]
    tally = Tally.of(conversation, max_result_tokens=100)
    found = window(tally, max_tokens=100_000)
    assert found.shortened == {2: 100} and found.tokens < 200
    assert total(fitted(found, tally, conversation)) <= found.tokens
    assert window(tally, max_tokens=140, keep_last=2).shortened[2] < 100, "or shorter still, before it is left out"
    assert window(tally, max_tokens=70, keep_last=2).left_out == (range(1, 3),)


def test_shortening_leaves_ids_and_errors_and_says_how_much_is_missing(texts):
    long = Message("tool", (ToolResult("c1", (Text("x" * 1_000), Image("https://e.com/a.png")), is_error=True),))
    cut = shorten(long, 60)
    assert cut.result.call_id == "c1" and cut.result.is_error
    texts.check(cut.text)
    assert shorten(answer(ToolCall("c1", "df"), "91 %"), 60).text == "91 %"


def test_what_cannot_fit_is_refused_and_says_by_how_much(texts):
    conversation = [say("Be brief. " * 100, "system"), say("one")]
    with texts.raises(InvalidValue) as caught:
        windowed(conversation, max_tokens=100)
    assert caught.value.details == {"needed": total(conversation), "over": total(conversation) - 100}


def test_room_can_be_set_aside_for_tools():
    conversation = [say(f"message {n}") for n in range(20)]
    assert windowed(conversation, max_tokens=100, reserve=40)[0] == windowed(conversation, max_tokens=60)[0]


def test_a_group_with_an_open_call_is_kept_however_old_with_room_for_its_answer():
    conversation = [say("go"), exchange("c1", "")[0], *(say(f"never mind {n}") for n in range(40))]
    conversation.insert(3, say("thinking", "assistant"))
    for limit in range(100, 400, 7):
        found, sent = windowed(conversation, max_tokens=limit, keep_last=2)
        assert 1 in found.positions and found.left_out
        assert total(repair(sent)[0]) <= limit


@pytest.mark.parametrize("keep_last", [0, 3, 6])
def test_the_opening_that_some_providers_want_is_counted(keep_last):
    conversation = [say("hello, I am here to help", "assistant"), *exchange("c1", "91 %"), say("is it full?")]
    conversation += [say("almost", "assistant"), *exchange("c2", "92 %")]
    least = attempted(conversation, len, max_tokens=140, keep_last=keep_last)[-1] or 140
    for limit in range(least, 400):
        found, sent = windowed(conversation, len, max_tokens=limit, keep_last=keep_last)
        opened = render(sent, "anthropic")[0]["content"] == OPENING
        assert total([say(OPENING)] * opened + sent, len) <= found.tokens <= limit


def test_a_summary_stands_right_after_the_system_messages_and_makes_room():
    conversation = [say("Be brief.", "system"), *(say(f"message number {n}") for n in range(100))]
    tally = Tally.of(conversation)
    first = window(tally, max_tokens=400, strategy="summarise")
    assert first.summarise == first.left_out and first.summary is None
    second = window(tally, max_tokens=400, strategy="summarise", summary=WindowSummary("They counted.", first.covers))
    assert second.kept == first.kept and not second.summarise
    sent = fitted(second, tally, [conversation[at] for at in second.positions])
    assert sent[1].role == "user" and "They counted." in sent[1].text
    assert second.tokens < 250, "it need not be done again next turn"


def test_room_is_left_for_the_summary_that_is_asked_for():
    conversation = [say(f"message number {n} " + "word " * 30) for n in range(30)]
    tally, options = Tally.of(conversation), {"max_tokens": 400, "keep_last": 6, "strategy": "summarise"}
    first = window(tally, **options)
    summary = WindowSummary("word " * 70, first.covers)
    assert 80 < total([summary.message()]) <= 100, "a quarter of the window"
    second = window(tally, **options, summary=summary)
    assert second.kept == first.kept and second.summary == summary and not second.summarise


def test_counts_say_where_they_come_from_and_the_weakest_is_named():
    tally = Tally(len)
    tally.add(say("one"), Count(7, "reported"))
    assert window(tally, max_tokens=100).basis == "reported"
    tally.add(say("two"))
    assert window(tally, max_tokens=100).basis == "exact"
    tally.add(say("three"), Count(7, "estimate"))
    assert window(tally, max_tokens=100).basis == "estimate"
    assert tally.totals == [0, 7, 7 + 4 + len("user\ntwo"), 7 + 4 + len("user\ntwo") + 7]


@pytest.mark.parametrize("keep_last", [1, 2, 4, 6, 12])
def test_as_many_messages_as_asked_for_are_kept_or_the_window_is_refused(keep_last):
    conversation = [say(f"message {n} " + "word " * 20, ("user", "assistant")[n % 2]) for n in range(20)]
    least = total(conversation[-max(2, keep_last) :])  # the newest message of the user always stays
    kept = windowed(conversation, max_tokens=least + 20, keep_last=keep_last)[0].positions
    assert kept[-keep_last:] == list(range(20))[-keep_last:]
    with pytest.raises(WindowTooSmall) as refused:
        windowed(conversation, max_tokens=least - 1, keep_last=keep_last)
    assert refused.value.details["needed"] >= least
    found = windowed(conversation, max_tokens=total(conversation[-2:]) + 20)[0]
    assert found.positions == [18, 19], "without a number, as many as fit"


def test_a_turn_is_a_reply_with_what_led_to_it_and_what_came_of_it():
    chat = [say("Be brief.", "system")]
    for n in range(5):
        chat += [say(f"question {n} " + "word " * 20), say(f"answer {n} " + "word " * 20, "assistant")]
    chat.append(say("one more " + "word " * 20))
    kept = windowed(chat, max_tokens=total(chat) - 30, keep_turns=2)[0].positions
    assert set(kept) >= {0, 7, 8, 9, 10, 11}
    least = total([chat[0], *chat[7:]])
    assert windowed(chat, max_tokens=least, keep_turns=2)[0].positions == [0, 7, 8, 9, 10, 11]
    with pytest.raises(WindowTooSmall):
        windowed(chat, max_tokens=least - 1, keep_turns=2)
    loop = [say("free space"), *(one for n in range(6) for one in exchange(f"c{n}", "91 %", calls=2))]
    least = total([loop[0], *loop[-9:]])
    assert windowed(loop, max_tokens=least, keep_turns=3)[0].positions == [0, *range(10, 19)]
    with pytest.raises(WindowTooSmall):
        windowed(loop, max_tokens=least - 40, keep_turns=3)
    assert windowed(loop, max_tokens=least - 40)[0].positions[-1] == 18


def test_of_messages_and_turns_the_one_that_keeps_more_counts():
    loop = [say("free space"), *(one for n in range(6) for one in exchange(f"c{n}", "91 %"))]
    for options in ({"keep_last": 4, "keep_turns": 1}, {"keep_last": 1, "keep_turns": 2}):
        needed = attempted(loop, None, max_tokens=30, **options)[-1]
        assert windowed(loop, max_tokens=needed, **options)[0].positions == [0, 9, 10, 11, 12]


def test_what_is_promised_is_sent_though_a_summary_covers_it():
    conversation = [say(f"message number {n}") for n in range(40)]
    summary = WindowSummary("They counted.", (range(38),))
    found, sent = windowed(conversation, max_tokens=200, keep_last=6, strategy="summarise", summary=summary)
    assert found.positions == list(range(34, 40)) and found.summary == summary and not found.uncovered
    assert [one.text for one in sent[1:]] == [one.text for one in conversation[-6:]]


def test_an_empty_conversation_has_an_empty_window():
    found = window(Tally(), max_tokens=10)
    assert found.kept == found.left_out == () and found.tokens == 0


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"keep_last": -1},
        {"keep_last": 2.0},
        {"keep_last": True},
        {"keep_turns": -1},
        {"keep_turns": "2"},
        {"strategy": "magic"},
        {"pinned": [5]},
        {"reserve": -1},
    ],
    ids=str,
)
def test_bad_options_are_refused_with_a_remedy(options):
    with pytest.raises(InvalidValue) as caught:
        windowed([say("one")], **{"max_tokens": 100, **options})
    assert caught.value.hint


# Counting


def test_the_estimate_is_near_on_what_agents_say():
    prose = "The agent looked at the disk and found that almost all of it was taken by old log files. " * 10
    assert 170 <= estimate(prose) <= 230  # 190 by o200k_base
    json = '{"id": 48213, "name": "disk", "used": 91.2, "path": "/var/log/syslog.1", "ok": true}, ' * 10
    assert 340 <= estimate(json) <= 480  # 410
    assert estimate("") <= 1
    assert estimate("\ud800") >= 1


def test_everything_that_is_sent_counts():
    assert estimate_tokens(say("a" * 400)) > estimate_tokens(say("a"))
    assert estimate_tokens(Message("user", (Image("https://e.com/a.png"),))) > 1_000
    long = Message("assistant", (ToolCall("c1", "df", '{"path": "' + "a" * 400 + '"}'),))
    assert estimate_tokens(long) > estimate_tokens(exchange("c1", "")[0]) + 80
    thought = parse_all([{"role": "assistant", "content": "a", "reasoning_content": "hm " * 100}])
    assert isinstance(thought[0].parts[0], Reasoning) and estimate_tokens(thought[0]) > 50


# Context slices

artifacts = st.builds(
    SliceArtifact,
    id=st.sampled_from(["a1", "a2", "a3"]),
    type=st.sampled_from(["", "log"]),
    summary=st.text("ab ", max_size=60),
    bytes=st.integers(0, 10**6),
    step=st.sampled_from(["look", "free", ""]),
    text=st.text("xyz\n", max_size=200),
)
facts = st.builds(SliceFact, key=st.sampled_from(["used", "host"]), value=st.integers() | st.text("ab", max_size=80))


@given(
    st.lists(st.text("ab?", max_size=20), max_size=3),
    st.lists(artifacts, max_size=6),
    st.lists(facts, max_size=10),
    st.integers(10, 1_000),
    st.sampled_from(["max_bytes", "max_tokens"]),
    counters,
)
def test_a_slice_always_fits_and_has_what_matters_most(questions, artifacts, facts, limit, unit, counter):
    given_ = ("free space", "look", questions, artifacts, facts)
    options = {unit: limit, "counter": counter}
    try:
        found = slice_context(*given_, **options)
    except InvalidValue as error:
        needed = error.details["needed"]
        found, limit = slice_context(*given_, **options | {unit: needed}), needed
        options[unit] = needed
    assert found == slice_context(*given_, **options)
    measure = (lambda text: len(text.encode())) if unit == "max_bytes" else counter or estimate
    assert measure(found.text) == found.size <= limit
    assert (found.goal, found.step, list(found.questions)) == ("free space", "look", questions)
    assert all(question in found.text for question in questions)
    assert len(found.artifacts) + len(found.left_out_artifacts) == len(artifacts)
    assert len(found.facts) + len(found.left_out_facts) == len(facts)
    if found.left_out_artifacts or found.left_out_facts:
        assert "Left out: " in found.text


def test_artifacts_of_the_step_come_before_facts_and_the_newest_facts_before_older_ones():
    many = [SliceFact(f"fact-{n}", "x" * 20) for n in range(50)]
    small = SliceArtifact("a1", "log", "what df said", 9, "look", "91 % used")
    large = SliceArtifact("a2", "log", "all of the log", 10**6, "look", "y" * 10_000)
    other = SliceArtifact("a3", "log", "an old one", 5, "before", "z")
    found = slice_context("free space", "look", (), [other, small, large], many, max_bytes=400)
    assert [one.id for one in found.artifacts] == ["a1", "a2"]
    assert "91 % used" in found.text and "all of the log" in found.text and "yyy" not in found.text
    assert [fact.key for fact in found.facts][-1] == "fact-49" and "fact-0" in found.left_out_facts
    assert found.left_out_artifacts == ("a3",)
    assert len(found.facts) + len(found.left_out_facts) == 50


def test_a_slice_fits_by_a_counter_that_counts_more_for_the_whole_than_for_its_parts():
    facts = [SliceFact(f"fact-{n}", "x" * 20) for n in range(20)]
    found = slice_context("goal", "look", (), (), facts, max_tokens=900, counter=lambda text: len(text) ** 2 // 100)
    assert len(found.text) ** 2 // 100 == found.size <= 900
    assert 1 <= len(found.facts) < 20


def test_other_artifacts_are_named_if_there_is_room_but_not_shown():
    other = SliceArtifact("a3", "log", "an old one", 5, "before", "zzz")
    found = slice_context("free space", "look", (), [other], max_bytes=400)
    assert found.artifacts[0].summary == "an old one" and "zzz" not in found.text


def test_the_bytes_of_artifacts_can_have_a_limit_of_their_own():
    two = [SliceArtifact(f"a{n}", "log", "half", 50, "look", "x" * 50) for n in range(2)]
    found = slice_context("free space", "look", (), two, max_bytes=1_000, max_artifact_bytes=60)
    assert [bool(one.text) for one in found.artifacts] == [False, True]


@pytest.mark.parametrize("options", [{}, {"max_bytes": 10, "max_tokens": 10}, {"max_bytes": 5}], ids=str)
def test_a_slice_without_a_limit_or_that_cannot_fit_is_refused(options):
    with pytest.raises(InvalidValue) as caught:
        slice_context("free space", "look", **options)
    assert caught.value.hint


# Taken back, portioned, told in words


@given(broken_conversations(), broken_conversations(), st.data())
def test_a_tally_rewound_is_as_if_the_rest_had_never_come(conversation, other, data):
    keep = data.draw(st.integers(0, len(conversation)))
    cap = data.draw(st.sampled_from([None, 60]))
    tally = Tally.of(conversation, max_result_tokens=cap)
    tally.rewind(keep)
    fresh = Tally.of(conversation[:keep], max_result_tokens=cap)
    for message in [None, *other]:
        if message is not None:
            tally.add(message)
            fresh.add(message)
        mine, theirs = vars(tally) | vars(tally.groups), vars(fresh) | vars(fresh.groups)
        del mine["groups"], theirs["groups"]
        assert mine == theirs


@given(conversations(max_turns=20), st.integers(10, 2_000), st.data())
def test_a_portion_is_whole_groups_from_the_first_on_and_fits_unless_it_is_one(conversation, limit, data):
    tally, whole = Tally.of(conversation), groups(conversation)
    first = data.draw(st.integers(0, len(whole) - 1))
    skipped = data.draw(st.sets(st.integers(first, len(whole) - 1)))
    left = [group for at, group in enumerate(whole) if at >= first and at not in skipped]
    if not left:
        return
    taken = portion(tally, coalesced(left), limit)
    found = [group for group in left if any(group.start in span for span in taken)]
    assert found == left[: len(found)] and found
    assert [at for span in taken for at in span] == [at for group in found for at in group]
    size = sum(map(tally.tokens, found))
    assert size <= limit or len(found) == 1
    assert found == left or size + tally.tokens(left[len(found)]) > limit


@given(conversations(max_turns=20), st.integers(160, 2_000), st.text("ab \n", max_size=400), counters)
def test_a_request_for_a_summary_fits_and_so_does_what_is_kept_of_the_answer(conversation, limit, said, counter):
    room = summary_room(limit) or 40
    earlier = transcript.brief(said, room, counter)
    if earlier != said:
        assert earlier.endswith("…")
    floor = total([WindowSummary(" …", ()).message()], counter)
    assert total([WindowSummary(earlier, ()).message()], counter) <= max(room, floor)
    asked = transcript.request(conversation, earlier, max_tokens=limit * 4, room=room, counter=counter)
    assert [one["role"] for one in asked] == ["system", "user"] and earlier in asked[1]["content"]
    least = total(parse_all(transcript.request([], earlier, max_tokens=1, room=room, counter=counter)), counter)
    lines = 20 * len(conversation)
    assert total(parse_all(asked), counter) <= max(limit * 4, least + lines)


def test_what_a_provider_reports_is_taken_if_it_can_be_believed():
    said = {"role": "assistant", "content": "x"}
    assert reported({**said, "usage": {"output_tokens": 9}}) == Count(13, "reported")
    thought = {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}
    assert reported({**said, "usage": thought}) == Count(9, "reported")
    for usage in (None, {}, 7, {"completion_tokens": 0}, {"completion_tokens": "9"}, {"completion_tokens": True}):
        assert reported({**said, "usage": usage}) is None
    assert reported({**said, "usage": {"output_tokens": 9}}, least=10) is None


def test_a_window_with_room_for_all_needs_no_summary_and_one_without_names_what_is_uncovered():
    conversation = [say(f"message number {n}") for n in range(40)]
    summary = WindowSummary("They counted.", (range(20),))
    tally = Tally.of(conversation)
    whole = window(tally, max_tokens=10_000, strategy="summarise", summary=summary)
    assert whole.summary is None and not whole.left_out and not whole.uncovered
    cut = window(tally, max_tokens=200, strategy="summarise", summary=summary)
    assert cut.summary == summary and cut.uncovered == cut.summarise and cut.uncovered[0].start == 20
    tight = window(tally, max_tokens=100, strategy="summarise", summary=summary)
    assert tight.summary is None and tight.uncovered == tight.left_out and not tight.summarise, (
        "too small to say a thing"
    )
