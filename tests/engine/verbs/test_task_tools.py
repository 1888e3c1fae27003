"""Tools that the task itself answers when a model calls them: a question to a person, and what was made."""

import json

from holdfast import ask_person, read_artifact, tool
from holdfast.testing import crash_everywhere
from tests.engine.both import events

STORES = ("memory", "sqlite", "postgres")


@tool(effect="read")
def look(place: str) -> str:
    return f"seen {place}"


def reply(*calls):
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def asking(either):
    @either()
    def talks(task):
        kept = task.artifact({"seats": [1, 2]}, summary="seats")
        asked = reply(
            ("ask_person", {"question": "Which seat?"}),
            ("look", {"place": "row 7"}),
            ("read_artifact", {"artifact_id": kept, "length": 5}),
            ("ask_person", {"question": "Which meal?"}),
        )
        task.message(asked)
        told = yield task.call_tools(asked, [ask_person, look, read_artifact])
        return [one["content"] for one in told]

    return talks


ANSWERS = {"Which seat?": "aisle", "Which meal?": {"soup": True}}
TOLD = ["aisle", "seen row 7", '{"length":15,"next":5,"text":"{\\"sea"}', '{"soup":true}']


def answer_all(app, id):
    for item in list(app.inbox(id)):
        app.answer(id, item.key, ANSWERS[item.prompt], by="ana")


def test_a_question_waits_for_a_person_while_the_other_calls_are_made(app, either):
    talks = asking(either)
    waiting = app.run(talks, id="t")
    assert (waiting.status, waiting.waiting.kind, waiting.phase) == ("waiting", "person", "waiting_feedback")
    assert sorted(item.prompt for item in app.inbox("t")) == ["Which meal?", "Which seat?"]
    first = next(iter(app.inbox("t")))
    assert app.answer("t", first.key, ANSWERS[first.prompt]).phase == "waiting_feedback", "one is still asked"
    answer_all(app, "t")
    assert app.get("t").phase == "idle"
    done = app.run(talks, id="t")
    assert done.result == TOLD
    assert len(events(app, "wait_started")) == 2 and done.steps["~2/look#1"].attempts == 1


def test_a_crash_anywhere_asks_and_reads_once(either):
    def finish(app, state):
        answer_all(app, state.id)

    def check(state, world):
        assert state.result == TOLD

    assert crash_everywhere(asking(either), finish=finish, check=check, sample=10).survived


def test_what_a_model_gets_wrong_it_is_told(app, either, texts):
    @either()
    def talks(task):
        asked = reply(
            ("ask_person", {}),
            ("ask_person", {"question": 5}),
            ("read_artifact", {"artifact_id": "none"}),
            ("read_artifact", {"artifact_id": task.artifact("text"), "start": -1}),
        )
        task.message(asked)
        told = yield task.call_tools(asked, [ask_person, read_artifact])
        return [one["content"] for one in told]

    for told in app.run(talks, id="t").result:
        texts.check(told)
