"""What a process remembers of states: it is never stale, never shared, and never more than it may be."""

import threading
import tracemalloc

import pytest

import holdfast
from holdfast import Task, agent
from holdfast.core import codec, events as ev, limits
from holdfast.core.errors import InvalidValue, SeqOutOfRange, TaskCollected
from holdfast.core.state.shapes import State
from holdfast.engine.logs.cache import Bounded
from holdfast.engine.people.erasure import erase_logs

STORES = ("sqlite", "postgres")
P = codec.pack


class Asked:
    """A store, and how often each of its verbs was asked for."""

    def __init__(self, store):
        self._store = store
        self.verbs = []

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def ask(*args, **given):
            self.verbs.append(name)
            return found(*args, **given)

        return ask


@pytest.fixture
def two(url):
    with holdfast.open(url) as one, holdfast.open(url) as other:
        yield one, other


def grown(app, id="t", events=20, **given):
    app.start("a", id=id, **given)
    app.append(id, *(ev.StateSet(name=f"k{n}", value=P(n)) for n in range(events)))


def asked(app, action):
    """Which verbs of the store an action asks for."""
    real = app.logs.store
    app.logs.store = Asked(real)
    try:
        action()
        return app.logs.store.verbs
    finally:
        app.logs.store = real


def test_a_state_in_memory_is_confirmed_by_one_question(app):
    grown(app)
    app.get("t")
    assert asked(app, lambda: app.logs.load("t")) == ["since"]
    app.append("t", ev.StateSet(name="k", value=P("new")))
    assert asked(app, lambda: app.logs.load("t")) == ["since"]
    assert app.get("t").state["k"] == "new"


def test_a_load_without_one_asks_twice(app):
    grown(app)
    app.logs.cache.states.clear()
    assert asked(app, lambda: app.logs.load("t")) == ["opening", "read"]
    log = app.logs.load("t")
    log._snapshot_at = -1
    log.append([ev.StageSet(stage="x")])
    app.logs.cache.states.clear()
    assert asked(app, lambda: app.logs.load("t")) == ["opening", "read"], "the snapshot's row comes with the tail"


def test_what_another_process_wrote_is_seen_at_once(two):
    one, other = two
    grown(one)
    for n in range(5):
        assert one.get("t").state.get("n") == (n - 1 if n else None)
        other.append("t", ev.StateSet(name="n", value=P(n)))
    assert one.get("t").state["n"] == 4
    assert one.logs.cache.counts.hits >= 5 and one.logs.cache.counts.dropped == 0


def test_what_another_process_erased_is_gone_at_once(two):
    """An erased body changes no digest: the number of erasures tells."""
    one, other = two
    grown(one)
    one.append("t", ev.StateSet(name="secret", value=P("ana@example.com")), ev.StageSet(stage="x"))
    assert one.get("t").state["secret"] == "ana@example.com"
    head = one.get("t").seq
    assert erase_logs(other.logs, ["t"], by="", why="", only=lambda event: getattr(event, "name", "") == "secret") == 1
    assert one.get("t").seq == head
    assert "secret" not in one.get("t").state
    assert one.logs.cache.counts.dropped == 1


def test_what_a_fork_inherits_is_gone_when_it_is_erased_in_its_past(two):
    one, other = two
    grown(one)
    one.append("t", ev.StateSet(name="secret", value=P("x")))
    one.fork("t", id="f")
    one.fork("f", id="g")
    assert one.get("g").state["secret"] == "x"
    erase_logs(other.logs, ["t"], by="", why="", only=lambda event: getattr(event, "name", "") == "secret")
    assert "secret" not in one.get("g").state


def test_nothing_is_left_in_memory_of_what_this_process_erased(app):
    grown(app, user="ana")
    app.append("t", ev.TaskCancelled())
    app.user("ana").state.name = "Ana"
    app.get("t"), app.user("ana").get()
    app.user("ana").erase()
    assert app.logs.cache.states.get("t") is None and app.logs.cache.states.get("@user/ana") is None
    assert len(app.logs.cache.messages) == 0


def test_a_removed_task_is_gone_at_once(two):
    one, other = two
    grown(one)
    one.append("t", ev.TaskCancelled())
    one.get("t")
    assert other.gc(keep=0).tasks == 1
    with pytest.raises(TaskCollected):
        one.get("t")
    assert one.logs.cache.states.get("t") is None


def test_a_log_that_is_another_now_is_read_anew(tmp_path):
    """As after a restored backup: the same name, the same length, other events."""
    with holdfast.open(tmp_path / "a.db") as one, holdfast.open(tmp_path / "b.db") as other:
        for app, value in ((one, "one"), (other, "other")):
            app.start("a", id="t")
            app.append("t", ev.StateSet(name="whose", value=P(value)))
            app.append("t", ev.StateSet(name="k", value=P(value)))
        assert one.get("t").state["whose"] == "one"
        one.logs.store = other.store
        assert one.get("t").state["whose"] == "other"
        assert one.logs.cache.counts.dropped == 1


def test_a_head_that_moved_back_is_read_anew(tmp_path):
    with holdfast.open(tmp_path / "a.db") as one:
        one.start("a", id="t")
        one.append("t", ev.StateSet(name="k", value=P(1)))
        one.backup(tmp_path / "b.db")
        one.append("t", ev.StateSet(name="k", value=P(2)))
        assert one.get("t").state["k"] == 2
        with holdfast.open(tmp_path / "b.db") as other:
            one.logs.store = other.store
            assert one.get("t").state["k"] == 1


def test_nobody_changes_what_somebody_else_loaded(app):
    grown(app)
    first, second = app.logs.load("t"), app.logs.load("t")
    assert first.folded is not second.folded
    before = codec.dump(second.folded)
    first.append([ev.StateSet(name="k0", value=P("changed")), ev.FlagRaised(flag="f"), ev.PlanSet(steps=("x",))])
    assert codec.dump(second.folded) == before
    kept = app.logs.cache.states.get("t")
    assert kept.head == second.head and codec.dump(kept.state) == before
    assert app.get("t").flags == ["f"]


def test_an_earlier_state_comes_from_memory_only_if_that_is_earlier_still(app):
    grown(app, events=10)
    app.append("t", *(ev.StateSet(name="late", value=P(n)) for n in range(10)))
    app.get("t")
    assert asked(app, lambda: app.logs.load("t", upto=5)) == ["opening", "read"]
    assert app.at("t", 5).seq == 5 and "late" not in app.at("t", 11).state
    head = app.get("t").seq
    app.append("t", ev.StateSet(name="late", value=P("x")), ev.StateSet(name="late", value=P("y")))
    assert app.at("t", head + 1).state["late"] == "x"
    with pytest.raises(SeqOutOfRange):
        app.at("t", head + 3)
    assert app.get("t").state["late"] == "y"


def test_a_state_that_is_far_behind_is_not_the_longer_way(app):
    """A snapshot in the store is nearer than a state in memory that others have left far behind."""
    grown(app)
    app.get("t")
    kept = app.logs.cache.states.get("t")
    log = app.logs.load("t")
    for _ in range(limits.CACHE_TAIL_EVENTS // 50 + 1):
        log.append([ev.LogWritten(text="x") for _ in range(50)])
    app.logs.cache.states.put("t", kept, kept.weight)
    assert asked(app, lambda: app.logs.load("t")) == ["since", "opening", "read"]
    assert app.get("t").seq == log.head.seq


def test_snapshots_are_taken_though_nobody_reads_the_whole_log(app):
    """Whoever begins from memory knows how much the log has grown since the last snapshot."""
    app.start("a", id="t")
    for n in range(100):
        app.append("t", ev.StateSet(name=f"k{n % 3}", value=P("x" * 2000)))
    assert app.stats().snapshots >= 1


def test_memory_is_bounded_by_entries_and_bytes():
    kept = Bounded(1000, 3)
    for n in range(5):
        kept.put(f"k{n}", n, 10)
    assert [kept.get(f"k{n}") for n in range(5)] == [None, None, 2, 3, 4]
    kept.get("k2")
    kept.put("large", "x", 480)
    assert len(kept) == 3 and kept.get("k3") is None and kept.get("k2") == 2
    kept.put("larger", "y", 490)
    kept.put("largest", "z", 500)
    assert kept.bytes <= 1000
    kept.put("k2", "too large", 501)
    assert kept.get("k2") is None, "what is there no longer holds"
    kept.clear()
    assert kept.bytes == len(kept) == 0


def test_the_newest_of_the_large_is_kept_beside_the_others():
    kept = Bounded(1000, 3, 8000)
    for n in range(3):
        kept.put(f"k{n}", n, 10)
    kept.put("large", "x", 4000)
    assert kept.get("large") == "x" and [kept.get(f"k{n}") for n in range(3)] == [0, 1, 2]
    kept.put("too large", "y", 8001)
    assert kept.get("too large") is None and kept.get("large") == "x"
    kept.put("newer", "z", 8000)
    assert kept.get("newer") == "z" and kept.get("large") is None and kept.bytes == 30
    kept.put("newer", "small again", 10)
    assert kept.get("newer") == "small again" and len(kept) == 3 and kept.bytes == 30
    kept.put("large", "x", 4000)
    kept.drop("large")
    assert kept.get("large") is None
    assert Bounded(0, 3).max_large == 0


@pytest.mark.parametrize("steps", [100, 3_000])
def test_a_state_weighs_what_it_takes_in_memory(steps):
    @agent
    def busy(task: Task) -> None:
        for number in range(steps):
            task.step(str, number, name="work")

    with holdfast.open("memory:") as app:
        app.run(busy, id="t")
        kept = app.logs.load("t").kept()
        body = codec.dump(kept.state)
        tracemalloc.start()
        state = codec.load(body, State)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(state.steps) == steps and 0.75 < taken / kept.weight < 1.25


def test_a_task_too_large_for_the_room_is_read_from_memory_all_the_same(url):
    with holdfast.open(url, cache_bytes=40_000) as app:
        for id in ("t", "u"):
            grown(app, id)
            app.append(id, *(ev.StateSet(name=f"v{n}", value=P("x" * 1000)) for n in range(20)))
            app.get(id)
        before = app.logs.cache.counts.misses
        assert len(app.get("u").state) == 40 and app.logs.cache.counts.misses == before
        assert len(app.get("t").state) == 40 and app.logs.cache.counts.misses == before + 1


def test_a_large_state_makes_room_for_itself(url):
    with holdfast.open(url, cache_bytes=400_000) as app:
        for id in "abcdef":
            grown(app, id)
            app.append(id, *(ev.StateSet(name=f"v{n}", value=P("x" * 1000)) for n in range(20)))
            app.get(id)
        assert 1 <= len(app.logs.cache.states) < 6
        assert app.logs.cache.states.bytes <= 200_000
        assert [len(app.get(id).state) for id in "abcdef"] == [40] * 6


def test_without_memory_everything_is_read_and_all_is_the_same(url):
    with holdfast.open(url, cache_bytes=0) as app:
        grown(app)
        assert len(app.get("t").state) == len(app.get("t").state) == 20
        assert len(app.logs.cache.states) == 0 and app.logs.cache.counts.hits == 0


@pytest.mark.parametrize("bytes", [-1, 1.5, "32", None, True])
def test_a_size_that_is_none_is_refused(tmp_path, bytes):
    with pytest.raises(InvalidValue, match="cache_bytes"):
        holdfast.open(tmp_path / "x.db", cache_bytes=bytes)
    assert not (tmp_path / "x.db").exists()


def test_threads_may_read_and_write_at_once(app):
    grown(app)
    failed = []

    def work(number):
        try:
            for n in range(15):
                app.append("t", ev.StateIncremented(name="n", by=1))
                assert app.get("t").state["n"] >= n
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and app.get("t").state["n"] == 60


def test_a_task_that_was_worked_on_is_in_memory_as_it_ended(app):
    @agent
    def work(task):
        return task.step(lambda: 5, name="x")

    app.run(work, id="w")
    kept = app.logs.cache.states.get("w")
    assert kept.state.summary.status == "completed" and kept.head == app.store.head("w")
    assert app.get("w").result == 5


# Threads


@agent
def listens(task):
    task.message({"role": "assistant", "content": f"heard {len(task.messages)}"})
    return [one["content"] for one in task.messages]


def seen(app):
    return app.run(listens, thread="talk").result


def test_a_task_sees_what_was_said_in_its_thread_whoever_remembers_it(two, url):
    one, other = two
    for n in range(3):
        one.thread("talk").message({"role": "user", "content": f"m{n}"})
    assert seen(one) == ["m0", "m1", "m2", "heard 3"]
    other.thread("talk").message({"role": "user", "content": "more"})
    assert seen(other)[3:] == ["heard 3", "more", "heard 5"]
    remembered = seen(one)
    assert remembered[5:] == ["heard 5", "heard 6"]
    with holdfast.open(url, cache_bytes=0) as plain:
        assert seen(plain) == [*remembered, "heard 7"]
    assert len(one.logs.cache.talks) == 1


def test_a_task_reads_nothing_again_of_a_thread_that_is_in_memory(app):
    for n in range(3):
        app.thread("talk").message({"role": "user", "content": f"m{n}"})
    seen(app)
    verbs = asked(app, lambda: seen(app))
    assert verbs.count("since") == 2, "once for what was said, once for its state"
    assert "read" not in verbs and "read_kind" not in verbs


def test_what_a_user_said_is_gone_from_a_thread_in_memory_when_another_process_erases_them(two):
    one, other = two
    one.thread("talk").message({"role": "user", "content": "mine"}, by="ana")
    one.thread("talk").message({"role": "user", "content": "theirs"}, by="bo")
    assert seen(one) == ["mine", "theirs", "heard 2"]
    other.user("ana").state.x = 1
    other.user("ana").erase()
    assert seen(one) == ["theirs", "heard 2", "heard 2"]


def test_a_message_is_read_and_counted_once(app):
    counted = []

    @agent
    def windowed(task):
        window = task.messages.window(max_tokens=1000)
        own = task.messages.window(max_tokens=1000, counter=lambda text: counted.append(text) or len(text))
        return window.tokens, own.tokens

    app.thread("talk").message({"role": "user", "content": "hello there"})
    first = app.run(windowed, thread="talk").result
    assert app.run(windowed, thread="talk").result == first
    assert len(counted) >= 2, "what a counter of somebody's own counts is not remembered"
    (heard,) = [one for one, _ in app.logs.cache.messages._kept.values()]
    assert heard.count is not None and heard.message.text == "hello there"
