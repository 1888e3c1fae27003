"""Clocks that somebody sets: what is slept here takes as long as it should; what others see is a time of the day."""

import contextlib
import threading
import time
from datetime import UTC, datetime

import pytest

from holdfast import TaskFinished, agent, events as ev, tool
from holdfast.core.retries import Retry
from holdfast.engine.system.clock import HeldSleeps, SystemClock
from holdfast.testing.clock import FakeClock

STORES = ("memory", "sqlite", "postgres")
HOURS = 3 * 3600
LONG = 30
"""How long a wait of half a second may take on a busy machine. One that followed the clock would take hours."""


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
    assert 0.5 <= time.monotonic() - began < LONG


def set_with(app, clock, kind, by):
    """Set the clock as soon as an event of a kind is on record, before its task looks at the clock again."""

    def look(log, events):
        if any(isinstance(one.event, kind) for one in events):
            clock.set = by

    app.on_events(look)


@pytest.mark.parametrize("nap", [naps, naps_async])
@pytest.mark.parametrize("by", [-HOURS, HOURS], ids=["back", "forth"])
@pytest.mark.timeout(60)
def test_a_clock_set_while_the_beginning_of_a_sleep_is_written_changes_nothing(app, clock, nap, by):
    set_with(app, clock, ev.WaitStarted, by)
    began = time.monotonic()
    assert app.run(nap, id="t").status == "completed"
    assert 0.5 <= time.monotonic() - began < LONG


@pytest.mark.parametrize("nap", [naps, naps_async])
@pytest.mark.timeout(60)
def test_so_it_does_when_others_write_to_the_log_meanwhile(app, clock, nap):
    """Then the task looks again whether it is time."""
    clock.set_later(HOURS)

    def say_hello(log, events):
        if any(isinstance(one.event, ev.WaitStarted) for one in events):
            for after in (0.05, 0.2):
                threading.Timer(after, hello).start()

    def hello():
        with contextlib.suppress(TaskFinished):  # on a busy machine
            app.signal("t", "hello")

    app.on_events(say_hello)
    began = time.monotonic()
    assert app.run(nap, id="t").status == "completed"
    assert 0.5 <= time.monotonic() - began < LONG


@pytest.mark.parametrize("at", ["once", "its record"])
@pytest.mark.parametrize("by", [-HOURS, HOURS], ids=["back", "forth"])
@pytest.mark.timeout(60)
def test_another_attempt_comes_when_it_is_due(app, clock, by, at):
    times = []
    if at == "its record":
        set_with(app, clock, ev.AttemptFailed, by)

    @tool(effect="idempotent", retry=Retry(2, first=0.4))
    def flaky() -> str:
        times.append(time.monotonic())
        if len(times) == 1:
            if at == "once":
                clock.set_later(by)
            raise ConnectionError
        return "ok"

    @agent
    def calls(task):
        return task.call(flaky)

    assert app.run(calls, id="t").result == "ok"
    assert 0.4 <= times[1] - times[0] < LONG


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
