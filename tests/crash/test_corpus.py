"""Agents of every kind, crashed everywhere, on every store, simulated and by SIGKILL: nothing is done twice or lost."""

import asyncio
import os
import time

import pytest

from holdfast import DidNotHappen, Happened, agent, tool
from holdfast.core import limits
from holdfast.testing import World
from tests.crash import corpus, corpus_spending, corpus_writers

ALL = os.environ.get("HOLDFAST_TEST_ALL") == "1"
SAMPLES = {"memory": 10, "sqlite": 6, "kill": 4, "postgres": 2, "postgres-kill": 1}
KINDS = [*corpus.CORPUS, *corpus_spending.CORPUS, *corpus_writers.CORPUS]
ON_A_SERVER = {*KINDS[::5], corpus.transaction}
"""Kinds that are crashed on PostgreSQL unless everything is asked for: a round trip takes its time."""

WAYS = {
    "memory": ("process", "memory:"),
    "sqlite": ("process", "sqlite"),
    "kill": ("kill", "sqlite"),
    "postgres": ("process", "postgres"),
    "postgres-kill": ("kill", "postgres"),
}


@pytest.fixture(scope="module")
def world():
    with World() as started:
        yield started


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch):
    """Snapshots of small logs; whoever waits for a unique key looks often, and gives up soon."""
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_BYTES", 300)
    monkeypatch.setattr(limits, "UNIQUE_POLL_US", 5_000)
    monkeypatch.setattr(limits, "UNIQUE_WAIT_US", 40_000)


TRIALS = [
    pytest.param(kind, way, id=f"{kind.__name__}-{way}")
    for kind in KINDS
    for way in WAYS
    if ALL or kind in ON_A_SERVER or not way.startswith("postgres")
]


@pytest.mark.parametrize(("kind", "way"), TRIALS)
def test_an_agent_survives_a_crash_anywhere_and_acts_once(request, crash_everywhere, world, kind, way):
    mode, store = WAYS[way]
    given = kind(world)
    if store == "postgres":
        store = request.getfixturevalue("postgres_url")
        given["setup"] = _then(given.get("setup"), lambda: _drop(store, "lines"))
    sample = None if ALL else SAMPLES[way]
    report = crash_everywhere(**given, world=world, mode=mode, store=store, sample=sample)
    assert report.survived + report.missed == report.tried == (sample or report.points)
    assert (report.in_doubt, report.duplicates) == (0, 0)
    most = report.tried / 2 if ALL else max(1, report.tried - 1)
    assert report.missed <= most, "the points of agents with branches are not always there again, but not seldom"


def _then(setup, more):
    def both(app):
        more()
        return None if setup is None else setup(app)

    return both


def _drop(url, table):
    """Tables of transaction tools lie beside the store's own."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"drop table if exists {table}")


def test_a_call_in_doubt_is_reconciled_although_its_sibling_failed_meanwhile(crash_everywhere, world):
    """The TaskGroup cancels whoever is asking the destination. Without a crash the task fails; it must with one too."""

    def find(call):
        time.sleep(0.03)
        return Happened("paid") if world.find(call.idempotency_key) else DidNotHappen()

    @tool(effect="once", reconcile=find, reconcile_after=0)
    async def pay(*, idempotency_key: str) -> str:
        world.request("pay", key=idempotency_key)
        return "paid"

    @agent
    async def shop(task):
        async def fail():
            await task.step(asyncio.sleep, 0.001, name="nap")
            raise ValueError("no")

        async with asyncio.TaskGroup() as group:
            group.create_task(task.call(pay))
            group.create_task(fail())

    def failed(state, world):
        assert state.status == "failed" and len(world.requests("pay")) <= 1

    crash_everywhere(shop, world=world, check=failed, store="memory:", same_result=False)
