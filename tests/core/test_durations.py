"""Lengths of time, rates and retries as people write them, and what is said of those that cannot be."""

import math
from datetime import datetime, timedelta
from http import HTTPStatus

import pytest

from holdfast import Budget, InvalidValue, Queue, Retry, agent, tool
from holdfast.core import retries
from holdfast.core.durations import seconds


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("soon", "deadline='soon' is not a length of time"),
        ("", "deadline='' is not a length of time"),
        (True, "deadline=True is not a length of time"),
        (math.nan, "deadline=nan is not a length of time"),
        (-1, "deadline=-1 is not a length of time .give one that is not negative"),
        (timedelta(seconds=-1), "is not a length of time"),
        (math.inf, "deadline=inf is too long .give less than 1e10 seconds"),
        (1e12, "is too long"),
        (10**400, "is too long"),
        (0, 'deadline=0 lets nothing happen .give for example "5m"'),
        (datetime(2026, 11, 18), r"deadline= is a length of time from the start, not a moment \(2026-11-18"),
    ],
)
def test_what_is_no_length_of_time_is_refused_with_the_reason(given, why):
    with pytest.raises(InvalidValue, match=why):
        seconds(given, "deadline", above_zero=True)


NOTHING = {
    "deadline of an agent": lambda: agent(deadline=0)(_work),
    "deadline of a task": lambda app: app.run(_agent, id="t", deadline="0s"),
    "deadline of a start": lambda app: app.start(_agent, id="t", deadline=0),
    "timeout of a tool": lambda: tool(timeout=0)(_tool),
    "wall time": lambda: Budget(wall_time=0),
}


def _work(task):
    return task.step(len, "a", timeout=0)


def _tool() -> int:
    return 1


_agent = agent(_work)


@pytest.mark.parametrize("what", NOTHING)
def test_no_time_at_all_is_refused(what, app):
    make = NOTHING[what]
    with pytest.raises(InvalidValue, match="lets nothing happen"):
        make(app) if make.__code__.co_argcount else make()
    assert not app.list()


def test_a_step_with_no_time_at_all_is_refused(app):
    assert "timeout=0 lets nothing happen" in app.run(_agent, id="t").failure.message


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry("3"),
        lambda: Retry(True),
        lambda: Retry(2.5),
        lambda: Retry(3, first="soon"),
        lambda: Retry(3, most=-1),
        lambda: Retry(3, factor="2"),
        lambda: Retry(3, jitter=True),
        lambda: agent(retries="3")(_work),
        lambda: agent(loop=True, max_turns="5")(_work),
        lambda: agent(loop=True, max_turns=True)(_work),
        lambda: agent(loop=True, max_turns=0)(_work),
    ],
)
def test_what_is_no_number_of_attempts_or_turns_is_refused_by_name(make):
    with pytest.raises(InvalidValue):
        make()


def test_waits_between_attempts_are_written_as_seconds_or_as_text():
    retry = Retry(4, first="500ms", most=timedelta(seconds=1))
    assert retry == Retry(4, first=0.5, most=1.0)
    assert [retry.delay(attempt) for attempt in (1, 2, 3)] == [0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("rate", "why"),
    [
        ("1.5/s", 'is not a whole number .write "90/m"'),
        ("0.5/m", 'is not a whole number .write "30/h"'),
        ("0.3/d", "is not a whole number"),
        ("0/s", "must be above 0"),
        ("99999999999/s", "is too large .give less than 1,000,000,000"),
        ("fast", "is not understood"),
        (5, "is not understood"),
    ],
)
def test_a_rate_that_cannot_be_kept_is_refused_with_what_to_write(rate, why):
    with pytest.raises(InvalidValue, match=why):
        tool(effect="read", rate=rate)(_tool)


def test_a_queue_may_begin_a_fraction_of_a_task():
    assert Queue("q", rate="1.5/s").as_rate().starts == 1.5
    with pytest.raises(InvalidValue, match='write "30/m"'):
        Queue("q", rate="0.5/s")


class Refused(Exception):
    def __init__(self, headers=None, status=HTTPStatus.TOO_MANY_REQUESTS):
        self.headers, self.status_code = headers or {}, status


@pytest.mark.parametrize("name", ["Retry-After", "retry-after", "RETRY-AFTER"])
def test_a_header_is_found_however_it_is_written(name):
    assert retries.wait_asked_for(Refused({name: "7"}), 0.0) == 7.0
    assert retries.wait_asked_for(Refused({f"{name}-ms": "7000"}), 0.0) == 7.0


def test_a_status_of_an_enum_is_a_status():
    assert retries.is_refusal(Refused()) and not retries.is_permanent(Refused())
    assert retries.is_permanent(Refused(status=HTTPStatus.NOT_FOUND))
    assert not retries.is_refusal(Refused(status=HTTPStatus.GATEWAY_TIMEOUT))
