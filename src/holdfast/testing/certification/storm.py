"""Workers in processes of their own, which are killed; every payment must be there once.

`python -m holdfast.testing.certification.storm STORE WORLD SECONDS here|elsewhere` is one of them. It ends when its
standard input does, which it does at the latest with the process that started it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import holdfast
from holdfast import DidNotHappen, Happened, Task, agent, events as ev, tool
from holdfast.core.errors import StoreError
from holdfast.engine.app import App
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.call import Call
from holdfast.store import processes
from holdfast.testing.auditor import audit
from holdfast.testing.crash.world import World

PATIENCE_SECONDS = 120.0
EVERY_SECONDS = 0.7
"""The longest pause between two kills."""
MAX_DEATHS = 1_000
"""Every process is killed here; no task is to be quarantined for that."""


def payer(world: World, seconds: float) -> Agent:
    """Return an agent that pays so many times, each of which takes so long."""

    def find(call: Call) -> Happened | DidNotHappen:
        found = world.find(call.idempotency_key)
        return DidNotHappen() if found is None else Happened(found.data["n"])

    @tool(effect="once", reconcile=find, reconcile_after=0.4)
    def pay(n: int, *, idempotency_key: str) -> int:
        time.sleep(seconds)
        world.request("pay", key=idempotency_key, n=n)
        return n

    @agent
    def payments(task: Task, count: int) -> int:
        return sum(task.call(pay, n=n) for n in range(count))

    return payments


def serve(url: str, address: str, seconds: float) -> None:
    """Work until standard input ends."""
    with holdfast.open(url) as app:
        worker = app.worker([payer(World.at(address), seconds)], concurrency=4, max_deaths=MAX_DEATHS)
        threading.Thread(target=lambda: (sys.stdin.read(), worker.stop()), daemon=True).start()
        worker.run()


class Crew:
    """Some processes of workers. One that was killed is replaced."""

    def __init__(self, url: str, world: World, count: int, seconds: float, where: str) -> None:
        self._command = [sys.executable, "-m", "holdfast.testing.certification.storm", url, world.address]
        self._command += [str(seconds), where]
        self._alive = [self._begin() for _ in range(count)]

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def kill(self, pid: int) -> None:
        """Kill one, and start another."""
        for index, process in enumerate(self._alive):
            if process.pid == pid:
                self._end(process, kill=True)
                self._alive[index] = self._begin()

    def _end(self, process: subprocess.Popen[bytes], *, kill: bool) -> None:
        assert process.stdin is not None
        if kill:
            process.kill()
        process.stdin.close()
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def end(self, *, kill: bool = False) -> None:
        """Let all of them end."""
        for process in self._alive:
            self._end(process, kill=kill)


@contextmanager
def crew(url: str, world: World, count: int, seconds: float, where: str = "here") -> Generator[Crew, None, None]:
    """Let processes work meanwhile. They release their tasks in the end, or die with an error."""
    them = Crew(url, world, count, seconds, where)
    try:
        yield them
    except BaseException:  # Ctrl-C too: no process outlives the storm
        them.end(kill=True)
        raise
    them.end()


def begin(app: App, tasks: int, calls: int) -> list[str]:
    """Start tasks, and return their ids."""
    agent = payer(World.at("127.0.0.1:0"), 0)
    return [app.start(agent, {"count": calls}, id=f"task-{number}").id for number in range(tasks)]


def wait_for(app: App, ids: list[str]) -> list[str]:
    """Wait until all tasks have ended; return those that have not, with what they are."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            left = [one for one in map(app.get, ids) if one.status not in ("completed", "failed", "cancelled")]
        except StoreError:
            left = None
        if left == []:
            return []
        if time.monotonic() > until:
            return ["the store cannot be read"] if left is None else [f"{one.id} is {one.status}" for one in left]
        time.sleep(0.1)


def wrong(app: App, url: str, world: World, ids: list[str], calls: int) -> list[str]:
    """Return what is wrong with how the tasks ended: results, payments, the store, what the auditor finds."""
    found = [f"{one.id} is {one.status}" for one in map(app.get, ids) if one.status != "completed"]
    found += [f"{one.id} has another result" for one in map(app.get, ids) if one.result != sum(range(calls))]
    made = Counter(one.key for one in world.requests("pay"))
    twice = sum(count - 1 for count in made.values())
    found += [f"{twice} payments were made twice"] if twice else []
    found += [f"{len(made)} payments, not {len(ids) * calls}"] if len(made) != len(ids) * calls else []
    found += [] if app.verify().ok else ["verify finds the store damaged"]
    return found + [f"auditor: {one}" for one in audit(url)]


def at_work(app: App) -> list[int]:
    """Wait until workers work on tasks, and return their pids; none once every task has ended."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and any(one.ready + one.running for one in app.store.queues.depths()):
        holders = {row.holder for row in app.list(status="running")}
        pids = sorted(one.serving.pid for one in app.workers() if one.holder in holders)
        if pids:
            return pids
        time.sleep(0.05)
    return []


def claims(app: App, ids: list[str]) -> int:
    """Return how often the tasks were taken."""
    return sum(isinstance(one.event, ev.TaskClaimed) for id in ids for one in app.events(id))


def living(url: str) -> tuple[str, list[str]]:
    """Let two workers that can prove nothing to each other work: neither may take a task of the other."""
    tasks, calls = 8, 3
    with World() as world, holdfast.open(url) as app:
        ids = begin(app, tasks, calls)
        with crew(url, world, 2, 1.0, "elsewhere"):
            found = wait_for(app, ids)
        found = found or wrong(app, url, world, ids, calls)
        taken = claims(app, ids)
        found += [f"{taken - tasks} tasks were taken from living workers"] if taken != tasks else []
        return f"{tasks} tasks of 2 living workers were claimed {taken} times; {tasks * calls} payments once", found


def killed(url: str, kills: int) -> tuple[str, list[str]]:
    """Kill workers at random, again and again."""
    tasks, calls = 24, 8
    rng = random.Random(7)
    with World() as world, holdfast.open(url) as app:
        ids = begin(app, tasks, calls)
        with crew(url, world, 3, 0.3) as them:
            count = 0
            while count < kills and (busy := at_work(app)):
                them.kill(rng.choice(busy))
                count += 1
                time.sleep(rng.uniform(0.1, EVERY_SECONDS))
            found = wait_for(app, ids)
        found = found or wrong(app, url, world, ids, calls)
        found += [f"the work was over after {count} kills"] if count < kills else []
        taken = claims(app, ids)
        return f"{kills} workers killed, {taken - tasks} tasks taken over; {tasks * calls} payments once", found


if __name__ == "__main__":
    _url, _address, _seconds, _where = sys.argv[1:]
    if _where == "elsewhere":
        processes.machine = lambda: f"the machine of {os.getpid()}"
    serve(_url, _address, float(_seconds))
