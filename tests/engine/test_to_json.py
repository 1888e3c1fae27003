"""Everything that can be read has `to_json()`: one line, which says the same as the object."""

import asyncio
import json

from holdfast import Budget, StatePatch, agent, tool


@tool(effect="once", risk="high")
def pay(euros: int) -> str:
    return "receipt"


@agent(required_for_risk_levels=["high"], budget=Budget(steps=9))
def worker(task):
    task.fact("city", "Zürich\n", source="ana")
    task.decide("which?", "this", why="cheap")
    task.step(lambda: {"n": 1}, name="one")
    return pay(euros=5)


def test_events_states_rows_and_what_people_read_have_it(app):
    waiting = app.run(worker, id="t", user="ana")
    app.user("ana").patch(StatePatch(set={"seat": "aisle"}))
    app.records("space").append("k", b"data")
    for one in (
        *app.events("t"),
        *app.describe("t"),
        *app.inbox(),
        *app.audit(),
        *app.list(),
        *app.steps("t"),
        *app.user("ana").events(),
        *app.records("space").read("k"),
        waiting,
        waiting.budget,
        app.user("ana").get(),
    ):
        text = one.to_json()
        assert "\n" not in text and isinstance(json.loads(text), dict), one


def test_an_event_says_where_and_when_it_stands_and_what_it_is(app):
    app.run(worker, id="t")
    told = [json.loads(one.to_json()) for one in app.events("t")]
    assert [one["seq"] for one in told] == list(range(1, len(told) + 1))
    assert {one["task"] for one in told} == {"t"} and told[0]["kind"] == "task_created"
    learned = next(one for one in told if one["kind"] == "fact_learned")
    assert learned["event"]["value"] == "Zürich\n" and learned["at"].endswith("Z")


def test_a_state_as_json_is_its_dict(app):
    state = app.run(worker, id="t")
    assert json.loads(state.to_json()) == json.loads(json.dumps(state.to_dict()))


def test_a_web_service_streams_events_as_they_come(app):
    app.run(worker, id="t")
    app.approve("t", "pay#1", by="ana")
    app.run(worker, id="t")

    async def stream():
        return [f"data: {event.to_json()}\n\n" async for event in app.aio.follow("t")]

    lines = asyncio.run(stream())
    assert json.loads(lines[-1].removeprefix("data: "))["kind"] == "task_completed"
