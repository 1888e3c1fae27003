"""The conversation as people read it: messages in one form, calls with their results and steps, people's answers."""

import holdfast
from holdfast import Task, agent, tool
from holdfast.engine.lists.chat import chat
from tests.web.trip import booked


def entries(app, id, seq=None):
    task = app.get(id) if seq is None else app.at(id, seq)
    return chat(task.events(), app.fetch)


def test_a_call_has_its_result_and_the_step_it_became(url):
    with holdfast.open(url) as app:
        booked(app)
        found = entries(app, "trip-oslo-14")
        assert [(one.kind, one.role) for one in found] == [
            *(("message", "system"), ("message", "user"), ("message", "assistant")),
            *(("question", ""), ("answer", ""), ("message", "assistant"), ("message", "assistant")),
        ]
        first, second, last = (one for one in found if one.role == "assistant")
        assert [(one.name, one.arguments, one.step) for one in first.calls] == [
            ("search_flights", '{"to": "OSL"}', "1/~1/search_flights#1"),
            ("search_flights", '{"to": "TRF"}', "1/~2/search_flights#1"),
        ], "two calls of one tool, told apart by their arguments"
        assert [one.result for one in second.calls] == ["hold-91c2"] and second.calls[0].step == "2/~1/hold_seat#1"
        assert (first.tokens, first.cost, first.step, last.calls) == (1_920, 0.05, "1/model#1", [])
        asked, answered = (one for one in found if one.kind in ("question", "answer"))
        assert (asked.parts[0].text, answered.parts[0].text, answered.by) == ("Window or aisle?", "aisle", "ana")


def test_at_a_moment_a_call_without_a_result_has_none(url):
    with holdfast.open(url) as app:
        booked(app)
        asked = next(one.seq for one in app.events("trip-oslo-14") if one.kind == "approval_asked")
        call = entries(app, "trip-oslo-14", asked)[-1].calls[0]
        assert (call.result, call.step) == (None, "2/~1/hold_seat#1")


@tool(effect="read")
def look(q: str) -> str:
    return q


FORMS = (
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x:y"}}]},
    {"role": "assistant", "content": "b"},
)


@agent
def odd(task: Task) -> None:
    for one in FORMS:
        task.message(one)


def test_parts_that_are_not_text_are_named():
    with holdfast.open("memory:") as app:
        app.run(odd, id="odd")
        found = entries(app, "odd")
        assert [[(part.kind, part.text) for part in one.parts] for one in found] == [
            [("text", "a"), ("image", "x:y")],
            [("text", "b")],
        ]


@agent
def long_talk(task: Task) -> None:
    for number in range(20):
        task.message({"role": "user", "content": f"message {number} " + "word " * 60})
    task.summarise(lambda messages: "they said words", max_tokens=400)


def test_messages_that_a_summary_stands_for_are_not_sent():
    with holdfast.open("memory:") as app:
        app.run(long_talk, id="talk")
        found = entries(app, "talk")
        summary = next(one for one in found if one.kind == "summary")
        assert summary.parts[0].text == "they said words"
        sent = [one.is_sent for one in found if one.kind == "message"]
        assert not sent[0] and sent[-1], "the oldest are covered, the newest are not"
