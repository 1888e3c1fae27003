"""Clocks that somebody sets: what is slept here takes as long as it should; what others see is a time of the day."""

import threading
import time
from datetime import UTC, datetime

import pytest

from holdfast import agent, tool
from holdfast.core.retries import Retry
from holdfast.engine.system.clock import HeldSleeps, SystemClock
from holdfast.testing.clock import FakeClock

STORES = ("memory", "sqlite", "postgres")
HOURS = 3 * 3600


class SetClock(SystemClock):
    """The machine's clock, which somebody sets by so many seconds after a while."""

    def __init__(self):
        self.set = 0.0

    def now_us(self):
        return super().now_us() + int(self.set * 1_000_000)

    def set_later(self, seconds, after=0.15):
        threading.Timer(after, lambda: setattr(self, "set", seconds)).start()


@pytest.fixture
def clock():
    return SetClock()


@agent
def naps(task):
    task.sleep(0.5)
    return "rested"


@agent
async def naps_async(task):
    await task.sleep(0.5)
    return "rested"


@pytest.mark.parametrize("nap", [naps, naps_async])
@pytest.mark.parametrize("by", [-HOURS, HOURS], ids=["back", "forth"])
@pytest.mark.timeout(60)
def test_a_short_sleep_takes_as_long_as_it_should(app, clock, nap, by):
    clock.set_later(by)
    began = time.monotonic()
    done = app.run(nap, id="t")
    assert (done.status, done.result) == ("completed", "rested")
    assert 0.5 <= time.monotonic() - began < 5


@pytest.mark.parametrize("nap", [naps, naps_async])
@pytest.mark.timeout(60)
def test_so_it_does_when_others_write_to_the_log_meanwhile(app, clock, nap):
    """Then the task looks again whether it is time."""
    clock.set_later(HOURS)
    for after in (0.2, 0.35):
        threading.Timer(after, lambda: app.signal("t", "hello")).start()
    began = time.monotonic()
    assert app.run(nap, id="t").status == "completed"
    assert 0.5 <= time.monotonic() - began < 5


@pytest.mark.parametrize("by", [-HOURS, HOURS], ids=["back", "forth"])
@pytest.mark.timeout(60)
def test_another_attempt_comes_when_it_is_due(app, clock, by):
    times = []

    @tool(effect="idempotent", retry=Retry(2, first=0.4))
    def flaky() -> str:
        times.append(time.monotonic())
        if len(times) == 1:
            clock.set_later(by)
            raise ConnectionError
        return "ok"

    @agent
    def calls(task):
        return task.call(flaky)

    assert app.run(calls, id="t").result == "ok"
    assert 0.4 <= times[1] - times[0] < 5


@pytest.mark.timeout(60)
def test_a_long_sleep_is_a_time_of_the_day(app, clock):
    @agent
    def rests(task):
        task.sleep("1h")

    clock.set = -HOURS
    waiting = app.run(rests, id="t")
    left = waiting.waiting.wake_at - datetime.fromtimestamp(clock.now_us() / 1e6, UTC)
    assert waiting.status == "waiting" and 3590 < left.total_seconds() <= 3600
    clock.set += 3500
    assert app.resume("t", rests, hold=0).status == "waiting", "not before its time"
    clock.set += 200
    assert app.resume("t", rests).status == "completed"


def test_a_clock_of_a_test_is_the_only_one_there_is():
    fake = FakeClock(start_us=0, tick_us=0)
    sleeps = HeldSleeps(fake)
    assert sleeps.left_us(5_000_000, 60e6) == 5_000_000
    fake.advance(5)
    assert sleeps.left_us(5_000_000, 60e6) == 0 and sleeps.now_us() == 5_000_000
