"""What every store must do with a transaction that has user code in it. Part of `StoreConformance`.

But for its parameters, the SQL here is understood by every dialect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.core.codec import Group, Head, UniqueKey, Write
from holdfast.core.errors import Conflict, InvalidEvent, KeyTaken, StoreError, TimeLimit
from holdfast.failpoints import armed
from holdfast.store.protocol import Connection, Store, Work
from holdfast.testing.conformance.samples import Opener, SampleCrash, crash_at, created, draft, group, head_of, note, ok

SECONDS_TO_NOTICE = 0.2
INSERT = {
    "sqlite": "insert into ledger (id, text) values (?, 'entry')",
    "postgres": "insert into ledger (id, text) values (%s, 'entry')",
}
ENDLESS = "with recursive numbers (n) as (select 1 union all select n + 1 from numbers) select count(*) from numbers"


def insert(connection: Connection, id: int) -> None:
    """Write a row of the user's."""
    connection.execute(INSERT[connection.dialect], (id,))


def entry(store: Store, id: int, *, then: Callable[[], object] = lambda: None, **beside: Any) -> Work:
    """Work that writes a row and gives an event after the head of `t`."""
    head = head_of(store, "t")

    def work(connection: Connection) -> Group:
        insert(connection, id)
        then()
        return group(Write("t", draft(note(str(id))), head), **beside)

    return work


def ledger(store: Store) -> list[int]:
    """The rows that user code has written."""
    found: list[int] = []

    def look(connection: Connection) -> Group:
        found.extend(row[0] for row in connection.execute("select id from ledger order by id"))
        return Group(())

    assert store.transact("t", head_of(store, "t"), look) == ()
    return found


def begin(store: Store) -> Head:
    """A log, and a table of the user's beside it; gives the log's head."""
    ok(store.append([group(created("t"))])[0])

    def work(connection: Connection) -> Group:
        connection.execute("create table ledger (id integer primary key, text varchar(20) not null)")
        return Group(())

    ok(store.transact("t", head_of(store, "t"), work))
    return head_of(store, "t")


def run_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work in that many threads at once."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class TransactConformance:
    """The contract of `Store.transact`: user code's writes and the group are written together, or not at all."""

    @pytest.fixture
    def shop(self, opener: Opener) -> Iterator[Store]:
        """A store with a log and a table of the user's."""
        opened = opener()
        begin(opened)
        yield opened
        opened.close()

    def test_what_user_code_writes_and_its_record_are_written_together(self, opener: Opener) -> None:
        store = opener()
        head = begin(store)
        (placed,) = ok(store.transact("t", head, entry(store, 1)))
        again = opener()
        assert placed.first == 2
        assert again.head("t") == Head(2, placed.digests[0])
        assert ledger(again) == [1]
        store.close()
        again.close()

    def test_an_error_of_user_code_is_raised_as_it_is_and_leaves_nothing(self, shop: Store) -> None:
        mistake = ValueError("the user's own")

        def fail() -> None:
            raise mistake

        with pytest.raises(ValueError, match="own") as caught:
            shop.transact("t", head_of(shop, "t"), entry(shop, 1, then=fail))
        assert caught.value is mistake
        assert (len(shop.read("t")), ledger(shop)) == (1, [])
        assert ok(shop.transact("t", head_of(shop, "t"), entry(shop, 1)))

    def test_a_refused_statement_is_the_users_to_handle(self, shop: Store) -> None:
        def work(connection: Connection) -> Group:
            insert(connection, 1)
            connection.execute("insert into ledger (id, text) values (2, null)")
            raise AssertionError("not null was not checked")

        with pytest.raises(Exception, match=r"(?i)null"):
            shop.transact("t", head_of(shop, "t"), work)
        assert ledger(shop) == []
        assert ok(shop.append([group(Write("t", draft(note("goes on"))))])[0]), "the store is none the worse for it"

    def test_work_never_runs_on_a_log_that_has_moved_on_or_is_not_there(self, shop: Store) -> None:
        ran: list[str] = []

        def work(connection: Connection) -> Group:
            ran.append("ran")
            return Group(())

        head = head_of(shop, "t")
        shop.append([group(Write("t", draft(note("moves it")), head))])
        for log, expect, actual in (("t", head, 2), ("t", Head(2, b"\0" * 32), 2), ("absent", head, None)):
            outcome = shop.transact(log, expect, work)
            assert isinstance(outcome, Conflict)
            assert outcome.details["actual"] == actual
        assert ran == []

    def test_a_group_that_is_refused_takes_user_codes_writes_with_it(self, shop: Store) -> None:
        shop.append([group(Write("t", draft(note("pays"))), unique_keys=(UniqueKey("order-17", "t", "pay#1"),))])
        take = UniqueKey("order-17", "t", "pay#2")
        outcome = shop.transact("t", head_of(shop, "t"), entry(shop, 1, unique_keys=(take,)))
        assert isinstance(outcome, KeyTaken)

        def beyond(connection: Connection) -> Group:
            insert(connection, 2)
            return group(Write("t", draft(note("x")), Head(9, b"\0" * 32)))

        assert isinstance(shop.transact("t", head_of(shop, "t"), beyond), Conflict)
        assert (len(shop.read("t")), ledger(shop)) == (2, [])

    def test_rows_are_read_once_and_changes_are_counted(self, shop: Store) -> None:
        seen: list[object] = []

        def work(connection: Connection) -> Group:
            for id in (1, 2, 3):
                insert(connection, id)
            rows = connection.execute("select id from ledger order by id")
            seen.extend((rows.fetchone(), rows.fetchall(), rows.fetchone(), list(rows)))
            seen.append(connection.execute("update ledger set text = 'x' where id > 1").rowcount)
            seen.append(connection.execute("update ledger set text = 'y' where id > 9").rowcount)
            return Group(())

        shop.transact("t", head_of(shop, "t"), work)
        assert seen == [(1,), [(2,), (3,)], None, [], 2, 0]

    def test_a_connection_that_was_kept_is_of_no_use_later(self, shop: Store) -> None:
        kept: list[Connection] = []

        def keep(connection: Connection) -> Group:
            assert connection.dialect
            kept.append(connection)
            return Group(())

        def keep_and_fail(connection: Connection) -> Group:
            kept.append(connection)
            raise ValueError

        shop.transact("t", head_of(shop, "t"), keep)
        with pytest.raises(ValueError):
            shop.transact("t", head_of(shop, "t"), keep_and_fail)
        for connection in kept:
            with pytest.raises(StoreError, match="ended"):
                insert(connection, 1)
            with pytest.raises(StoreError, match="ended"):
                connection.executemany("delete from ledger", [()])
        assert ledger(shop) == []

    def test_rows_that_were_not_read_do_not_keep_it_from_committing(self, shop: Store) -> None:
        kept: list[object] = []

        def work(connection: Connection) -> Group:
            for id in range(5):
                insert(connection, id)
            for sql in ("select id from ledger", "update ledger set text = 'x' returning id"):
                rows = connection.execute(sql)
                kept.extend((rows, rows.fetchone()))
            return Group(())

        assert ok(shop.transact("t", head_of(shop, "t"), work)) == ()
        assert ledger(shop) == [0, 1, 2, 3, 4]

    def test_work_that_takes_too_long_leaves_nothing(self, shop: Store) -> None:
        def endless(connection: Connection) -> Group:
            insert(connection, 1)
            connection.execute(ENDLESS)
            raise AssertionError("it came to an end")

        def swallow(connection: Connection) -> Group:
            insert(connection, 2)
            for sql in (ENDLESS, "select 1"):
                with pytest.raises(Exception):  # noqa: B017 — whatever a dialect says to it
                    connection.execute(sql)
            return Group(())

        slow = entry(shop, 3, then=lambda: time.sleep(SECONDS_TO_NOTICE * 2))
        for work in (endless, swallow, slow):
            with pytest.raises(TimeLimit, match=r"0\.2 s.*raise its timeout"):
                shop.transact("t", head_of(shop, "t"), work, SECONDS_TO_NOTICE)
        assert (len(shop.read("t")), ledger(shop)) == (1, [])
        assert ok(shop.transact("t", head_of(shop, "t"), entry(shop, 4), 60))

    def test_work_cannot_write_to_the_store_beside_its_transaction(self, shop: Store) -> None:
        head = head_of(shop, "t")

        def again(connection: Connection) -> Group:
            raise AssertionError("a transaction inside a transaction")

        verbs: list[Callable[[], object]] = [
            lambda: shop.append([group(Write("t", draft(note("beside"))))]),
            lambda: shop.append_event("t", head, draft(note("beside"))[0]),
            lambda: shop.transact("t", head, again),
            lambda: shop.drop_snapshots(),
            lambda: shop.close(),
        ]

        def work(connection: Connection) -> Group:
            insert(connection, 1)
            for verb in verbs:
                with pytest.raises(InvalidEvent, match="inside a transaction tool"):
                    verb()
            assert shop.head("t") == head, "reading is fine"
            assert shop.alive(shop.holder())
            return group(Write("t", draft(note("1")), head))

        assert ok(shop.transact("t", head, work))
        assert (len(shop.read("t")), ledger(shop)) == (2, [1])

    def test_of_many_transactions_at_once_exactly_one_wins_each_seq(self, shop: Store) -> None:
        threads, rounds = 6, 15
        wins: list[int] = []
        starting = threading.Barrier(threads)

        def race(number: int) -> None:
            starting.wait()
            for n in range(rounds):
                head = head_of(shop, "t")

                def work(connection: Connection, id: int = number * rounds + n, head: Head = head) -> Group:
                    insert(connection, id)
                    return group(Write("t", draft(note(str(id))), head))

                outcome = shop.transact("t", head, work)
                if isinstance(outcome, tuple):
                    wins.append(outcome[0].first)

        run_threads(threads, race)
        rows = shop.read("t")
        assert sorted(wins) == [row.seq for row in rows[1:]] == list(range(2, len(rows) + 1))
        assert len(wins) >= rounds, "one writer wins every round"
        assert len(ledger(shop)) == len(wins)

    def test_others_who_write_wait_until_it_is_over(self, shop: Store) -> None:
        head = head_of(shop, "t")
        outcomes: dict[str, object] = {}
        others = {"at the head": Write("t", draft(note("late"))), "after a seq": Write("t", draft(note("stale")), head)}

        def write(name: str) -> None:
            outcomes[name] = shop.append([group(others[name])])[0]

        threads = [threading.Thread(target=write, args=(name,)) for name in others]

        def start_others() -> None:
            for thread in threads:
                thread.start()
            time.sleep(SECONDS_TO_NOTICE)
            assert outcomes == {}

        assert ok(shop.transact("t", head, entry(shop, 1, then=start_others)))[0].first == 2
        for thread in threads:
            thread.join()
        assert ok(outcomes["at the head"])[0].first == 3
        assert isinstance(outcomes["after a seq"], Conflict)

    @pytest.mark.parametrize("point", ["append.before", "commit.before", "commit.after", "append.after"])
    def test_a_crash_around_its_commit_leaves_both_or_neither(self, opener: Opener, point: str) -> None:
        store = opener()
        head = begin(store)
        work = entry(store, 1)

        with pytest.raises(SampleCrash), armed(crash_at(point)):
            store.transact("t", head, work)
        again = opener()
        written = point in ("commit.after", "append.after")
        assert len(again.read("t")) == (2 if written else 1)
        assert ledger(again) == ([1] if written else [])
        assert ok(again.transact("t", head_of(again, "t"), entry(again, 2)))
        store.close()
        again.close()

    def test_an_interrupt_inside_user_code_leaves_nothing(self, shop: Store) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            shop.transact("t", head_of(shop, "t"), entry(shop, 1, then=interrupt), 60)
        assert (len(shop.read("t")), ledger(shop)) == (1, [])
