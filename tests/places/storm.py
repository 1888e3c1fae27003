"""Kill what runs tasks, again and again, and look at what became of them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter

from holdfast import events as ev
from tests.crash.postgres_audit import audited
from tests.crash.storm import assert_all_well

SECONDS = 300


def grace():
    """How many seconds more than promised are allowed: one, and more on a machine that others keep busy."""
    return 1.0 + 0.1 * max(0.0, os.getloadavg()[0] - (os.cpu_count() or 1))


class Node:
    """A process of ours with all that it starts, in a group of its own: killed and started again together."""

    def __init__(self, *command, log, **environment):
        self._command = [sys.executable, *command]
        self._environment = {**os.environ, **environment}
        self._log = log
        self.start()

    def start(self):
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, process_group=0
            )

    def said(self):
        """What it has written to its log."""
        return self._log.read_text("utf-8", "replace")

    def kill(self):
        self._signal(signal.SIGKILL)
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def stop(self, seconds=30):
        """Ask it to end, and wait for that."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        finally:
            self._signal(signal.SIGKILL)

    def _signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def completed(app):
    """How many of the tasks that `begin` began are completed."""
    return sum(one.status == "completed" for one in app.list(prefix="t", limit=1000))


def wait(true, seconds=SECONDS):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it does not come to that"
        time.sleep(0.02)


def survive(app, tasks, rng, breaks, *, every):
    """Break something every so often, when a task has been completed since, until all are; gives when, in microseconds.

    Without that condition, a machine on which processes start slowly would never get anything done.
    """
    broken, until, last, before = [], time.monotonic() + SECONDS, time.monotonic(), 0
    while (done := completed(app)) < tasks:
        assert time.monotonic() < until, app.counts().by_status
        if time.monotonic() - last >= every and done > before and tasks - done > 2:
            broken.append(time.time_ns() // 1000)
            rng.choice(breaks)()
            last, before = time.monotonic(), done
        time.sleep(0.05)
    return broken


def judged(app, world, url, tmp_path, tasks, steps, broken):
    """Every task ended once and no effect is there twice; gives what there was to see, and the longest waits."""
    seen = assert_all_well(app, world, tasks, steps)
    assert seen["twice"] == 0, dict(seen)
    assert audited(url, tmp_path) == []
    taken, first = [], []
    for number in range(tasks):
        records = list(app.events(f"t{number:04}"))
        claims = [one for one in records if isinstance(one.event, ev.TaskClaimed)]
        first.append((claims[0].at_us - records[0].at_us) / 1e6)
        for claim in claims:
            before = [at for at in broken if at < claim.at_us]
            if claim.event.taken and before:
                taken.append((claim.at_us - before[-1]) / 1e6)
    counts = Counter({name: seen[name] for name in ("task_claimed", "proven take-overs", "presumed take-overs")})
    print(
        f"\n{tasks} tasks of {steps} calls, {len(broken)} breaks: {dict(counts)};"
        f" taken over after {max(taken, default=0):.2f} s at the most, begun after {max(first):.2f} s at the most"
    )
    return max(taken, default=0.0), max(first), len(taken)
