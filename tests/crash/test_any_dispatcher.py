"""Anything may dispatch: processes that know nothing of each other run and resume the same tasks, and are killed."""

import time

import holdfast
from tests.conftest import ALL
from tests.crash.postgres_audit import audited
from tests.crash.storm import Crew, assert_all_well

STORES = ("sqlite", "postgres")
TASKS, STEPS, KILLS, SECONDS = (400, 8, 60, 600) if ALL else (40, 4, 6, 90)


def test_every_task_ends_once_whoever_calls_for_it_and_how_often(url, world, tmp_path):
    """As a queue that delivers twice would, or a scheduler that lost its memory: no worker, no order, no care."""
    given = {"program": "dispatch", "url": url, "world": world.address, "tasks": TASKS, "steps": STEPS, "seed": 11}
    with holdfast.open(url) as app, Crew(*[{}] * 3, **given) as crew:
        killed, until = 0, time.monotonic() + SECONDS
        while (done := app.stats().by_status.get("completed", 0)) < TASKS:
            assert time.monotonic() < until, app.stats().by_status
            if done * KILLS >= killed * TASKS:
                crew.kill()
                killed += 1
            crew.tend()
            time.sleep(0.05)
        time.sleep(0.3)  # calls for tasks that have ended go on meanwhile, and change nothing
        events = app.stats().events
        time.sleep(0.2)
        assert app.stats().events == events
    with holdfast.open(url) as app:
        seen = assert_all_well(app, world, TASKS, STEPS)
    assert killed >= KILLS and seen["twice"] == 0
    assert seen["task_claimed"] >= TASKS and seen["task_created"] == TASKS
    assert audited(url, tmp_path) == []
