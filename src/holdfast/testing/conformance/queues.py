"""What every store must do for workers. Part of `StoreConformance`."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core import codec, events as ev
from holdfast.core.codec import Origin, Write
from holdfast.failpoints import armed
from holdfast.store.protocol import Query, Store
from holdfast.store.queues import SHORT, Due, QueueDepth, Rate, WaitDepth, places
from holdfast.testing.conformance.samples import (
    AT,
    Opener,
    SampleCrash,
    add,
    check_chain,
    claim,
    crash_at,
    created,
    draft,
    group,
    head_of,
    leave,
    note,
    ok,
    summary_of,
    take,
    then,
    wanted,
    within,
)
from holdfast.testing.conformance.transact import run_threads

SECOND = 1_000_000
PATIENCE_SECONDS = 10.0
"""Long enough for the slowest machine; nothing here takes that long if it works."""


class QueueConformance:
    """The contract of `Store.queues`: what is found, in which order, by whom; and that nothing is taken twice."""

    @pytest.fixture
    def stores(self, opener: Opener) -> Iterator[list[Store]]:
        """The same store, opened as several processes would."""
        opened = [opener() for _ in range(3)]
        yield opened
        for store in opened:
            store.close()

    # What is found

    def test_tasks_are_taken_by_priority_then_the_oldest_first(self, store: Store) -> None:
        for number, priority in enumerate((0, 5, -3, 5, 0, 9)):
            add(store, f"t{number}", priority=priority)
        assert claim(store, limit=2) == ["t5", "t1"]
        assert claim(store) == ["t3", "t0", "t4", "t2"]
        assert claim(store) == []

    def test_a_task_for_later_is_not_taken_before_its_time(self, store: Store) -> None:
        add(store, "later", start_us=AT + 5)
        add(store, "now")
        assert claim(store, now_us=AT + 4) == ["now"]
        assert claim(store, now_us=AT + 5) == ["later"]

    def test_a_task_that_waits_is_taken_when_its_time_has_come(self, store: Store) -> None:
        for suspended in (ev.TaskSuspended(why="timer", wake_us=AT + 9), ev.TaskSuspended(why="person")):
            add(store, suspended.why)
            then(store, suspended.why, ev.TaskClaimed(holder="x"), suspended)
        assert claim(store, now_us=AT + 8) == []
        assert claim(store, now_us=AT + 9) == ["timer"]
        then(store, "person", ev.CancelRequested(why="asked"))
        assert claim(store, now_us=AT + 9) == ["person"], "its wait was ended"

    def test_priority_and_age_count_among_those_that_waited_and_those_that_did_not(self, store: Store) -> None:
        add(store, "a", start_us=AT - 1)
        add(store, "b", priority=1)
        add(store, "c", start_us=AT - 9, priority=1)
        add(store, "d")
        add(store, "e", start_us=AT - 5, priority=2)
        assert claim(store, limit=4) == ["e", "b", "c", "a"]
        assert claim(store, limit=4) == ["d"]

    def test_only_what_is_served_is_found(self, store: Store) -> None:
        add(store, "other-agent", agent="other", priority=9)
        add(store, "other-version", version="2", priority=9)
        add(store, "other-queue", queue="slow")
        add(store, "other-tenant", namespace="acme")
        add(store, "tricky", agent="tester 2", version="")
        assert claim(store) == []
        assert claim(store, served=()) == []
        both = (("tester", ""), ("tester", "2"), ("other", ""))
        assert claim(store, served=both, limit=1) == ["other-agent"]
        assert claim(store, served=both) == ["other-version"]
        assert claim(store, queue="slow") == ["other-queue"]
        assert claim(store, namespace="acme") == ["other-tenant"]
        assert claim(store, served=(("tester", "2 "), ("tester 2", ""))) == ["tricky"]

    def test_what_has_ended_or_is_being_worked_on_is_not_found(self, store: Store) -> None:
        for log in ("done", "busy", "gone"):
            add(store, log)
        then(store, "done", ev.TaskClaimed(holder="x"), ev.TaskCompleted(result=codec.pack(1)))
        then(store, "busy", ev.TaskClaimed(holder="x"))
        then(store, "gone", ev.TaskCancelled())
        assert claim(store, now_us=AT * 2) == []

    def test_tasks_of_a_lost_holder_are_found_first_and_only_if_it_is_named(self, store: Store) -> None:
        for number, (holder, priority) in enumerate((("x", 0), ("y", 0), ("x", 1), ("z", 0))):
            add(store, f"t{number}", priority=priority)
            then(store, f"t{number}", ev.TaskClaimed(holder=holder))
        add(store, "new", priority=9)
        add(store, "elsewhere", queue="slow")
        then(store, "elsewhere", ev.TaskClaimed(holder="x"))
        assert claim(store, lost=("x", "y"), limit=2) == ["t2", "t0"]
        assert claim(store, lost=("x", "y", "absent")) == ["t1", "new"]
        assert summary_of(store, "t0").claims == 2
        assert summary_of(store, "t3").holder == "z"

    # What taking writes

    def test_a_claim_is_an_event_after_the_head_that_was_seen(self, store: Store) -> None:
        add(store, "t")
        ok(store.append([group(Write("t", draft(note("x"), note("y"))))])[0])
        assert claim(store) == ["t"]
        assert check_chain(store, "t") == ["task_created", "log_written", "log_written", "task_claimed"]
        row = summary_of(store, "t")
        assert (row.status, row.holder, row.claims, row.wake_us) == ("running", store.holder(), 1, None)
        assert row.lease_seconds == store.lease_seconds

    def test_what_is_offered_is_the_row_and_the_head_as_they_are(self, store: Store) -> None:
        add(store, "t", user="ana", queue_key="k", priority=3, queue="q", version="7", deadline_us=AT + 1)
        seen: list[Due] = []
        store.queues.claim(wanted(queue="q", served=(("tester", "7"),)), seen.append)
        assert seen == [Due(summary_of(store, "t"), head_of(store, "t"))]

    def test_what_is_left_alone_stays_as_it_is(self, store: Store) -> None:
        for log in ("a", "b", "c"):
            add(store, log)
        assert store.queues.claim(wanted(), leave) == {}

        def only_b(due: Due) -> Write | None:
            return take(store)(due) if due.summary.id == "b" else None

        assert list(store.queues.claim(wanted(), only_b)) == ["b"]
        assert [len(store.read(log)) for log in ("a", "b", "c")] == [1, 2, 1]
        assert claim(store) == ["a", "c"]

    def test_events_that_come_along_with_a_claim_are_the_whole_log(self, store: Store) -> None:
        for log, events in (("short", 2), ("long", 2 * SHORT)):
            add(store, log)
            then(store, log, *[ev.NoteSet(key="k", value=codec.pack(1))] * events)
        found = store.queues.claim(wanted(), take(store))
        assert list(found) == ["short", "long"]
        assert all(rows in ([], store.read(log)) for log, rows in found.items())

    def test_an_error_while_taking_leaves_everything_as_it_was(self, store: Store) -> None:
        for log in ("a", "b"):
            add(store, log)

        def fail(due: Due) -> Write | None:
            if due.summary.id == "b":
                raise ValueError("cannot")
            return take(store)(due)

        with pytest.raises(ValueError, match="cannot"):
            store.queues.claim(wanted(), fail)
        assert [len(store.read(log)) for log in ("a", "b")] == [1, 1]
        assert claim(store) == ["a", "b"]

    @pytest.mark.parametrize("point", ["commit.before", "commit.after"])
    def test_a_crash_around_the_commit_leaves_a_claim_or_none(self, opener: Opener, point: str) -> None:
        store = opener()
        add(store, "t")

        with pytest.raises(SampleCrash), armed(crash_at(point)):
            claim(store)
        again = opener()
        written = point == "commit.after"
        assert check_chain(again, "t") == ["task_created", "task_claimed"][: 1 + written]
        assert claim(again) == ([] if written else ["t"])
        again.close()
        store.close()

    # Limits of a queue

    def test_a_queue_has_no_more_under_way_than_it_may(self, store: Store) -> None:
        for number in range(6):
            add(store, f"t{number}")
        add(store, "other", queue="slow")
        then(store, "other", ev.TaskClaimed(holder="x"))
        assert claim(store, concurrency=2) == ["t0", "t1"]
        assert claim(store, concurrency=2) == []
        assert claim(store, concurrency=3, limit=2) == ["t2"]
        assert claim(store, concurrency=1) == [], "fewer are allowed than there are"
        then(store, "t1", ev.TaskCompleted(result=codec.pack(1)))
        assert claim(store, concurrency=3) == ["t3"]
        assert claim(store, limit=1) == ["t4"], "one who knows of no limit keeps none"

    def test_a_key_has_no_more_under_way_than_it_may_and_keeps_nobody_else_waiting(self, store: Store) -> None:
        for number in range(30):
            add(store, f"a{number}", queue_key="a", priority=1)
        for number in range(3):
            add(store, f"b{number}", queue_key="b")
            add(store, f"free{number}")
        first = claim(store, per_key=2, limit=6)
        assert first == ["a0", "a1", "b0", "free0", "b1", "free1"], "beyond all those that had to be passed over"
        assert claim(store, per_key=2) == ["free2"]
        then(store, "a0", ev.TaskReleased())
        assert claim(store, per_key=2) == ["a0"]
        assert claim(store, per_key=3) == ["a2", "b2"]

    @pytest.mark.parametrize("limit", [{"concurrency": 2}, {"per_key": 1}])
    def test_a_full_queue_does_not_keep_lost_tasks_from_being_taken_over(
        self, store: Store, limit: dict[str, int]
    ) -> None:
        for number in range(4):
            add(store, f"t{number}", queue_key=f"k{number % 2}")
        for log in ("t0", "t1"):
            then(store, log, ev.TaskClaimed(holder="x"))
        assert claim(store, **limit) == []
        assert claim(store, **limit, lost=("y",)) == []
        assert claim(store, **limit, lost=("x",), served=(("other", ""),)) == []
        assert claim(store, **limit, lost=("x",), limit=1) == ["t0"]
        assert claim(store, **limit, lost=("x",)) == ["t1"]
        seen: list[str] = []
        store.queues.claim(wanted(**limit, lost=(store.holder(),)), lambda due: seen.append(due.summary.id))
        assert seen == ["t0", "t1"], "what may still be worked on counts"

    def test_a_rate_lets_no_more_begin_than_it_says(self, store: Store) -> None:
        rate = Rate(3, 10)
        for number in range(20):
            add(store, f"t{number}")
        assert claim(store, rate=rate) == ["t0", "t1", "t2"]
        assert claim(store, rate=rate, now_us=AT + 3 * SECOND) == []
        assert claim(store, rate=rate, now_us=AT + 4 * SECOND) == ["t3"]
        assert claim(store, rate=rate, now_us=AT + 100 * SECOND) == ["t4", "t5", "t6"], "it saves up no more than that"

    def test_clocks_that_differ_let_no_more_begin(self, store: Store) -> None:
        rate, begun = Rate(1, 10), list[str]()
        for number in range(20):
            add(store, f"t{number}")
        for turn in range(20):
            begun += claim(store, rate=rate, now_us=AT + turn * SECOND)
            begun += claim(store, rate=rate, now_us=AT + turn * SECOND - 9 * SECOND)
        assert begun == ["t0", "t1"]

    def test_a_rate_of_less_than_one_is_saved_up(self, store: Store) -> None:
        for number in range(3):
            add(store, f"t{number}")
        slow = Rate(0.5, 60)
        begun = [claim(store, rate=slow, now_us=AT + minute * 60 * SECOND) for minute in range(5)]
        assert begun == [["t0"], [], ["t1"], [], ["t2"]]

    # How often a tool may be called

    def test_a_tool_is_called_no_more_often_than_its_rate_says(self, store: Store) -> None:
        rate, window = Rate(3, 10), places("send", Rate(3, 10)).window_us
        assert 10 * SECOND <= window <= 11 * SECOND
        begun = time.monotonic()
        waits = [store.queues.reserve("send", rate, AT) for _ in range(7)]
        took_us = int((time.monotonic() - begun) * 1_000_000)  # a store with a clock of its own has come so much nearer
        assert all(one.is_reserved for one in waits)
        for one, windows in zip(waits, [0, 0, 0, 1, 1, 1, 2], strict=True):
            assert windows * window - took_us <= one.wait_us <= windows * window, "each call knows its moment"
        assert store.queues.reserve("fetch", rate, AT).wait_us == 0, "another tool has its own rate"

    def test_a_call_that_would_wait_too_long_reserves_nothing(self, store: Store) -> None:
        rate = Rate(1, 50)
        waits = [store.queues.reserve("send", rate, AT) for _ in range(9)]
        assert [one.is_reserved for one in waits] == [True, True, True, *[False] * 6], "two times its time ahead"
        assert {one.wait_us for one in waits[3:]} == {places("send", rate).ahead_us}

    def test_a_rate_with_a_fraction_or_of_very_many_calls_holds_too(self, store: Store) -> None:
        begun = time.monotonic()
        waits = [store.queues.reserve("slow", Rate(1.5, 2), AT).wait_us for _ in range(6)]
        took_us = int((time.monotonic() - begun) * 1_000_000)  # a store with a clock of its own has come so much nearer
        assert waits[:3] == [0, 0, 0], "3 in 4 seconds"
        assert all(4 * SECOND - took_us <= one < 4.5 * SECOND for one in waits[3:]), "3 in 4 seconds"
        begun = time.monotonic()
        many = [store.queues.reserve("many", Rate(50_000, 1_500), AT).wait_us for _ in range(1_002)]
        took_us = int((time.monotonic() - begun) * 1_000_000)
        assert set(many[:1_000]) == {0}
        assert all(29 * SECOND - took_us < one <= 31 * SECOND for one in many[1_000:]), "1,000 in 30 seconds"

    def test_all_who_have_the_store_open_share_the_rate_of_a_tool(self, stores: list[Store]) -> None:
        rate, found = Rate(10, 1), list[int]()

        def call(number: int) -> None:
            for _ in range(20):
                found.append(stores[number % 3].queues.reserve("send", rate, AT).wait_us)

        begun = time.monotonic()
        run_threads(6, call)
        took_us = int((time.monotonic() - begun) * 1_000_000)
        moments = sorted(found)
        assert len(moments) == 120 and moments[9] == 0
        for earlier, later in zip(moments, moments[10:], strict=False):
            assert later - earlier >= SECOND - took_us, "in no second more than ten"
        # 12 windows, if every call finds the next place. One that others are just at is passed over, for a later one.
        assert moments[-1] <= 14 * places("send", rate).window_us, "and no longer than it takes"

    def test_a_rate_holds_back_beginnings_and_not_what_goes_on(self, store: Store) -> None:
        for number in range(40):
            add(store, f"new{number}", priority=1)
        for log in ("old", "lost"):
            add(store, log)
            then(store, log, ev.TaskClaimed(holder="x"))
        then(store, "old", ev.TaskReleased())
        assert claim(store, rate=Rate(2, 60), lost=("x",), limit=5) == ["lost", "new0", "new1", "old"]
        then(store, "old", ev.TaskReleased())
        assert claim(store, rate=Rate(2, 60)) == ["old"]

    # Several at once

    def test_no_task_is_taken_twice_while_others_write_to_the_same_logs(self, stores: list[Store]) -> None:
        tasks, claimers = 48, 8
        for number in range(tasks):
            add(stores[0], f"t{number}")
        taken, failed = list[str](), list[BaseException]()

        def claim_on(store: Store) -> None:
            empty = 0
            while len(taken) < tasks and empty < 500:
                found = claim(store, limit=3)
                taken.extend(found)
                empty = 0 if found else empty + 1

        def signal(store: Store, first: int) -> None:
            for number in range(first, tasks, 2):
                outcome = store.append([group(Write(f"t{number}", draft(note("from outside"))))])[0]
                assert isinstance(outcome, tuple)

        def work(number: int) -> None:
            store = stores[number % len(stores)]
            try:
                claim_on(store) if number < claimers else signal(store, number - claimers)
            except BaseException as error:  # noqa: BLE001 — to be seen by the test
                failed.append(error)

        run_threads(claimers + 2, work)
        assert failed == []
        assert Counter(taken) == Counter(f"t{number}" for number in range(tasks))
        for log in taken:
            kinds = check_chain(stores[0], log)
            assert Counter(kinds) == {"task_created": 1, "task_claimed": 1, "log_written": 1}

    @pytest.mark.parametrize("limit", [{"concurrency": 5}, {"per_key": 1}, {"rate": Rate(5, 1e6)}])
    def test_limits_hold_for_several_who_take_at_once(self, stores: list[Store], limit: dict[str, Any]) -> None:
        for number in range(40):
            add(stores[0], f"t{number}", queue_key=f"k{number % 5}")
        taken, failed = list[str](), list[BaseException]()

        def work(number: int) -> None:
            try:
                for _ in range(3):
                    taken.extend(claim(stores[number % len(stores)], limit=2, **limit))
            except BaseException as error:  # noqa: BLE001 — to be seen by the test
                failed.append(error)

        run_threads(6, work)
        assert failed == []
        assert len(taken) == len(set(taken)) == 5
        running = stores[0].list(Query(status="running"))
        assert sorted(row.id for row in running) == sorted(taken)
        if "per_key" in limit:
            assert len({row.key for row in running}) == 5

    # Who is there

    def test_one_who_is_gone_is_lost_at_once_and_one_who_lives_is_not(self, opener: Opener) -> None:
        here, there = opener(), opener()
        add(here, "t")
        add(here, "idle")
        assert claim(there, limit=1) == ["t"]
        assert here.queues.lost() == {}
        if here is there:  # no other process
            then(here, "idle", ev.TaskClaimed(holder="other"))
            assert here.queues.lost() == {"other": "proven"}
            here.close()
            return
        name = there.holder()
        there.close()
        assert within(PATIENCE_SECONDS, lambda: here.queues.lost() == {name: "proven"})
        assert here.loss(name) == "proven", "it signed off"
        assert claim(here, limit=1, lost=(name,)) == ["t"]
        assert here.queues.lost() == {}
        here.close()

    def test_who_serves_what_is_known_until_they_are_gone(self, opener: Opener) -> None:
        here, there = opener(), opener()
        assert here.queues.announced() == []
        there.queues.announce("a")
        there.queues.announce("b ä")
        assert [(one.holder, one.serves) for one in here.queues.announced()] == [(there.holder(), "b ä")]
        if here is not there:
            here.queues.announce("c")
            assert {one.serves for one in there.queues.announced()} == {"b ä", "c"}
            there.close()
            assert within(PATIENCE_SECONDS, lambda: [one.serves for one in here.queues.announced()] == ["c"])
            here.queues.announce("d")
            assert [one.serves for one in here.queues.announced()] == ["d"]
        here.close()

    # Hearing

    def test_a_task_that_becomes_ready_is_heard_of(self, stores: list[Store]) -> None:
        here, there, _ = stores
        ears = here.queues.listen()
        assert ears.wait(0.02) is False, "nothing happened"
        add(there, "t")
        assert ears.wait(PATIENCE_SECONDS) is True
        assert claim(there) == ["t"]
        then(there, "t", ev.TaskSuspended(why="person"))
        ears.wait(0.05)
        for event in (ev.CancelRequested(why="x"), ev.TaskClaimed(holder="x"), ev.TaskReleased()):
            then(there, "t", event)
            if summary_of(there, "t").status == "pending":
                assert ears.wait(PATIENCE_SECONDS) is True
        assert ears.wait(0.02) is False
        ears.close()
        ears.close()

    def test_one_who_waits_hears_it_while_it_happens(self, stores: list[Store]) -> None:
        here, there, _ = stores
        ears = here.queues.listen()
        waits: list[float] = []
        begun = threading.Event()

        def listen() -> None:
            begun.set()
            assert ears.wait(PATIENCE_SECONDS)
            waits.append(time.monotonic())

        listener = threading.Thread(target=listen)
        listener.start()
        begun.wait()
        time.sleep(0.1)
        add(there, "t")
        written = time.monotonic()
        listener.join()
        assert waits and waits[0] - written < PATIENCE_SECONDS / 4
        ears.close()

    def test_a_wait_can_be_ended_from_another_thread(self, store: Store) -> None:
        ears = store.queues.listen()
        timer = threading.Timer(0.05, ears.wake)
        began = time.monotonic()
        timer.start()
        assert ears.wait(PATIENCE_SECONDS) is True
        assert time.monotonic() - began < PATIENCE_SECONDS / 2
        timer.join()
        for _ in range(3):
            ears.wake()
        assert ears.wait(PATIENCE_SECONDS) is True, "also the next one"
        assert ears.wait(0.01) is False, "but only that"
        ears.close()
        ears.wake()

    # Counting

    def test_depths_and_wakes_are_those_of_the_tasks_there_are(self, store: Store) -> None:
        for number in range(60):
            log, odd = f"t{number}", number % 7
            place = {"queue": f"q{number % 3}", "namespace": ("", "acme")[number % 2]}
            add(store, log, **place, start_us=AT + number if odd == 1 else None)
            if odd > 1:
                then(store, log, ev.TaskClaimed(holder="x"))
            if odd in (3, 4):
                then(store, log, ev.TaskSuspended(why="timer", wake_us=AT + 500 - number if odd == 3 else None))
            if odd == 5:
                then(store, log, ev.TaskCompleted(result=codec.pack(1)))
        add(store, "only-waits", queue="still")
        then(store, "only-waits", ev.TaskClaimed(holder="x"), ev.TaskSuspended(why="person"))
        rows = [row for name in ("", "acme") for row in store.list(Query(namespace=name, limit=1000))]
        counted: dict[tuple[str, str], list[int]] = {}
        for row in rows:
            kinds = (
                row.status == "pending" and row.wake_us is None,
                row.status == "running",
                row.status in ("pending", "waiting") and row.wake_us is not None,
            )
            if any(kinds):
                before = counted.setdefault((row.namespace, row.queue), [0, 0, 0])
                counted[row.namespace, row.queue] = [old + new for old, new in zip(before, kinds, strict=True)]
        expected = [QueueDepth(*place, *counted[place]) for place in sorted(counted)]
        assert store.queues.depths() == expected
        assert store.queues.depths("acme") == [one for one in expected if one.namespace == "acme"]
        assert store.queues.depths("absent") == []
        waits: dict[tuple[str, str, str], list[int]] = {}
        for row in rows:
            if row.status == "waiting" or (row.status == "pending" and row.wake_us is None):
                kind = "ready" if row.status == "pending" else row.waiting or ""
                waits.setdefault((row.namespace, row.queue, kind), []).append(row.changed_us)
        found = [WaitDepth(*place, len(ages), min(ages)) for place, ages in sorted(waits.items())]
        assert store.queues.waits() == found and {one.kind for one in found} == {"ready", "timer", "person"}
        assert store.queues.waits("acme") == [one for one in found if one.namespace == "acme"]
        assert store.queues.waits("absent") == []
        for one in expected:
            assert store.queues.ready(one.namespace, one.queue, 1000) == one.ready
            assert store.queues.ready(one.namespace, one.queue, 2) == min(2, one.ready)
        for queues in (["q0"], ["q1", "q2"], ["q0", "nothing"], ["nothing"], []):
            wakes = [
                row.wake_us
                for row in rows
                if row.wake_us is not None and row.namespace == "acme" and row.queue in queues
            ]
            assert store.queues.next_wake("acme", queues) == min(wakes, default=None)
            for after_us in (AT, AT + 250, AT + 1000):
                later = min((wake for wake in wakes if wake > after_us), default=None)
                assert store.queues.next_wake("acme", queues, after_us) == later

    def test_a_fork_is_found_like_any_other_task(self, store: Store) -> None:
        add(store, "t")
        ok(store.append([group(created("f", origin=Origin("t", 1), start=head_of(store, "t")))])[0])
        assert claim(store) == ["t", "f"]


class TenantsConformance:
    """Which tenants have something to take, and when the next of them will."""

    def test_tenants_with_something_to_take_are_found(self, store: Store) -> None:
        places = ("", "ready"), ("due", "due"), ("later", "later"), ("lost", "lost"), ("other", "other")
        for namespace, log in (*places, ("ended", "ended"), ("ready", "elsewhere"), ("", "more")):
            start_us = {"due": AT, "later": AT + 9}.get(log)
            queue = "elsewhere" if log == "elsewhere" else "default"
            add(store, log, namespace=namespace, queue=queue, start_us=start_us)
        then(store, "lost", ev.TaskClaimed(holder="x"))
        then(store, "other", ev.TaskClaimed(holder="y"))
        then(store, "ended", ev.TaskClaimed(holder="x"), ev.TaskCancelled())
        queues = store.queues
        assert queues.tenants(["default"], AT) == ["", "due"]
        assert queues.tenants(["default"], AT, ["x"]) == ["", "due", "lost"]
        assert queues.tenants(["default"], AT, ["absent", "y", "x"]) == ["", "due", "lost", "other"]
        assert queues.tenants(["default", "elsewhere"], AT + 9) == ["", "due", "later", "ready"]
        assert queues.tenants(["elsewhere"], AT, ["x"]) == ["ready"] and queues.tenants([], AT, ["x"]) == []
        assert queues.next_wake(None, ["default"]) == AT and queues.next_wake(None, ["default"], AT) == AT + 9
        assert queues.next_wake(None, ["elsewhere"]) is None and queues.next_wake(None, []) is None
