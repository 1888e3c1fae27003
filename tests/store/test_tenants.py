"""Tenants of one store: each finds a store of its own, and no way to anything of another's."""

import asyncio
import os
import re
import threading
import time
from contextlib import ExitStack, contextmanager

import msgspec
import pytest

import holdfast
from holdfast import Budget, InvalidId, InvalidValue, StatePatch, StoreError, TaskNotFound, agent, tool
from holdfast.core import codec
from holdfast.core.codec import Write
from holdfast.core.events import FactLearned
from holdfast.store.memory.store import MemoryStore
from holdfast.store.queues import QueueDepth
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.tenants import Tenant
from holdfast.testing.conformance import StoreConformance
from holdfast.testing.conformance.samples import AT, add, claim, created, draft, group, note
from tests.waiting import until


def beside_another(store):
    """A tenant's view of a store in which another tenant, and nobody, have tasks of their own."""
    for name in ("", "zeta"):
        app = holdfast.App(store if not name else Tenant(store, name))
        if app.store.head("stranger") is None:
            app.start("stranger", {"secret": name}, id="stranger", user="ana", thread="talk")
    return Tenant(store, "acme")


class TenantConformance(StoreConformance):
    """The whole suite, but for what is the store's alone: large values lie there once for all, and so do bytes."""

    def test_blobs_are_kept_once_and_listed_by_log(self, store):
        _, blob = codec.make_blob(codec.pack("x" * 5000))
        store.append([group(created("a")), group(created("b"))])
        for log in ("a", "b"):
            store.append([group(Write(log, draft(note("uses it")), blobs=(blob,)))])
        assert store.blobs_of("a") == store.blobs_of("b") == [blob] and store.blob(blob.hash) == blob.data

    def test_stats_count_what_is_there(self, store):
        store.append([group(created("a")), group(created("b"))])
        store.append([group(Write("a", draft(note("x"))))])
        stats = store.stats()
        assert (stats.tasks, stats.events, stats.by_status) == (2, 3, {"pending": 2})
        assert (stats.bytes, stats.bytes_by_table) == (0, {}), "how much others have is not told"

    def test_only_what_is_served_is_found(self, store):
        """Queues of other tenants are not even asked about."""
        add(store, "mine")
        add(store, "odd", agent="unknown")
        assert claim(store, namespace="another") == ["mine"]

    def test_tenants_with_something_to_take_are_found(self, store):
        assert store.queues.tenants(["default"], AT) == []
        add(store, "one")
        assert store.queues.tenants(["default"], AT) == ["acme"], "others are not told of"

    def test_depths_and_wakes_are_those_of_the_tasks_there_are(self, store):
        add(store, "one")
        add(store, "two", start_us=AT + 9)
        assert store.queues.depths() == [QueueDepth("acme", "default", 1, 0, 1)]
        assert store.queues.next_wake("another", ["default"]) == AT + 9 and store.queues.ready("", "default", 5) == 1


class TestTenantInMemory(TenantConformance):
    @pytest.fixture
    def opener(self):
        store = beside_another(MemoryStore())
        return lambda: store


class TestTenantOnSqlite(TenantConformance):
    @pytest.fixture
    def opener(self, tmp_path):
        return lambda: beside_another(SqliteStore(str(tmp_path / "log.db"), durability="process"))


@pytest.mark.skipif(not os.environ.get("HOLDFAST_TEST_ALL"), reason="a long way round; make test-all goes it")
class TestTenantOnPostgres(TenantConformance):
    @pytest.fixture
    def opener(self, postgres_url):
        from holdfast.store.postgres.store import PostgresStore

        return lambda: beside_another(PostgresStore(postgres_url, durability="process"))


# Through the public face

STORES = ("sqlite", "postgres")
PAID = []
PLAN = b"the plan of a " * 500


@tool(effect="once", unique="order-{order}")
def pay(order: int) -> str:
    PAID.append(order)
    return f"receipt {len(PAID)}"


@tool(effect="read")
def looked_up(city: str) -> str:
    return f"sunny in {city}"


@agent
def child(task, secret: str):
    task.fact("secret", secret)
    return secret


@agent
def shop(task, secret: str):
    task.user.state.name = secret
    task.message({"role": "user", "content": secret})
    task.state.receipt = task.call(pay, order=1)
    task.state.child = task.spawn(child, {"secret": secret})
    return task.wait("go")


class Count(msgspec.Struct):
    n: int = 0


@agent(state=Count)
def counting(task):
    return task.ask("how many?", name="how-many")


@agent
def asking(task):
    return task.ask("which?", name="which")


@pytest.fixture
def tenants(url):
    """Two tenants with everything the same but one word, and the store they share."""
    PAID.clear()
    with ExitStack() as stack:
        opened = [stack.enter_context(holdfast.open(url, namespace=name)) for name in ("a", "b")]
        root = stack.enter_context(holdfast.open(url))
        for app in opened:
            begun = app.run(shop, {"secret": f"of {app.namespace}"}, id="same", user="ana", thread="talk")
            assert begun.status == "waiting", begun.failure
        yield *opened, root


def everything(app):
    """All that a tenant can see."""
    ids = sorted(row.id for row in app.list())
    notes = app.records("notes")
    return {
        "tasks": [(row.id, row.agent, row.status, row.user, row.thread, row.holder) for row in app.list()],
        "states": [app.get(id).state for id in ids],
        "events": [(record.log, record.seq, record.digest) for id in ids for record in app.events(id)],
        "user": dict(app.user("ana").get().state),
        "talk": app.thread("talk").messages,
        "records": [(key, one.data, dict(one.blobs)) for key in notes.keys("") for one in notes.read(key)],
        "stats": app.stats(),
        "verified": app.verify(),
    }


def test_the_same_names_are_different_things_to_different_tenants(tenants):
    a, b, _ = tenants
    assert PAID == [1, 1], "the order of one is not the order of the other"
    for app, secret in ((a, "of a"), (b, "of b")):
        assert app.user("ana").get().state["name"] == secret
        assert [message["content"] for message in app.thread("talk").render()] == [secret]
        assert app.get("same").state["child"] == secret
        told = repr([everything(app), [record.event for record in app.events("same")]])
        assert ("of b" if app is a else "of a") not in told
    again = a.run(shop, {"secret": "of a"}, id="other", user="ana")
    assert again.state["receipt"] == "receipt 1" and PAID == [1, 1], "but it is the same order to the same tenant"


def test_what_one_does_the_other_does_not_notice(tenants, tmp_path):
    a, b, _ = tenants
    before = everything(b)
    a.signal("same", "go", 1)
    assert a.resume("same", shop).result == 1
    a.fork("same", id="forked", at=3)
    a.cancel("forked")
    a.start(asking, id="question")
    a.resume("question", asking)
    a.patch("question", StatePatch(set={"x": 1}))
    a.answer("question", "which", 7)
    a.cancel("question")
    a.export("same", tmp_path / "same.jsonl")
    assert a.user("ana").erase(by="ana", why="asked to") > 0
    assert a.gc(older_than=0).tasks > 0
    assert everything(b) == before
    with pytest.raises(TaskNotFound):
        b.get("forked")


REFUSED = {
    "append": lambda app: app.append("lone", note("mine")),
    "export": lambda app: app.export("lone", os.devnull),
    "aresume": lambda app: asyncio.run(app.aresume("lone", asking)),
    "artifact": lambda app: app.artifact("lone", "plan"),
    "get": lambda app: app.get("lone"),
    "wait": lambda app: app.wait("lone", timeout=5),
    "events": lambda app: list(app.events("lone")),
    "at": lambda app: app.at("lone", 1),
    "diff": lambda app: app.diff("lone", 1, 2),
    "deltas": lambda app: list(app.deltas("lone")),
    "step": lambda app: app.step("lone", "which#1"),
    "steps": lambda app: app.steps("lone"),
    "signal": lambda app: app.signal("lone", "go"),
    "answer": lambda app: app.answer("lone", "which", 1),
    "approve": lambda app: app.approve("lone", "pay#1", by="ana"),
    "reject": lambda app: app.reject("lone", "pay#1", by="ana"),
    "reconcile": lambda app: app.reconcile("lone", "pay#1"),
    "settle": lambda app: app.settle("lone", "pay#1", happened=True),
    "patch": lambda app: app.patch("lone", StatePatch(set={"x": 1})),
    "raise_budget": lambda app: app.raise_budget("lone", Budget(steps=9)),
    "cancel": lambda app: app.cancel("lone"),
    "reopen": lambda app: app.reopen("lone", by="ana"),
    "resume": lambda app: app.resume("lone", asking),
    "work": lambda app: app.work("lone"),
    "awork": lambda app: asyncio.run(app.awork("lone")),
    "fork": lambda app: app.fork("lone", id="mine"),
    "rollback": lambda app: app.rollback("lone"),
    "verify": lambda app: app.verify("lone"),
    "describe": lambda app: list(app.describe("lone")),
    "export_lines": lambda app: list(app.export_lines("lone")),
    "follow": lambda app: list(app.follow("lone", seconds=0.1)),
}


OWN = {
    "acall": lambda app, place: asyncio.run(app.acall(looked_up, city="Oslo", key="lone")),
    "heads": lambda app, place: nothing(app.heads(["lone"]).values()),
    "migrate_states": lambda app, place: app.migrate_states(counting),
    "arun": lambda app, place: asyncio.run(app.arun(quick, id="lone")),
    "copy_to": lambda app, place: app.copy_to(str(place / "copy.db")),
    "gc": lambda app, place: app.gc(older_than=0),
    "import_": lambda app, place: app.import_(exported(place)),
    "list": lambda app, place: app.list(user="ana", limit=9),
    "under_way": lambda app, place: app.under_way("lone"),
    "audit": lambda app, place: nothing(app.audit()),
    "call": lambda app, place: app.call(looked_up, city="Oslo", key="lone"),
    "collectable": lambda app, place: nothing(app.collectable(keep=0)),
    "counts": lambda app, place: nothing([app.counts().tasks]),
    "namespaces": lambda app, place: [one for one in app.namespaces() if one != app.namespace] == [],
    "depths": lambda app, place: [one for one in app.depths() if one.namespace == "a" and app.namespace == "b"] == [],
    "due": lambda app, place: nothing(app.due([quick])),
    "doctor": lambda app, place: app.doctor(),
    "expired": lambda app, place: nothing([app.expired().total]),
    "find": lambda app, place: nothing([app.find("lone")]),
    "follow_inbox": lambda app, place: nothing(app.follow_inbox(seconds=0.1)),
    "forks": lambda app, place: nothing(app.forks("lone")),
    "head": lambda app, place: nothing([app.head("lone")]),
    "inbox": lambda app, place: nothing(app.inbox()),
    "is_interrupted": lambda app, place: nothing([row for row in app.list() if app.is_interrupted(row)]),
    "new_id": lambda app, place: app.new_id(),
    "on_events": lambda app, place: app.on_events(print),
    "records": lambda app, place: nothing([recorded(app)]),
    "row": lambda app, place: nothing([app.row("lone")]),
    "run": lambda app, place: app.run(quick, id="lone", user="ana", thread="talk"),
    "start": lambda app, place: app.start(quick, id="lone", user="ana", thread="talk"),
    "stats": lambda app, place: app.stats(),
    "task": lambda app, place: blocked(app),
    "thread": lambda app, place: app.thread("talk").message({"role": "user", "content": "of b"}),
    "metrics": lambda app, place: [line for line in app.metrics().splitlines() if not line.startswith("#")],
    "threads": lambda app, place: nothing(app.threads()),
    "users": lambda app, place: nothing(app.users()),
    "user": lambda app, place: (app.user("ana").patch(StatePatch(set={"x": 1})), app.user("ana").erase(by="b")),
    "verify": lambda app, place: app.verify(),
    "watch": lambda app, place: nothing(app.watch(after="0.0", seconds=0.1)),
    "worker": lambda app, place: drained(app.worker([asking, quick])),
    "workers": lambda app, place: app.workers(),
}
"""What names no task of another's, or begins one of its own."""

NEVER = {
    "backup": "it holds every tenant's tasks, and a tenant is refused",
    "close": "there is nothing to see",
    "fetch": "a large value is named by its hash, which only those can name who have read it",
}


def nothing(found):
    """Nothing of another's is among what was found."""
    assert not any(found)


def exported(place):
    with holdfast.open("memory:") as app:
        app.run(quick, id="lone", user="ana", thread="talk")
        app.export("lone", place / "lone.jsonl")
    return place / "lone.jsonl"


def recorded(app):
    """Use the space and the key of another in every way there is; gives what was found of it."""
    notes = app.records("notes")
    found = [notes.keys(), notes.read("lone"), notes.head("lone"), notes.pop("lone"), notes.changes("lone").records]
    notes.append("lone", b"mine", blobs={"plan": PLAN})
    notes.trim("lone", keep=1)
    notes.drop("lone")
    return [one for one in found if one]


def blocked(app):
    with app.task("block", id="lone") as task:
        task.fact("mine", 1)


def drained(worker):
    with working(worker):
        time.sleep(0.1)


def apart():
    """Two tenants, one of which has something, and the store itself."""
    store = MemoryStore()
    a, b = (holdfast.App(Tenant(store, name), namespace=name) for name in ("a", "b"))
    a.run(asking, id="lone", user="ana", thread="talk")
    a.start(quick, id="ready", user="ana")
    a.thread("talk").message({"role": "user", "content": "of a"})
    a.records("notes").append("lone", [b"of a"], user="ana")
    a.records("notes").append("lone", b"of a", blobs={"plan": PLAN})
    return a, b, holdfast.App(store)


def test_every_verb_is_tried_by_a_stranger():
    verbs = {name for name in vars(holdfast.App) if not name.startswith("_") and callable(getattr(holdfast.App, name))}
    assert verbs == {*REFUSED, *OWN, *NEVER}, "add it: how a tenant is kept from what another has"


@pytest.mark.parametrize("verb", REFUSED)
def test_what_another_has_cannot_be_reached_by_any_verb(verb):
    a, b, root = apart()
    before = everything(a)
    for app in (b, root):
        with pytest.raises(TaskNotFound):
            REFUSED[verb](app)
    assert everything(a) == before and b.list() == root.list() == []


@pytest.mark.parametrize("verb", OWN)
def test_what_a_tenant_does_of_its_own_changes_nothing_for_another(verb, tmp_path):
    a, b, root = apart()
    before = everything(a)
    for app in (b, root):
        (tmp_path / app.namespace).mkdir(exist_ok=True)
        told = OWN[verb](app, tmp_path / app.namespace)
        assert app is root or "of a" not in repr((told, *everything(app).values()))
    assert everything(a) == before


def test_a_large_value_is_found_by_who_refers_to_it_and_by_nobody_who_only_knows_its_hash(tenants, texts):
    a, b, root = tenants
    secret = "the plan of a " * 500
    ref, blob = codec.make_blob(codec.pack(secret))
    a.start(quick, id="large")
    a.append("large", FactLearned(key="plan", value=codec.pack(secret)))
    assert a.store.blob(blob.hash) == root.store.blob(blob.hash) == blob.data and b.store.blob(blob.hash) is None
    b.start(quick, id="thief")
    b.append("thief", FactLearned(key="plan", value=ref))
    with texts.raises(holdfast.HoldfastError):
        assert b.get("thief").facts["plan"].value
    b.start(quick, id="same-value")
    b.append("same-value", FactLearned(key="plan", value=codec.pack(secret)))
    assert b.store.blob(blob.hash) == blob.data, "who has the value may read it"


def test_an_import_brings_no_values_that_nothing_in_it_refers_to(tenants, url, tmp_path):
    """Such a value could be another's, or stand in the way of one that somebody writes later."""
    a, b, _ = tenants
    secret, later = "the plan of a " * 500, "what comes later " * 500
    (_, known), (_, unknown) = (codec.make_blob(codec.pack(text)) for text in (secret, later))
    a.start(quick, id="large")
    a.append("large", FactLearned(key="plan", value=codec.pack(secret)))
    b.start(quick, id="moving")
    b.append("moving", FactLearned(key="fine", value=codec.pack("fine " * 2000)))
    b.export("moving", tmp_path / "moving.jsonl")
    head, real, *rest = (tmp_path / "moving.jsonl").read_bytes().splitlines(keepends=True)
    assert b'"is":"blob"' in real
    fake = [b'{"is":"blob","hash":"%s","data":"AAAA"}\n' % one.hash.encode() for one in (known, unknown)]
    twice = re.sub(rb'"data":"[^"]*"', b'"data":"AAAA"', real)
    (tmp_path / "forged.jsonl").write_bytes(b"".join([head, *fake, twice, real, *rest]))
    with holdfast.open(url, namespace="c") as c:
        assert c.import_(tmp_path / "forged.jsonl").logs == 1
        assert c.get("moving").facts["fine"].value == "fine " * 2000
        assert c.store.blob(known.hash) is None and c.store.blob(unknown.hash) is None
    a.append("large", FactLearned(key="later", value=codec.pack(later)))
    assert a.get("large").facts["later"].value == later


@pytest.mark.parametrize("name", ["a!lone", "b!x", "../a", "@user/ana", "@a!x", "!", "a!@user/ana", "", " a", "a\n"])
def test_names_that_try_to_break_out_are_refused(name):
    store = MemoryStore()
    a, b, root = (holdfast.App(Tenant(store, "a")), holdfast.App(Tenant(store, "b")), holdfast.App(store))
    a.run(asking, id="lone", user="ana")
    events = root.stats().events
    for app in (b, root):
        for attempt in (
            lambda app=app: app.get(name),
            lambda app=app: app.start(asking, id=name),
            lambda app=app: app.signal(name, "go"),
            lambda app=app: app.fork(name, id="x"),
            lambda app=app: app.user(name).get(),
            lambda app=app: app.thread(name).messages,
            lambda app=app: app.start(asking, id="x", user=name),
        ):
            with pytest.raises(InvalidId):
                attempt()
    if name:
        with pytest.raises(InvalidId):
            Tenant(store, name)
    assert root.stats().events == events, "nothing was written"


def test_a_tenant_is_in_no_other_and_its_workers_serve_nobody_else(tenants, texts):
    a, _, root = tenants
    with texts.raises(InvalidValue):
        Tenant(a.store, "c")
    with texts.raises(InvalidValue):
        a.worker([shop], namespaces=["b"])
    with texts.raises(StoreError):
        a.backup("everything.db")
    assert root.worker([shop], namespaces=["a", "b"]).plan.namespaces == ("a", "b")


def test_a_unique_key_cannot_pass_for_a_tenants(tenants):
    *_, root = tenants

    @tool(effect="once", unique="{key}")
    def take(key: str) -> str:
        return PAID.append(key) or "taken"

    @agent
    def thief(task, key: str):
        return task.call(take, key=key)

    assert root.run(thief, {"key": "a!order-1"}, id="thief").status == "failed" and PAID == [1, 1]


def test_the_store_as_a_whole_is_verified_copied_and_collected(tenants, tmp_path):
    a, b, root = tenants
    assert root.verify().ok and root.verify().events == a.verify().events + b.verify().events
    assert root.stats().tasks == a.stats().tasks + b.stats().tasks == 4
    assert root.list() == [], "the store's own tasks are those of no tenant"
    copy, part = str(tmp_path / "copy.db"), str(tmp_path / "part.db")
    root.copy_to(copy)
    a.copy_to(part)
    with holdfast.open(copy, namespace="b") as copied:
        assert everything(copied)["events"] == everything(b)["events"]
    with holdfast.open(part) as alone:
        assert alone.stats().tasks == 2 and alone.get("same").state["child"] == "of a"
    for app in (a, b):
        app.signal("same", "go")
        app.resume("same", shop)
    assert root.gc(older_than=0).tasks == 4
    assert a.list() == b.list() == [] and root.verify().ok


def test_what_one_exports_another_can_bring_in_as_its_own(tenants, tmp_path):
    a, b, _ = tenants
    a.start(asking, id="moving")
    a.export("moving", tmp_path / "moving.jsonl")
    before = a.get("moving").seq
    assert b.import_(tmp_path / "moving.jsonl").logs == 1
    assert b.run(asking, id="moving").status == "waiting"
    assert a.get("moving").seq == before and b.verify().ok


# Workers


@contextmanager
def working(worker):
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(30)


@agent
def quick(task):
    return task.step(lambda: time.sleep(0.005), name="moment")


@pytest.mark.parametrize("namespaces", [["a", "b"], "*"], ids=["named", "all"])
def test_a_tenant_with_a_few_tasks_does_not_wait_for_one_with_thousands(url, namespaces):
    """The places of a worker are shared among tenants, whoever was first and has more."""
    with ExitStack() as stack:
        a, b = (stack.enter_context(holdfast.open(url, namespace=name, durability="process")) for name in ("a", "b"))
        root = stack.enter_context(holdfast.open(url, durability="process"))
        for n in range(400):
            a.start(quick, id=f"t{n}")
        for n in range(10):
            b.start(quick, id=f"t{n}")
        worker = root.worker([quick], namespaces=namespaces, concurrency=8)
        with working(worker):
            until(lambda: sum(row.status == "completed" for row in b.list()) >= 10)
            done = len(a.list(status="completed", limit=400))
        assert done < 200, "the few were done before half of the many"


def test_a_worker_of_one_tenant_takes_nothing_of_anothers(url):
    with holdfast.open(url, namespace="a") as a, holdfast.open(url, namespace="b") as b, holdfast.open(url) as root:
        for app in (a, b, root):
            app.start(quick, id="t")
        with working(b.worker([quick])):
            until(lambda: b.get("t").status == "completed", seconds=30)
            time.sleep(0.5)
            assert [known.serving.namespaces for known in b.workers()] == [("b",)]
            assert a.workers() == root.workers() == []
        with working(root.worker([asking], namespaces=["a", "b"])):
            until(lambda: root.store.queues.announced())
            told = [[known.serving.namespaces for known in app.workers()] for app in (a, b)]
            assert told == [[("a",)], [("b",)]], "whom else it works for is nothing to a tenant"
        assert a.get("t").status == root.get("t").status == "pending"


def test_an_app_knows_the_namespaces_that_have_tasks(url):
    with holdfast.open(url) as whole:
        assert whole.namespaces() == []
        for name in ("b", "B", "", "a", "b"):
            with holdfast.open(url, namespace=name) as app:
                app.start("writer", {"n": 1}, id=f"t{len(app.list())}")
                assert app.namespaces() == [name] or not name
        assert whole.namespaces() == ["", "B", "a", "b"]
