"""What every store must do for those who only look: lists, counts, the feed of changes, the audit."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.core import codec, events as ev
from holdfast.core.codec import Head, Origin, Summary, Write
from holdfast.core.errors import InvalidValue
from holdfast.core.events import Event
from holdfast.core.state.summary import summarise
from holdfast.store.protocol import ActPlace, ActQuery, Query, RowChange, Store, Tombstone
from holdfast.testing.conformance.samples import AT, Opener, draft, group, head_of, note, ok, summary_of


def start(store: Store, name: str, at_us: int = AT, /, **given: Any) -> None:
    """Begin a task at a time, with the row that a list shows of it."""
    event = ev.TaskCreated(agent="writer", **given)
    made = summarise(None, name, event, at_us)
    drafts = (codec.draft(event, at_us)[0],)
    ok(store.append([group(Write(name, drafts, Head(0, codec.genesis(name)), Origin(), made))])[0])


def then(store: Store, name: str, at_us: int, event: Event, **columns: Any) -> None:
    """Write an event and the row after it."""
    row = summarise(summary_of(store, name), name, event, at_us)
    fields = {one: getattr(row, one) for one in row.__struct_fields__} | columns
    ok(store.append([group(Write(name, (codec.draft(event, at_us)[0],), summary=Summary(**fields)))])[0])


class ReadingConformance:
    """Lists by every filter and in every order, counts that are kept, changes in the order of their commits, acts."""

    def test_tasks_are_found_by_thread_queue_parent_wait_doubt_prefix_and_change(self, store: Store) -> None:
        start(store, "order-1", AT, thread="talk", queue="mail")
        start(store, "order-2", AT + 1, parent="order-1")
        start(store, "order_3", AT + 2, queue="mail")
        start(store, "visit-4", AT + 3)
        then(store, "order-2", AT + 4, ev.TaskClaimed(holder="x"))
        then(store, "order-2", AT + 5, ev.TaskSuspended(why="doubt"), doubts=("pay#1", "~2/pay#1"))
        then(store, "visit-4", AT + 6, ev.TaskSuspended(why="person"))

        def ids(**wanted: Any) -> list[str]:
            return [row.id for row in store.list(Query(**wanted))]

        assert ids(thread="talk") == ["order-1"]
        assert ids(queue="mail") == ["order_3", "order-1"]
        assert ids(parent="order-1") == ids(in_doubt=True) == ids(waiting="doubt") == ["order-2"]
        assert ids(in_doubt=False) == ["visit-4", "order_3", "order-1"]
        assert ids(waiting="person") == ["visit-4"] and ids(waiting="person", queue="mail") == []
        assert ids(prefix="order-") == ["order-2", "order-1"], "`_` and `%` stand for themselves"
        assert ids(prefix="order-", limit=1) == ["order-2"] and ids(prefix="order-", after="order-2") == ["order-1"]
        assert ids(prefix="order", status="pending") == ["order_3", "order-1"]
        assert ids(prefix="\U0010ffff") == []
        then(store, "order_3", AT + 4, ev.TaskClaimed(holder="x"))
        then(store, "order_3", AT + 4, ev.TaskSuspended(why="timer", wake_us=AT + 60))
        assert ids(due_us=AT + 59) == [] and ids(due_us=AT + 60, status="waiting") == ["order_3"]
        assert ids(changed_since_us=AT + 5) == ["visit-4", "order-2"]
        assert summary_of(store, "order-2").doubts == ("pay#1", "~2/pay#1")

    def test_tasks_that_waited_for_longer_than_they_may_are_found(self, store: Store) -> None:
        start(store, "pending", AT, expire_us=10)
        start(store, "running", AT, expire_us=10)
        then(store, "running", AT, ev.TaskClaimed(holder="x"))
        start(store, "waiting", AT, expire_us=30)
        then(store, "waiting", AT + 1, ev.TaskClaimed(holder="x"))
        then(store, "waiting", AT + 5, ev.TaskSuspended(why="person"))
        start(store, "for ever", AT)

        def found(at_us: int) -> list[str]:
            return [row.id for row in store.list(Query(expired_us=at_us))]

        assert found(AT + 9) == [] and found(AT + 10) == ["pending"] and found(AT + 34) == ["pending"]
        assert found(AT + 35) == ["waiting", "pending"]
        assert [row.id for row in store.list(Query(expired_us=AT + 35, limit=1))] == ["waiting"]
        assert [row.id for row in store.list(Query(expired_us=AT + 35, after="waiting"))] == ["pending"]
        assert summary_of(store, "waiting").expire_us == 30 and summary_of(store, "for ever").expire_us is None
        then(store, "waiting", AT + 40, ev.SignalReceived(name="go", value=codec.pack(1)))
        assert found(AT + 69) == ["pending"] and found(AT + 70) == ["waiting", "pending"]

    def test_lists_have_three_orders_and_each_goes_on_where_it_was(self, store: Store) -> None:
        for number in range(6):
            start(store, f"t{number}", AT + number, user="ana" if number % 2 else None)
        then(store, "t1", AT + 50, ev.StageSet(stage="late"))
        then(store, "t4", AT + 40, ev.StageSet(stage="late"))
        orders: dict[str, list[str]] = {
            "newest": ["t5", "t4", "t3", "t2", "t1", "t0"],
            "oldest": ["t0", "t1", "t2", "t3", "t4", "t5"],
            "changed": ["t1", "t4", "t5", "t3", "t2", "t0"],
        }
        filters: dict[str, tuple[dict[str, Any], set[str]]] = {
            "": ({}, {"t0", "t1", "t2", "t3", "t4", "t5"}),
            "user": ({"user": "ana"}, {"t1", "t3", "t5"}),
            "stage": ({"stage": "late", "status": "pending"}, {"t1", "t4"}),
            "prefix": ({"prefix": "t"}, {"t0", "t1", "t2", "t3", "t4", "t5"}),
            "changed": ({"changed_since_us": AT + 5}, {"t1", "t4", "t5"}),
        }
        for order, all_of_them in orders.items():
            for asked, found in filters.values():
                given: dict[str, Any] = {**asked, "order": order, "limit": 2}
                seen: list[str] = []
                while page := store.list(Query(**given, after=seen[-1] if seen else None)):
                    seen += [row.id for row in page]
                assert seen == [one for one in all_of_them if one in found], (order, asked)

    def test_a_list_by_change_does_not_go_on_after_a_task_that_is_gone(self, store: Store) -> None:
        start(store, "gone")
        start(store, "there")
        head = head_of(store, "gone")
        assert store.remove([Tombstone("gone", head.seq, head.digest, AT)]) == ["gone"]
        with pytest.raises(InvalidValue, match="removed"):
            store.list(Query(order="changed", after="gone"))

    def test_counts_follow_every_change_of_a_row(self, store: Store) -> None:
        before = store.counts()
        assert before.by_status == {} and before.tasks == before.in_doubt == 0
        for name in ("a", "b", "c"):
            start(store, name)
        then(store, "a", AT, ev.TaskClaimed(holder="x"))
        then(store, "b", AT, ev.TaskSuspended(why="doubt"), doubts=("pay#1",))
        found = store.counts()
        assert (found.by_status, found.in_doubt) == ({"pending": 1, "running": 1, "waiting": 1}, 1)
        then(store, "a", AT, ev.TaskCompleted(result=codec.pack(1)))
        then(store, "b", AT, ev.StageSet(stage="same status"), doubts=())
        head = head_of(store, "c")
        store.remove([Tombstone("c", head.seq, head.digest, AT)])
        found = store.counts()
        assert (found.by_status, found.in_doubt, found.tasks) == ({"completed": 1, "waiting": 1}, 0, 2)
        assert store.stats().by_status == found.by_status and store.check() == []

    def test_tenants_are_those_that_have_tasks(self, store: Store) -> None:
        assert store.namespaces() == []
        start(store, "t")
        start(store, "u")
        assert len(store.namespaces()) == 1, "all tasks of one tenant"
        for name in ("t", "u"):
            head = head_of(store, name)
            store.remove([Tombstone(name, head.seq, head.digest, AT)])
        assert store.namespaces() == []

    def test_a_group_that_is_refused_is_not_counted(self, store: Store) -> None:
        start(store, "t")
        running = summarise(summary_of(store, "t"), "t", ev.TaskClaimed(holder="x"), AT)
        late = Write("t", draft(note("late")), Head(7, b"\0" * 32), summary=running)
        assert not isinstance(store.append([group(late)])[0], tuple)
        assert store.counts().by_status == {"pending": 1}

    def test_counts_of_many_threads_add_up(self, store: Store) -> None:
        def work(number: int) -> None:
            for name in (f"{number}-{turn}" for turn in range(5)):
                start(store, name)
                then(store, name, AT, ev.TaskClaimed(holder="x"))
                then(store, name, AT, ev.TaskCompleted(result=codec.pack(1)))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.counts().by_status == {"completed": 20} and store.check() == []

    def test_counts_outlive_those_who_counted(self, opener: Opener) -> None:
        for number in range(3):
            store = opener()
            start(store, f"t{number}")
            if number == 2:
                assert store.holder(), "who works in a store tidies up what others left"
                assert store.counts().by_status == {"pending": 3} and store.check() == []
                store.close()

    def test_the_feed_gives_each_row_once_at_its_last_change(self, store: Store) -> None:
        begin = store.last_change()
        assert store.changes(begin) == []
        for name in ("a", "b", "c"):
            start(store, name)
        then(store, "a", AT, ev.TaskClaimed(holder="x"))
        found = store.changes(begin)
        assert [(one.summary.id, one.summary.status, one.seq) for one in found] == [
            ("b", "pending", 1),
            ("c", "pending", 1),
            ("a", "running", 2),
        ]
        assert store.changes(found[0].cursor) == found[1:] and store.changes(begin, limit=1) == found[:1]
        assert store.changes(found[-1].cursor) == store.changes(store.last_change()) == []
        store.append([group(Write("a", draft(note("an event that changes no row"))))])
        assert store.changes(found[-1].cursor) == []

    def test_the_feed_goes_by_commits_and_not_by_clocks(self, store: Store) -> None:
        start(store, "ahead", AT + 1_000_000)
        begin = store.last_change()
        start(store, "behind", AT - 1_000_000)
        assert [one.summary.id for one in store.changes(begin)] == ["behind"]

    def test_a_change_after_a_removal_is_not_missed(self, store: Store) -> None:
        start(store, "stays")
        start(store, "goes")
        begin = store.changes(None)[-1].cursor
        head = head_of(store, "goes")
        store.remove([Tombstone("goes", head.seq, head.digest, AT)])
        then(store, "stays", AT, ev.TaskClaimed(holder="x"))
        assert [one.summary.id for one in store.changes(begin)] == ["stays"]

    def test_the_feed_misses_nothing_that_threads_write_while_it_is_read(self, store: Store) -> None:
        cursor = store.last_change()
        done = threading.Event()

        def work(number: int) -> None:
            for turn in range(25):
                start(store, f"{number}-{turn}")

        def ended() -> None:
            for thread in threads:
                thread.join()
            done.set()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        waiter = threading.Thread(target=ended)
        waiter.start()
        seen: list[RowChange] = []
        while True:
            is_over = done.is_set()
            page = store.changes(seen[-1].cursor if seen else cursor, limit=10)
            seen += page
            if is_over and not page:
                break
        waiter.join()
        names = [one.summary.id for one in seen]
        assert sorted(names) == sorted(f"{number}-{turn}" for number in range(3) for turn in range(25))

    def test_a_cursor_that_is_none_is_refused(self, store: Store) -> None:
        for odd in ("", "x", "1", "1.", "-1.2", "1.2.3", "9" * 50 + ".1", "\u0661.\u0662"):
            with pytest.raises(InvalidValue, match="cursor"):
                store.changes(odd)

    def test_acts_come_newest_first_and_go_on_where_they_were(self, store: Store) -> None:
        start(store, "a", AT)
        start(store, "b", AT + 1, by="ana")
        plain: dict[str, Any] = {"key": "k#1", "name": "k", "result": codec.pack({"tools": 1})}
        events: list[tuple[str, int, Event]] = [
            ("a", AT + 10, ev.StepCompleted(**plain)),
            ("a", AT + 11, ev.StepCompleted(**plain, tool="pay")),
            ("b", AT + 12, ev.SignalReceived(name="go", value=codec.pack(1))),
            ("b", AT + 13, ev.SignalReceived(name="go", value=codec.pack(1), by="ben")),
            ("a", AT + 13, ev.DecisionMade(question="?", choice=codec.pack(1))),
            ("a", AT + 5, ev.StepDoubted(key="k#1")),
            ("b", AT + 14, ev.FactLearned(key="by", value=codec.pack("by"), source="x")),
        ]
        for name, at_us, event in events:
            ok(store.append([group(Write(name, (codec.draft(event, at_us)[0],)))])[0])
        wanted = [("b", 3), ("a", 4), ("a", 3), ("a", 5), ("b", 1)]
        assert [(name, row.seq) for name, row in store.acts(ActQuery())] == wanted
        seen: list[tuple[str, int]] = []
        last = None
        while page := store.acts(ActQuery(before=last, limit=2)):
            seen += [(name, row.seq) for name, row in page]
            last = ActPlace(page[-1][1].at_us, page[-1][0], page[-1][1].seq)
        assert seen == wanted
        assert [(name, row.seq) for name, row in store.acts(ActQuery(since_us=AT + 11, until_us=AT + 12))] == [("a", 3)]
        head = head_of(store, "b")
        store.remove([Tombstone("b", head.seq, head.digest, AT)])
        assert [(name, row.seq) for name, row in store.acts(ActQuery(before=ActPlace(AT + 13, "b", 3)))] == wanted[1:4]

    def test_acts_are_read_as_they_are_in_the_log(self, store: Store) -> None:
        start(store, "t", by="ana")
        (found,) = store.acts(ActQuery())
        assert found == ("t", store.read("t")[0])
