"""How a task went, in time: any legal history becomes rows and lanes that hold together, and so do the old logs."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

import holdfast
from holdfast import Task, agent
from holdfast.core import events as ev
from holdfast.core.codec import LoggedEvent
from holdfast.core.errors import ValueDamaged
from holdfast.engine.lists.waterfall import MOST_PIECES, Waterfall, strip
from tests.legal import LOG, histories

HISTORIES = sorted((Path(__file__).parents[2] / "histories").glob("*.jsonl"))


def nowhere(hash):
    raise ValueDamaged(hash, "it is not at hand")


def logged(events):
    return [LoggedEvent(LOG, seq, "event", seq * 1_000_000, one, b"") for seq, one in enumerate(events, 1)]


def holds_together(went):
    """What is true of every waterfall."""
    for row in went.rows.values():
        assert 1 <= row.first <= row.last <= went.seq
        assert all(bar.end_us is None or bar.end_us >= bar.start_us for bar in row.bars)
        assert sum(bar.end_us is None for bar in row.bars) <= 1 or row.bars[-1].end_us is None
    assert all(one.end_us is not None and one.end_us <= two.start_us for one, two in pairwise(went.lanes))
    pieces = strip(went, went.at_us + 1)
    assert len(pieces) <= MOST_PIECES and all(ms >= 0 for _, ms in pieces)


@given(histories())
def test_any_legal_history_becomes_rows_and_lanes(events):
    went = Waterfall(nowhere)
    went.extend(logged(events))
    holds_together(went)


@given(histories())
def test_event_by_event_it_comes_to_the_same_as_at_once(events):
    whole, parts = Waterfall(nowhere), Waterfall(nowhere)
    whole.extend(logged(events))
    changed = {}
    for one in logged(events):
        changed |= {row.key: row for row in parts.add(one)}
    assert parts.rows == whole.rows and parts.lanes == whole.lanes
    assert {*changed} <= {row.key for row in parts.rows.values()}


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_old_logs_become_rows_and_lanes(path):
    with holdfast.open("memory:") as app:
        app.import_(path)
        for row in app.list():
            went = Waterfall(app.fetch)
            went.extend(app.events(row.id))
            holds_together(went)
            assert went.seq == app.head(row.id)


REPLY = {
    "role": "assistant",
    "content": "I look for flights.",
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "search_flights", "arguments": '{"to": "OSL"}'}}
    ],
}


@agent
def talks(task: Task) -> str:
    task.step(lambda: REPLY, name="model")
    task.step(lambda: ["SK4035", "DY641"], name="search_flights")
    task.step(lambda: "x" * 100_000, name="read_page")
    return task.step(lambda flight: "hold-91c2", "SK4035", name="hold_seat")


def test_rows_show_results_as_people_read_them():
    """A reply is what it says and which calls it asks for; a text has no quotes. Arguments stay as code."""
    with holdfast.open("memory:") as app:
        app.run(talks, id="talk")
        went = Waterfall(app.fetch)
        went.extend(app.events("talk"))
    told = {row.name: (row.given, row.came) for row in went.rows.values()}
    assert told["model"] == ("", "I look for flights. → search_flights(to=OSL)")
    assert told["search_flights"] == ("", "[SK4035, DY641]")
    assert told["hold_seat"] == ('flight="SK4035"', "hold-91c2")
    assert told["read_page"][1] == "x" * 89 + "…"


@agent
def steps(task: Task) -> int:
    for number in range(200):
        task.step(abs, number, name="work")
    return 200


def test_a_pause_that_was_over_before_it_was_recorded_is_in_the_strip():
    """Where a machine is busy, the next try may be due before the failure of the last one is written."""
    failure = ev.Failure(type="OSError", message="503")
    tried = {"key": "a#1", "name": "a", "failure": failure}
    went = Waterfall(nowhere)
    went.extend(
        logged(
            [
                ev.TaskCreated(agent="x"),
                ev.TaskClaimed(holder="1-x"),
                ev.AttemptFailed(**tried, attempt=1, retry_us=2_500_000),
                ev.AttemptFailed(**tried, attempt=2, retry_us=4_500_000),
            ]
        )
    )
    assert [kind for kind, _ in strip(went, went.at_us)] == ["failed", "pause", "failed", "pause"]


def test_a_strip_of_many_steps_is_cut_to_64_pieces():
    with holdfast.open("memory:") as app:
        app.run(steps, id="many")
        went = Waterfall(app.fetch)
        went.extend(app.events("many"))
        assert len(went.rows) == 200 and 32 <= len(strip(went, went.at_us)) <= MOST_PIECES
