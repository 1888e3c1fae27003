"""The key space: two tenants, or two stores behind one provider, never share an idempotency key."""

import pytest

import holdfast
from holdfast import agent, tool

STORES = ("memory", "sqlite", "postgres")


class Provider:
    """A provider that answers a known key with its first answer."""

    def __init__(self):
        self.answers = {}

    def tool(self):
        @tool(effect="idempotent")
        def charge(order: int, *, idempotency_key: str) -> int:
            return self.answers.setdefault(idempotency_key, len(self.answers) + 1)

        return charge


def worker_of(charge):
    return agent(name="worker")(lambda task: task.call(charge, order=1))


def test_two_stores_behind_one_provider_share_no_key(tmp_path):
    provider = Provider()
    worker = worker_of(provider.tool())
    for name in ("one.db", "two.db"):
        with holdfast.open(tmp_path / name) as app:
            app.run(worker, id="order-1")
    assert len(provider.answers) == 2


def test_two_tenants_of_one_store_share_no_key(url):
    provider = Provider()
    worker = worker_of(provider.tool())
    for tenant in ("acme", "beta", ""):
        with holdfast.open(url, namespace=tenant) as app:
            app.run(worker, id="order-1")
    assert len(provider.answers) == 3


def test_a_key_keeps_its_form_and_can_be_pinned(app, url):
    keys = []

    @tool(effect="idempotent")
    def charge(order: int, *, idempotency_key: str) -> int:
        keys.append(idempotency_key)
        return order

    for _ in range(2):
        with holdfast.open("memory:", key_space="pinned") as pinned:
            pinned.run(worker_of(charge), id="order-1")
    assert keys[0] == keys[1] and keys[0].startswith("order-1:charge#1:charge:") and len(keys[0]) == 24 + 16
    app.run(worker_of(charge), id="order-1")
    assert keys[2] != keys[0]


def test_a_fork_a_copy_and_an_export_keep_the_key_space(app, tmp_path):
    charge = Provider().tool()
    app.run(worker_of(charge), id="t")
    space = app.logs.load("t").state.key_space
    assert space == app.logs.key_space
    app.fork("t", id="f")
    app.export("t", tmp_path / "t.jsonl")
    app.copy_to(str(tmp_path / "copy.db"))
    with holdfast.open(tmp_path / "copy.db") as copy, holdfast.open("memory:") as other:
        other.import_(tmp_path / "t.jsonl")
        spaces = {one.logs.load(id).state.key_space for one, id in ((app, "f"), (copy, "t"), (copy, "f"), (other, "t"))}
        assert spaces == {space} and copy.logs.key_space != space


def test_a_child_has_its_parents_key_space(app, either):
    @agent
    def child(task):
        return 1

    @either()
    def parent(task):
        return (yield task.spawn(child))

    app.run(parent, id="t")
    assert app.logs.load("t/child#1").state.key_space == app.logs.key_space


@pytest.mark.parametrize("name", ["~1/x", "~x", "3/x", "12/pay"])
@pytest.mark.parametrize("verb", ["step", "ask", "approve", "wait", "spawn"])
def test_a_name_that_could_be_another_branch_or_turn_is_refused(app, either, name, verb, texts):
    @agent
    def child(task):
        return 1

    @either()
    def worker(task):
        verbs = {
            "step": lambda: task.step(int, "1", name=name),
            "ask": lambda: task.ask("who?", name=name),
            "approve": lambda: task.approve("ok?", name=name),
            "wait": lambda: task.wait(name),
            "spawn": lambda: task.spawn(child, name=name),
        }
        return (yield verbs[verb]())

    failed = app.run(worker, id="t")
    assert failed.failure.code == "invalid-value"
    texts.check(failed.failure.message)
    assert [one.kind for one in app.events("t")] == ["task_created", "task_claimed", "task_failed"]
