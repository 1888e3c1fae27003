"""Times are counted in microseconds since 1970, in UTC: no calendar trips a task over."""

import time

import pytest

import holdfast
from holdfast import agent
from holdfast.testing.clock import FakeClock

STORES = ("memory", "sqlite", "postgres")
END_OF_32_BITS = 2**31
CLOCKS_GO_BACK = 1_793_494_800  # 2026-10-25 01:00 UTC, when Berlin has 02:30 twice
CLOCKS_GO_FORWARD = 1_774_746_000  # 2026-03-29 01:00 UTC, when Berlin has no 02:30


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("moment", [END_OF_32_BITS, CLOCKS_GO_BACK, CLOCKS_GO_FORWARD])
def test_a_sleep_and_a_deadline_over_an_awkward_moment_are_as_long_as_any(url, moment):
    @agent(deadline="3h")
    def sleeper(task):
        began = task.now()
        task.sleep(3_600)
        return (task.now() - began).total_seconds()

    clock = FakeClock(start_us=(moment - 1_800) * 1_000_000)
    with holdfast.open(url, clock=clock) as app:
        app.run(sleeper, id="t", hold=0)
        clock.advance(seconds=3_590)
        assert app.resume("t", sleeper, hold=0).status == "waiting"
        clock.advance(seconds=20)
        done = app.resume("t", sleeper, hold=0)
        assert done.status == "completed" and 3_600 <= done.result < 3_700
        assert (done.updated_at - done.created_at).total_seconds() < 3_700

        app.run(sleeper, id="late", hold=0)
        clock.advance(seconds=3 * 3_600)
        assert app.resume("late", sleeper, hold=0).status == "failed"
