"""Questions with a type: people get a form of it, other answers are refused, and the agent gets that type."""

from typing import Literal

import msgspec
import pytest

import holdfast
from holdfast import AsyncTask, InvalidValue, Task, agent


class Seat(msgspec.Struct):
    row: int
    side: Literal["window", "aisle"] = "aisle"


TYPES = {
    "bool": (bool, True, "yes"),
    "int": (int, 3, 3.5),
    "text": (str, "a", 1),
    "choice": (Literal["window", "aisle"], "window", "roof"),
    "struct": (Seat, {"row": 3, "side": "window"}, {"row": "x"}),
    "list": (list[int], [1, 2], [1, "2"]),
}
SEEN = {}


@agent
def asks(task: Task, kind: str) -> None:
    SEEN[kind] = task.ask("which?", answer=TYPES[kind][0], name="q")


@agent
async def asks_awaited(task: AsyncTask, kind: str) -> None:
    SEEN[kind] = await task.ask("which?", answer=TYPES[kind][0], name="q")


@pytest.mark.parametrize("asking", [asks, asks_awaited], ids=["def", "async def"])
@pytest.mark.parametrize("kind", TYPES)
def test_an_answer_has_the_type_that_was_asked_for(url, kind, asking):
    wanted, good, bad = TYPES[kind]
    with holdfast.open(url) as app:
        app.run(asking, {"kind": kind}, id="t")
        item = next(app.inbox("t"))
        assert item.answer, "people see what is asked for"
        with pytest.raises(InvalidValue) as refused:
            app.answer("t", "q", bad, by="ana")
        assert "the answer" in refused.value.message and "it must fit" in refused.value.hint
        app.answer("t", "q", good, by="ana")
        assert app.resume("t", asking).status == "completed"
        assert SEEN[kind] == msgspec.convert(good, wanted)


def test_without_a_type_any_json_is_an_answer_and_the_log_is_as_before():
    @agent
    def plain(task: Task) -> object:
        return task.ask("which?", name="q")

    with holdfast.open("memory:") as app:
        app.run(plain, id="t")
        assert next(app.inbox("t")).answer is None
        started = next(one.event for one in app.events("t") if one.kind == "wait_started")
        assert b'"answer"' not in msgspec.json.encode(started)
        app.answer("t", "q", {"any": ["thing"]})
        assert app.resume("t", plain).result == {"any": ["thing"]}


def test_no_answer_in_time_is_none_whatever_the_type():
    @agent
    def hurries(task: Task) -> object:
        return task.ask("which?", answer=bool, name="q", timeout="1ms")

    with holdfast.open("memory:") as app:
        assert app.run(hurries, id="t").result is None


@pytest.mark.parametrize("odd", ["bool", 3, ["a", "b"], {"type": "boolean"}])
def test_what_is_not_a_type_is_refused_with_what_would_do(odd):
    @agent
    def wrong(task: Task) -> object:
        return task.ask("which?", answer=odd, name="q")

    with holdfast.open("memory:") as app:
        failure = app.run(wrong, id="t").failure
        assert "is not a type" in failure.message and "Literal" in failure.message
