"""Workers to be killed, frozen and cut off: processes of workers, the agents they work for, and what must hold after.

`python -m tests.crash.storm` is a nursery: it reads a line of JSON for each process it is to fork and answers with its
pid. Forking what is imported already takes milliseconds, so a process can be killed every half second and still get
something done. Children die with the nursery, and the nursery with whoever holds its standard input.
"""

import asyncio
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import contextmanager, suppress

import holdfast
from holdfast import (
    DidNotHappen,
    Happened,
    LeaseLost,
    TaskBusy,
    TaskFinished,
    TaskNotFound,
    agent,
    current_call,
    events as ev,
    tool,
)
from holdfast.store import processes
from holdfast.testing.crash.world import World
from tests.crash.corpus import silently_repeated
from tests.crash.writer import read_directory
from tests.waiting import until

RECONCILE_SECONDS = 0.4
MAX_DEATHS = 1_000
"""Every process is killed here, innocent tasks and all: nothing is to be set aside for that."""


def agents_at(address, pauses=(0.0,), timeout=None, acks=""):
    """An agent of each colour that pays so many times, and says what it paid in all.

    Calls take so many seconds each, in turns. `acks` is a folder: what was made and acknowledged here is noted there.
    A task whose input has a `rest` waits so many seconds after each payment, or until it gets the signal `go`.
    """
    world, noted = World.at(address), Notes(acks)

    def find(call):
        found = world.find(call.idempotency_key)
        return Happened(found.data["n"]) if found else DidNotHappen()

    known = {"effect": "once", "reconcile": find, "reconcile_after": RECONCILE_SECONDS, "timeout": timeout}

    @tool(**known)
    def pay(n: int, *, idempotency_key: str) -> int:
        time.sleep(pauses[n % len(pauses)])
        world.request("pay", key=idempotency_key, n=n, task=current_call().task_id)
        noted.made(current_call().task_id, n)
        return n

    @tool(**known)
    async def apay(n: int, *, idempotency_key: str) -> int:
        await asyncio.sleep(pauses[n % len(pauses)])
        await asyncio.to_thread(world.request, "pay", key=idempotency_key, n=n, task=current_call().task_id)
        noted.made(current_call().task_id, n)
        return n

    @agent
    def steady(task, steps: int, rest: float = 0.0):
        paid = 0
        for n in range(steps):
            paid += noted.returned(task.id, task.call(pay, n=n))
            if rest:
                task.wait("go", timeout=rest)
        return paid

    @agent
    async def swift(task, steps: int, rest: float = 0.0):
        paid = 0
        for n in range(steps):
            paid += noted.returned(task.id, await task.call(apay, n=n))
            if rest:
                await task.wait("go", timeout=rest)
        return paid

    return steady, swift


class Notes:
    """What this process made and had acknowledged, on lines of JSON in a file of its own, with the time."""

    def __init__(self, folder):
        self._folder, self._made, self._file = folder, set(), None

    def made(self, task, n):
        self._made.add((task, n))

    def returned(self, task, n):
        if self._folder and (task, n) in self._made:  # else it was recorded before, and replayed
            if self._file is None:
                self._file = open(f"{self._folder}/{os.getpid()}", "a", buffering=1)  # noqa: SIM115 — until the end
            self._file.write(json.dumps({"task": task, "n": n, "at": time.monotonic()}) + "\n")
        return n


# The processes


def nursery():
    """Fork a process of workers for every line, until there are no more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to be waited for
    libc = ctypes.CDLL(None)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            try:
                given = json.loads(line)
                {"serve": serve, "dispatch": dispatch}[given.pop("program", "serve")](**given)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        print(pid, flush=True)


def serve(
    url,
    world,
    workers=2,
    concurrency=8,
    together=True,
    pause=0.0,
    pauses=(),
    timeout=None,
    acks="",
    counts="",
    elsewhere=False,
    imitation=False,
    prowls="",
):
    """Some workers in threads of this process: on one app, or each on one of its own. Until SIGTERM.

    `prowls` is a folder whose files a thread of it opens and closes all the time.

    `elsewhere` makes others take it for a process of another machine, of which nothing can be proven. `imitation` has
    its server say yes to every lock, and hold none.
    """
    if imitation:
        from holdfast.store.postgres.server import queries

        queries.HOLD = queries.LOCK_QUEUE = "select %(key)s::bigint is not null"
    if elsewhere:
        processes.machine = lambda: f"the machine of {os.getpid()}"
    if prowls:
        threading.Thread(target=read_directory, args=(prowls,), daemon=True).start()
    agents = agents_at(world, pauses or (pause,), timeout, acks)
    apps = [holdfast.open(url) for _ in range(1 if together else workers)]
    crew = [
        apps[number % len(apps)].worker(agents, concurrency=concurrency, max_deaths=MAX_DEATHS)
        for number in range(workers)
    ]
    threads = [threading.Thread(target=one.run) for one in crew]
    signal.signal(signal.SIGTERM, lambda *_: [one.stop() for one in crew])
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
    if counts:
        with open(counts, "w") as file:
            json.dump(dict(sum((Counter(one.counts.all()) for one in crew), Counter())), file)


def dispatch(url, world, tasks, steps, threads=2, **_):
    """Callers that know nothing of each other: each runs or resumes whichever task comes to its mind."""
    agents = agents_at(world)
    app = holdfast.open(url)

    def call(rng):
        while True:
            number = rng.randrange(tasks)
            name, agent = f"t{number:04}", agents[number % 2]
            try:
                if rng.random() < 0.5:
                    app.run(agent, {"steps": steps}, id=name)
                else:
                    app.resume(name, agent)
            except (TaskBusy, TaskNotFound, TaskFinished, LeaseLost):
                time.sleep(0.002)

    callers = [threading.Thread(target=call, args=(random.Random(f"{os.getpid()} {n}"),)) for n in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()


class Crew:
    """So many processes of workers; whoever is gone is replaced by `tend`."""

    def __init__(self, *places, seed=0, **given):
        """Each place is what one process is given of its own."""
        self.rng = random.Random(seed)
        self._given = given
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.storm"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pids = [0 for _ in places]
        self._places = places
        self.began = 0

    def tend(self):
        """Start whoever is not there."""
        for index, pid in enumerate(self.pids):
            if not pid or not alive(pid):
                given = {"together": index % 2 == 0, **self._given, **self._places[index]}
                self._nursery.stdin.write(json.dumps(given) + "\n")
                self._nursery.stdin.flush()
                self.pids[index] = int(self._nursery.stdout.readline())
                self.began += 1

    def kill(self, index=None):
        """Kill one, at random if none is named; gives its pid."""
        index = self.rng.randrange(len(self.pids)) if index is None else index
        pid = self.pids[index]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.pids[index] = 0
        return pid

    @contextmanager
    def frozen(self, index=None):
        """One of them sees and does nothing for a while."""
        pid = self.pids[self.rng.randrange(len(self.pids)) if index is None else index]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGCONT)

    def stop(self, seconds=20):
        """Let all of them end as they should."""
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        until(
            lambda: not any(alive(pid) for pid in self.pids),
            seconds=seconds,
            why="a worker that was asked to stop does not",
        )

    def __enter__(self):
        self.tend()
        return self

    def __exit__(self, *_):
        for pid in filter(None, self.pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._nursery.stdin.close()
        self._nursery.wait()
        self._nursery.stdout.close()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# The work, and what must hold after it


def begin(app, tasks, steps):
    """Start so many tasks, every other of an async agent."""
    agents = agents_at("")
    for number in range(tasks):
        app.start(agents[number % 2], {"steps": steps}, id=f"t{number:04}")


def assert_all_well(app, world, tasks, steps):
    """Every task ended once, each effect is there once or was flagged, nothing was silently passed over.

    Gives what there was to see: claims, take-overs, doubts, late results and effects that were made twice.
    """
    made = Counter((one.data["task"], one.step) for one in world.requests("pay"))
    assert len(made) == tasks * steps, "an effect is missing, or there is one too many"
    repeated = {(task, step) for (task, step), count in made.items() if count > 1}
    seen = Counter()
    for number in range(tasks):
        name = f"t{number:04}"
        records = list(app.events(name))
        done = app.get(name)
        assert (done.status, done.result) == ("completed", sum(range(steps))), (name, done.status, done.failure)
        assert list(silently_repeated(records)) == [], f"{name} has calls that were cut off, and nothing flags them"
        doubted = {record.event.key for record in records if isinstance(record.event, ev.StepDoubted)}
        repeated -= {(name, step) for step in doubted}
        seen["twice"] += sum(made[name, step] - 1 for step in doubted)
        for record in records:
            seen[record.kind] += 1
            if isinstance(record.event, ev.TaskClaimed) and record.event.taken:
                seen[f"{record.event.taken} take-overs"] += 1
        assert seen["task_completed"] == number + 1, f"{name} ended more than once"
    assert repeated == set(), "effects were made twice, and nothing flags them"
    assert app.verify().ok
    return seen


if __name__ == "__main__":
    nursery()
