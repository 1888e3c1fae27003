"""SIGKILL at every durable write of a three-step agent: no silent duplicates, nothing lost, no file that does not open.

A process is killed at one operation of its file system, another goes on with the task. The world the agent acts on, and
what it was promised, stand in files of their own, which no kill takes back.
"""

import itertools
import json
import random
import shutil
import subprocess
import sys
from collections import Counter

import pytest

import holdfast
from holdfast.testing.auditor import audit
from tests.crash import three_steps
from tests.crash.three_steps import TASK, Place, notes
from tests.crash.workload import THOROUGH, sample

AGENTS = ["def reconciled", "def asked", "async reconciled", "async asked"]
SIDES = ("before", "halfway", "after")
KILLED = -9
POINTS = 12
NEAR = 5
CHAINS = 60 if THOROUGH else 6
KILLS_LATER = 5
SOON = 30


class Children:
    """Processes that work on a task, one after the other; the process that forks them has opened nothing."""

    def __init__(self):
        command = [sys.executable, three_steps.__file__]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, place, agent, *kill):
        """Let a process work until it is done or killed; gives its exit code."""
        self._server.stdin.write(json.dumps([str(place.folder), *agent.split(), *kill]) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def close(self):
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


class Tally:
    """What went wrong, over all points, and how often a call was in doubt."""

    def __init__(self):
        self.points = 0
        self.silent, self.lost, self.unopenable = [], [], []
        self.doubts = Counter()

    def __repr__(self):
        wrong = f"{len(self.silent)} silent duplicates, {len(self.lost)} lost, {len(self.unopenable)} unopenable"
        return f"{self.points} points: {wrong} ({self.doubts.total()} calls in doubt)"

    def assert_clean(self):
        print(self)
        assert not (self.silent or self.lost or self.unopenable), "\n".join(
            [repr(self), *self.silent, *self.lost, *self.unopenable]
        )


class Trial:
    """A task that is killed at a point, or at several, and then brought to its end."""

    def __init__(self, children, folder, agent, tally):
        folder.mkdir()
        self.children, self.place, self.agent, self.tally = children, Place(folder), agent, tally
        self.seen = NOTHING
        self.was_in_doubt = False
        self.kills = []
        tally.points += 1

    def kill(self, kill_at, side):
        """Let a process work that is killed; it may have ended before, unless it is the first."""
        self.kills.append((kill_at, side))
        code = self.visit(kill_at, side)
        assert code == KILLED or (code == 0 and len(self.kills) > 1), f"{self.point} was not killed"
        if self.in_doubt and not self.was_in_doubt:
            self.was_in_doubt = True
            self.tally.doubts["happened" if self.world("pay") else "did not happen"] += 1

    def finish(self):
        """Go on to the end; a person settles what is in doubt, and only that."""
        in_doubt = self.in_doubt
        self.visit()
        if self.seen["waiting"] == "doubt":
            self.settle()
            self.visit()
        elif in_doubt and self.agent.endswith("asked"):
            self.tally.silent.append(f"{self.point}: went on without a word about the doubt")
        self.check_end()
        shutil.rmtree(self.place.folder)

    @property
    def point(self):
        return f"{self.agent} {self.kills}"

    @property
    def in_doubt(self):
        return self.seen["steps"].get("pay#1", {}).get("status") in ("running", "doubt")

    def world(self, what):
        """The receipts of what was done to the world."""
        return [one["receipt"] for one in notes(self.place.world) if one["what"] == what]

    def visit(self, *kill):
        """Let one process work, and look at a copy of what it left, so that the next one finds it as it was left."""
        acked = {ack["step"].partition("#")[0] for ack in notes(self.place.acks)}
        before = {what: self.world(what) for what in acked}
        code = self.children.run(self.place, self.agent, *kill)
        if code not in (0, KILLED):
            self.tally.lost.append(f"{self.point}: exit code {code} {self.place.told()}")
        for what, receipts in before.items():
            if self.world(what) != receipts:
                self.tally.silent.append(f"{self.point}: {what} was acknowledged and done again")
        copy = self.place.copy()
        self.look(copy)
        shutil.rmtree(copy.folder)
        return code

    def look(self, place):
        """See what the file tells. It opens, it is whole, and what was acknowledged is in it."""
        self.seen = NOTHING
        try:
            with holdfast.open(place.db, durability="process") as app:
                problems = app.verify().problems
                self.seen = seen(app)
        except holdfast.HoldfastError as error:
            problems = [repr(error)]
        for finding in [*problems, *audit(place.db, place.acks if place.acks.exists() else None)]:
            kind = self.tally.lost if "acknowledged" in str(finding) else self.tally.unopenable
            kind.append(f"{self.point}: {finding}")
        for ack in notes(place.acks):
            there = self.seen["steps"].get(ack["step"], {}) if ack["step"] else self.seen
            if (there.get("status"), there.get("result")) != ("completed", ack["result"]):
                self.tally.lost.append(f"{self.point}: {ack['step'] or 'the end'} was acknowledged, and is {there}")

    def settle(self):
        """Tell the task what the world says."""
        paid = self.world("pay")
        with holdfast.open(self.place.db, durability="process") as app:
            app.settle(TASK, "pay#1", happened=bool(paid), result=paid[0] if paid else None, by="ana")

    def check_end(self):
        """All is done, the one thing that cannot be repeated is done once, and any doubt about it was flagged."""
        picked, paid, packed = (self.world(what) for what in ("pick", "pay", "pack"))
        if len(paid) > 1:
            self.tally.silent.append(f"{self.point}: paid {len(paid)} times")
        if max(len(picked), len(packed)) > 1 + len(self.kills):
            self.tally.silent.append(f"{self.point}: a step was done without need")
        if self.was_in_doubt != ("step_doubted" in self.seen["kinds"]):
            self.tally.silent.append(
                f"{self.point}: in doubt: {self.was_in_doubt}, but the log has {self.seen['kinds']}"
            )
        told = [self.seen[name] for name in ("status", "result", "state", "facts")]
        if told not in [expected(*receipts) for receipts in zip(picked[-1:], paid[-1:], packed[-1:], strict=False)]:
            self.tally.lost.append(f"{self.point}: ended as {told}")


NOTHING = {"status": "absent", "waiting": None, "steps": {}, "kinds": [], "result": None, "state": {}, "facts": {}}


def seen(app):
    """The task, its events' kinds and why it waits; nothing if it was never begun."""
    try:
        task = app.get(TASK)
    except holdfast.TaskNotFound:
        return NOTHING
    kinds = [record.kind for record in app.events(TASK)]
    return {**task.to_dict(), "kinds": kinds, "waiting": task.waiting and task.waiting.kind}


def expected(picked, paid, packed):
    """What a task must tell that did these things."""
    facts = {"picked": {"value": picked, "source": ""}, "packed": {"value": packed, "source": ""}}
    return ["completed", [picked, paid, packed], {"visits": 1, "paid": paid}, facts]


@pytest.fixture(scope="module")
def children():
    started = Children()
    yield started
    started.close()


def points_of(children, folder, agent):
    """Every operation of a run and every side of it, and after which of them the call was made."""
    place = Place(folder / "count")
    place.folder.mkdir()
    assert children.run(place, agent) == 0, place.told()
    count, writes = json.loads(place.operations.read_text())
    (effect,) = [one["operation"] for one in notes(place.world) if one["what"] == "pay"]
    every = itertools.product(range(1, count + 1), SIDES)
    return [(number, side) for number, side in every if side != "halfway" or number in writes], effect


def near(points, effect):
    """The points around the call, where most can go wrong."""
    return [(number, side) for number, side in points if abs(number - effect) <= NEAR]


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_survives_a_kill_at_every_write(agent, children, tmp_path):
    every, effect = points_of(children, tmp_path, agent)
    sampled = {every[index - 1] for index in sample(len(every), POINTS, seed=AGENTS.index(agent))}
    tally = Tally()
    for kill in sorted({*sampled, *near(every, effect)}):
        trial = Trial(children, tmp_path / "trial", agent, tally)
        trial.kill(*kill)
        trial.finish()
    tally.assert_clean()
    assert tally.doubts["happened"] and tally.doubts["did not happen"], "both kinds of doubt came up"


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_survives_being_killed_again_and_again(agent, children, tmp_path):
    every, effect = points_of(children, tmp_path, agent)
    tally = Tally()
    for seed in range(CHAINS):
        chance = random.Random(seed)
        trial = Trial(children, tmp_path / "trial", agent, tally)
        trial.kill(*chance.choice(near(every, effect) if seed % 2 else every))
        for _ in range(KILLS_LATER):
            trial.kill(chance.randint(1, SOON), chance.choice(SIDES))
            if trial.seen["waiting"] == "doubt":
                trial.settle()
        trial.finish()
    tally.assert_clean()
    assert tally.doubts, "a doubt came up"


def noticed(findings, what):
    return any(what in finding for finding in findings)


def test_the_trials_notice_a_call_that_is_repeated_without_a_word(children, tmp_path):
    tally = Tally()
    for kill in near(*points_of(children, tmp_path, "def careless")):
        trial = Trial(children, tmp_path / "trial", "def careless", tally)
        trial.kill(*kill)
        trial.finish()
        if noticed(tally.silent, "paid 2 times"):
            break
    assert noticed(tally.silent, "paid 2 times"), tally
    assert not tally.lost and not tally.unopenable, tally


def test_the_trials_notice_a_disk_that_loses_what_was_acknowledged(children, tmp_path):
    every, effect = points_of(children, tmp_path, "def reconciled")
    tally = Tally()
    for kill in near(every, effect + 2 * NEAR):
        trial = Trial(children, tmp_path / "trial", "def reconciled", tally)
        assert children.run(trial.place, "def reconciled", *kill) == KILLED
        (trial.place.folder / "store.db-wal").unlink(missing_ok=True)
        trial.finish()
        if noticed(tally.lost, "was acknowledged"):
            break
    assert noticed(tally.lost, "was acknowledged"), tally


def test_the_trials_notice_a_file_that_does_not_open(children, tmp_path):
    tally = Tally()
    trial = Trial(children, tmp_path / "trial", "def reconciled", tally)
    assert children.run(trial.place, "def reconciled") == 0
    trial.place.db.write_bytes(b"not a database" + trial.place.db.read_bytes()[14:])
    trial.finish()
    assert tally.unopenable, tally
