"""Observers: told of events once they are durable, whatever way they were written."""

import threading

import pytest

import holdfast
from holdfast import agent, tool


@tool(effect="once")
def pay() -> str:
    return "paid"


@agent
def shop(task):
    task.stage("paying")
    return [task.step(len, "abc", name="count"), task.call(pay)]


@agent
async def later(task):
    return await task.step(len, "abc", name="count")


@pytest.mark.parametrize("worker", [shop, later], ids=["def", "async"])
def test_an_observer_is_told_of_every_event_in_order(app, worker):
    seen = []
    app.on_events(lambda log, events: seen.extend((log, one.seq, type(one.event).__name__) for one in events))
    app.run(worker, id="t")
    told = [(record.log, record.seq, type(record.event).__name__) for record in app.events("t")]
    assert seen == told


def test_an_observer_that_raises_fails_nothing(app, caplog, texts):
    def broken(log, events):
        raise ValueError("not me")

    app.on_events(broken)
    assert app.run(shop, id="t").status == "completed"
    for said in caplog.messages:
        texts.check(said)


def test_a_worker_of_all_tenants_tells_of_their_events_too(url):
    seen = []
    with holdfast.open(url) as root, holdfast.open(url, namespace="acme") as acme:
        root.on_events(lambda log, events: seen.extend((log, type(one.event).__name__) for one in events))
        (acme if url != "memory:" else root).start(shop, id="t")
        worker = root.worker([shop], namespaces="*")
        running = threading.Thread(target=worker.run)
        running.start()
        owner = acme if url != "memory:" else root
        for record in owner.follow("t", seconds=20):
            if record.kind == "task_completed":
                break
        worker.stop()
        running.join(20)
    name = "acme!t" if url != "memory:" else "t"
    assert (name, "TaskClaimed") in seen and (name, "TaskCompleted") in seen
