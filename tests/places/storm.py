"""Kill what runs tasks, again and again, and look at what became of them and how long they waited."""

import time
from collections import Counter
from typing import NamedTuple

from holdfast import events as ev
from tests.crash.postgres_audit import audited
from tests.crash.storm import agents_at, assert_all_well
from tests.waiting import until

SECONDS = 280  # less than a test may take, so that it says how far it came
MOST_BREAKS = 12  # in one storm
GRACE = 1.0
"""How many seconds more than the place promises a task may wait."""

RESTING, PAYING, PAYING_AT_ONCE, STEPS = 8, 20, 4, 8
"""Tasks of a storm: so many rest after each of their steps; the others only pay, so many of them at a time."""

PLACES = RESTING + PAYING_AT_ONCE
"""How many tasks one worker takes at a time. So whichever is left has room for all of them: none waits for a place."""

REST_SECONDS = 2.5
"""Longer than a worker keeps a task that waits: it is given up, and due when its time or its signal has come."""


class Wait(NamedTuple):
    """A task was due, and no process had it: why it was due, since when and until when, in µs."""

    task: str
    why: str
    since: int
    until: int

    def seconds(self, outages=()):
        """How long it waited while everything was there that the place needs, besides workers."""
        shut = sum(max(0, min(self.until, end) - max(self.since, began)) for began, end in outages)
        return (self.until - self.since - shut) / 1e6


def waits(name, records, deaths):
    """Every wait of a task for a process: when it was new, woken by time or signal, or its process was killed."""
    due = why = holder = None
    for record in records:
        event, at = record.event, record.at_us
        if isinstance(event, ev.TaskCreated):
            due, why = at, "new"
        elif isinstance(event, ev.TaskSuspended | ev.TaskReleased):
            due, why, holder = event.wake_us, "time", None
            if due is None and isinstance(event, ev.TaskReleased):
                due, why = at, "released"
            elif due is not None:
                due = max(due, at)
        elif isinstance(event, ev.SignalReceived) and holder is None and (due is None or at < due):
            due, why = at, "signal"
        elif isinstance(event, ev.TaskClaimed):
            if holder is not None:
                due, why = deaths.of(holder), "killed"
            yield Wait(name, why, due, at)
            due, holder = None, event.holder


def wait(true, seconds=SECONDS):
    until(true, seconds)


def start(app, number, steps, rest=0.0):
    """Start a task: every other is of an async agent."""
    agents = agents_at("")
    app.start(agents[number // 2 % 2], {"steps": steps, "rest": rest}, id=f"t{number:04}")


def first_task(app, programs):
    """Wait until the programs are there: a task that was begun has ended, and each of them says that it is ready."""
    app.start(agents_at("")[0], {"steps": 0}, id="first")
    wait(lambda: all(one.is_ready() for one in programs) and app.get("first").status == "completed")


def rows(app):
    """The tasks that were started here; none of them may fail."""
    found = app.list(prefix="t", limit=1000)
    failed = next((one.id for one in found if one.status == "failed"), None)
    assert failed is None, app.get(failed).failure
    return found


def completed(app):
    return sum(one.status == "completed" for one in rows(app))


def survive(app, rng, breaks, *, is_whole, every=3.0):
    """Break something every so often until all tasks are completed; gives how often.

    It waits for what it broke to be there again. What a place promises, it promises for one break at a time: if all
    workers are dead, their tasks wait for one that starts.
    """
    count, end, last, started = 0, time.monotonic() + SECONDS, time.monotonic(), RESTING
    for number in range(RESTING):
        start(app, number, STEPS, REST_SECONDS)
    while (done := completed(app)) < RESTING + PAYING:
        assert time.monotonic() < end, app.counts().by_status
        paying = [one for one in rows(app) if int(one.id[1:]) >= RESTING and one.status != "completed"]
        if started < RESTING + PAYING and len(paying) < PAYING_AT_ONCE:
            start(app, started, STEPS)
            started += 1
        if rng.random() < 0.05:
            signal(app, f"t{rng.randrange(RESTING):04}")
        late = time.monotonic() - last >= every and RESTING + PAYING - done > 2
        if late and count < MOST_BREAKS and is_whole():
            rng.choice(breaks)()
            last, count = time.monotonic(), count + 1
        time.sleep(0.05)
    return count


def signal(app, id):
    """Wake a task before its time, if it rests."""
    if app.get(id).status == "waiting":
        app.signal(id, "go", True)


def wake_as_it_dies(app, kill, tasks=8):
    """Tasks rest, each without a process. When the time of half of them has come, something is killed."""
    for number in range(tasks):
        start(app, number, 2, REST_SECONDS)
    wait(lambda: all(one.status == "waiting" for one in rows(app)))
    due = sorted(app.get(f"t{number:04}").waiting.wake_at.timestamp() for number in range(tasks))
    time.sleep(max(0.0, due[tasks // 2] - time.time()))
    kill()
    wait(lambda: completed(app) == tasks)


def judged(app, world, url, tmp_path, tasks, steps, deaths, *, promised, outages=()):
    """Every task ended once, no effect is there twice, and none waited longer than promised; gives how many waited why.

    Outages are spans of time, in µs, in which something was away without which a place can't do anything: its broker.
    """
    seen = assert_all_well(app, world, tasks, steps)
    assert seen["twice"] == 0, dict(seen)
    assert audited(url, tmp_path) == []
    found = [one for n in range(tasks) for one in waits(f"t{n:04}", app.events(f"t{n:04}"), deaths)]
    counts = Counter(one.why for one in found)
    longest = {
        why: max((one for one in found if one.why == why), key=lambda one: one.seconds(outages)) for why in counts
    }
    figures = ", ".join(f"{counts[why]} {why}: {one.seconds(outages):.2f} s" for why, one in sorted(longest.items()))
    print(f"\n{tasks} tasks of {steps} steps; waits and the longest of them: {figures}")
    for one in longest.values():
        assert one.seconds(outages) < promised + GRACE, one
    return counts
