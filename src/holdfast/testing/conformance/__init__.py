"""What every store must do. Subclass it, give it a way to open and reopen your store, and run pytest.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def opener(self, tmp_path):
            return lambda: MyStore(tmp_path / "log")

`opener` may be called several times; each call opens the same store again, as another process would. A store that
cannot outlive its process gives the same object back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core import codec, events as ev
from holdfast.core.codec import Head, Origin, Snapshot, UniqueKey, Write
from holdfast.core.errors import Conflict, KeyTaken, StoreError, TaskNotFound
from holdfast.core.state.summary import summarise
from holdfast.failpoints import armed
from holdfast.store.protocol import Erasure, Opening, Query, Since, Store, Tombstone
from holdfast.testing.conformance.chunks import ChunkConformance
from holdfast.testing.conformance.queues import QueueConformance, TenantsConformance
from holdfast.testing.conformance.reading import ReadingConformance
from holdfast.testing.conformance.records import RecordConformance
from holdfast.testing.conformance.samples import (
    AT,
    Opener,
    SampleCrash,
    crash_at,
    created,
    draft,
    group,
    head_of,
    note,
    ok,
    summary_of,
)
from holdfast.testing.conformance.transact import TransactConformance


class StoreConformance(
    QueueConformance, TenantsConformance, TransactConformance, RecordConformance, ReadingConformance, ChunkConformance
):
    """The contract of a store: what it keeps, what it refuses, what a race or a crash leaves behind."""

    @pytest.fixture
    def opener(self) -> Opener:
        raise NotImplementedError("give a function that opens your store")  # pragma: no cover

    @pytest.fixture
    def store(self, opener: Opener) -> Iterator[Store]:
        opened = opener()
        yield opened
        opened.close()

    # Appending

    def test_a_new_log_begins_at_one_and_chains_from_its_name(self, store: Store) -> None:
        (placed,) = ok(store.append([group(created("t"))])[0])
        row = store.read("t")[0]
        assert placed.first == row.seq == 1
        assert row.digest == codec.chain(codec.genesis("t"), 1, "task_created", AT, row.body_hash)
        assert store.head("t") == Head(1, row.digest)
        assert store.origin("t") == Origin(None, 0)

    def test_events_come_back_as_they_were_written(self, store: Store) -> None:
        store.append([group(created("t"))])
        drafts = draft(note("ä\x00€"), note(""), at_us=-5)
        store.append([group(Write("t", drafts, head_of(store, "t")))])
        rows = store.read("t", after=1)
        assert [(row.kind, row.at_us, row.body, row.body_hash) for row in rows] == [
            (one.kind, one.at_us, one.body, one.body_hash) for one in drafts
        ]
        assert [row.seq for row in rows] == [2, 3]

    def test_a_write_that_expects_another_head_is_refused_and_writes_nothing(self, store: Store) -> None:
        store.append([group(created("t"))])
        head = head_of(store, "t")
        store.append([group(Write("t", draft(note("first")), head))])
        outcome = store.append([group(Write("t", draft(note("late")), head))])[0]
        assert isinstance(outcome, Conflict)
        assert (outcome.details["expected"], outcome.details["actual"]) == (1, 2)
        assert len(store.read("t")) == 2

    def test_one_event_after_a_known_head_is_written_the_short_way(self, store: Store) -> None:
        store.append([group(created("t"))])
        head = head_of(store, "t")
        (one,) = draft(note("short"))
        digest = store.append_event("t", head, one)
        assert isinstance(digest, bytes)
        assert digest == codec.chain(head.digest, 2, one.kind, one.at_us, one.body_hash)
        assert store.head("t") == Head(2, digest)
        for stale in (head, Head(2, b"\0" * 32), Head(9, digest)):
            outcome = store.append_event("t", stale, one)
            assert isinstance(outcome, Conflict) and outcome.details["actual"] == 2
        assert isinstance(store.append_event("absent", head, one), Conflict)
        assert [row.seq for row in store.read("t")] == [1, 2]

    def test_what_is_written_at_once_is_written_as_ever_or_not_at_all(self, store: Store) -> None:
        store.append([group(created("t"))])
        for drafts in (draft(note("one")), draft(note("two"), note("three"))):
            head = head_of(store, "t")
            outcome = store.append_at_once(group(Write("t", drafts, head)))
            assert outcome is None or not store.always_waits
            if outcome is None:  # a wait is needed
                assert store.head("t") == head
                outcome = store.append([group(Write("t", drafts, head))])[0]
            (placed,) = ok(outcome)
            assert (placed.first, placed.digests[-1]) == (head.seq + 1, head_of(store, "t").digest)
            stale = store.append_at_once(group(Write("t", drafts, head)))
            assert stale is None or isinstance(stale, Conflict)
        taken = store.append_at_once(group(Write("t", draft(note("four"))), unique_keys=(UniqueKey("k", "t", "s"),)))
        assert taken is None or isinstance(
            store.append_at_once(group(Write("t", draft(note("x"))), unique_keys=(UniqueKey("k", "t", "z"),))), KeyTaken
        )
        assert [row.seq for row in store.read("t")] == [1, 2, 3, 4] + [5] * (taken is not None)

    def test_the_digest_of_the_head_must_match_too(self, store: Store) -> None:
        store.append([group(created("t"))])
        for drafts in (draft(note("x")), draft(note("x"), note("y"))):
            outcome = store.append([group(Write("t", drafts, Head(1, b"\0" * 32)))])[0]
            assert isinstance(outcome, Conflict)
        assert len(store.read("t")) == 1

    def test_a_write_beyond_the_head_leaves_no_gap(self, store: Store) -> None:
        store.append([group(created("t"))])
        for drafts in (draft(note("x")), draft(note("x"), note("y"))):
            outcome = store.append([group(Write("t", drafts, Head(7, b"\0" * 32)))])[0]
            assert isinstance(outcome, Conflict)
        assert [row.seq for row in store.read("t")] == [1]

    def test_a_write_at_the_head_follows_whatever_is_there(self, store: Store) -> None:
        store.append([group(created("t"))])
        outcomes = store.append([group(Write("t", draft(note(str(n))))) for n in range(3)])
        assert [ok(outcome)[0].first for outcome in outcomes] == [2, 3, 4]

    def test_a_log_is_made_once(self, store: Store) -> None:
        store.append([group(created("t"))])
        outcome = store.append([group(created("t", input={"other": codec.pack(1)}))])[0]
        assert isinstance(outcome, Conflict)
        assert len(store.read("t")) == 1

    def test_the_heads_of_many_logs_are_read_in_one_question(self, store: Store) -> None:
        assert store.heads([]) == {}
        store.append([group(created("one")), group(created("two"))])
        store.append([group(Write("two", draft(note("x"), note("y"))))])
        assert store.heads(["two", "absent", "one"]) == {"one": 1, "two": 3}
        for name in ("it's", 'a"b', "ä/#1"):
            store.append([group(created(name))])
            assert store.heads([name]) == {name: 1}

    def test_a_write_to_no_log_is_refused(self, store: Store) -> None:
        for expect in (None, Head(1, b"\0" * 32)):
            assert isinstance(store.append([group(Write("absent", draft(note("x")), expect))])[0], Conflict)
        assert store.head("absent") is None
        assert store.read("absent") == []

    def test_a_group_over_two_logs_is_written_whole_or_not_at_all(self, store: Store) -> None:
        store.append([group(created("a"), created("b"))])
        a, b = head_of(store, "a"), head_of(store, "b")
        store.append([group(Write("b", draft(note("moved")), b))])
        outcome = store.append([group(Write("a", draft(note("1")), a), Write("b", draft(note("2")), b))])[0]
        assert isinstance(outcome, Conflict)
        assert len(store.read("a")) == 1
        both = group(Write("a", draft(note("1")), a), Write("b", draft(note("2")), head_of(store, "b")))
        assert [place.first for place in ok(store.append([both])[0])] == [2, 3]

    def test_one_groups_conflict_fails_it_alone(self, store: Store) -> None:
        store.append([group(created("a")), group(created("b"))])
        a, b = head_of(store, "a"), head_of(store, "b")
        good, bad = Write("a", draft(note("1")), a), Write("b", draft(note("2")), Head(9, b.digest))
        late = Write("a", draft(note("3")), a)
        outcomes = store.append([group(good), group(bad), group(late), group(created("c"))])
        assert [isinstance(outcome, tuple) for outcome in outcomes] == [True, False, False, True]
        assert (len(store.read("a")), len(store.read("b")), len(store.read("c"))) == (2, 1, 1)

    def test_a_unique_key_is_taken_once_and_outlives_refused_groups(self, store: Store) -> None:
        store.append([group(created("a")), group(created("b"))])
        take = UniqueKey("order-17", "a", "pay#1", "hash")
        assert ok(store.append([group(Write("a", draft(note("pays"))), unique_keys=(take,))])[0])
        other = UniqueKey("order-17", "b", "pay#1", "hash")
        outcome = store.append([group(Write("b", draft(note("pays"))), unique_keys=(other,))])[0]
        assert isinstance(outcome, KeyTaken)
        assert (outcome.details["log"], outcome.details["step"]) == ("a", "pay#1")
        assert len(store.read("b")) == 1
        assert store.owner_of_key("order-17") == take

    def test_a_freed_key_can_be_taken_again(self, store: Store) -> None:
        store.append([group(created("a"), unique_keys=(UniqueKey("k", "a", "s#1"),))])
        store.append([group(Write("a", draft(note("not done"))), freed_keys=("k",))])
        assert store.owner_of_key("k") is None
        assert ok(store.append([group(Write("a", draft(note("again"))), unique_keys=(UniqueKey("k", "a", "s#2"),))])[0])
        assert [take.step for take in store.unique_keys()] == ["s#2"]

    # Reading

    def test_reading_is_bounded_on_both_sides(self, store: Store) -> None:
        store.append([group(created("t"))])
        store.append([group(Write("t", draft(*(note(str(n)) for n in range(9)))))])
        assert [row.seq for row in store.read("t", after=3, upto=6)] == [4, 5, 6]
        assert [row.seq for row in store.read("t", after=3, limit=2)] == [4, 5]
        assert store.read("t", after=10) == []

    def test_cold_kinds_are_found_by_kind(self, store: Store) -> None:
        store.append([group(created("t"))])
        said = [ev.MessageAdded(message=codec.pack(n)) for n in range(5)]
        mixed = [event for message in said for event in (note("between"), message)]
        store.append([group(Write("t", draft(*mixed)))])
        assert [row.seq for row in store.read_kind("t", "message_added")] == [3, 5, 7, 9, 11]
        assert [row.seq for row in store.read_kind("t", "message_added", after=3, upto=9)] == [5, 7, 9]
        assert [row.seq for row in store.read_kind("t", "message_added", last=2)] == [9, 11]
        assert store.read_kind("t", "decision_made") == []

    def test_blobs_are_kept_once_and_listed_by_log(self, store: Store) -> None:
        _, blob = codec.make_blob(codec.pack("x" * 5000))
        store.append([group(created("a")), group(created("b"))])
        for log in ("a", "b"):
            store.append([group(Write(log, draft(note("uses it")), blobs=(blob,)))])
        assert store.blob(blob.hash) == blob.data
        assert store.blobs_of("a") == store.blobs_of("b") == [blob]
        assert store.blob("00" * 32) is None
        assert store.stats().blobs == 1

    def test_of_a_log_that_is_not_there_nothing_is_found(self, store: Store) -> None:
        """A log can be removed between two questions about it."""
        assert store.head("gone") is store.origin("gone") is store.summary("gone") is None
        assert store.heads(["gone"]) == {}
        assert store.read("gone") == store.read_kind("gone", "EvidenceAdded") == []
        assert store.blobs_of("gone") == store.erasures("gone") == store.forks("gone") == []
        assert store.snapshot("gone", version=1) is store.opening("gone", version=1) is None
        assert store.since("gone", 1).rows == []
        assert store.drop_snapshots(log="gone") == 0

    def test_snapshots_are_found_by_version_and_seq_and_rotate(self, store: Store) -> None:
        store.append([group(created("t"))])
        for seq in (1, 2, 3, 4):
            head = head_of(store, "t")
            snapshot = Snapshot(head.seq, head.digest, 1, AT + seq, b"state %d" % seq)
            store.append([group(Write("t", draft(note("x")), snapshot=snapshot))])
        newest = store.snapshot("t", version=1)
        assert newest is not None and newest.body == b"state 4"
        assert store.snapshot("t", version=2) is None
        earlier = store.snapshot("t", upto=3, version=1)
        assert earlier is not None and earlier.body == b"state 3"
        assert store.snapshot("t", upto=2, version=1) is None, "only the last two are kept"
        assert store.drop_snapshots(before_us=AT + 4) == 1
        assert store.drop_snapshots() == 1
        assert store.snapshot("t", version=1) is None

    def test_a_reader_begins_with_one_question(self, store: Store) -> None:
        store.append([group(created("t"))])
        head = head_of(store, "t")
        snapshot = Snapshot(head.seq, head.digest, 1, AT, b"state")
        store.append([group(Write("t", draft(note("x")), snapshot=snapshot))])
        store.append([group(created("fork", origin=Origin("t", 2), start=head_of(store, "t")))])
        assert store.opening("t", version=1) == Opening(Origin(), 0, snapshot)
        assert store.opening("t", version=2) == store.opening("t", upto=0, version=1) == Opening(Origin(), 0, None)
        assert store.opening("fork", version=1) == Opening(Origin("t", 2), 0, None)
        assert store.opening("absent", version=1) is None
        store.erase([Erasure("t", 1, "ana", "", AT)])
        assert store.opening("t", version=1) == Opening(Origin(), 1, None)

    def test_what_came_since_says_whether_what_was_before_still_holds(self, store: Store) -> None:
        store.append([group(created("t"))])
        store.append([group(Write("t", draft(*(note(str(n)) for n in range(5)))))])
        store.append([group(created("fork", origin=Origin("t", 6), start=head_of(store, "t")))])
        assert store.since("t", 4) == Since(0, store.read("t", after=3))
        assert [row.seq for row in store.since("t", 2, upto=5, limit=2).rows] == [2, 3]
        assert [row.seq for row in store.since("t", 2, upto=3).rows] == [2, 3]
        assert store.since("t", 7) == store.since("absent", 1) == Since(0, [])
        assert [row.seq for row in store.since("fork", 7, past=("t",)).rows] == [7]
        store.erase([Erasure("t", 2, "ana", "", AT), Erasure("t", 5, "ana", "", AT)])
        found = store.since("t", 5)
        assert found.erased == 2 and found.rows[0].body is None and found.rows[1].body is not None
        assert store.since("fork", 7, past=("t",)).erased == 2 and store.since("fork", 7).erased == 0
        assert store.since("t", 9).erased == 2, "the count is there even where there is nothing to read"

    def test_a_store_is_known_by_an_id_and_a_key_of_its_own(self, opener: Opener) -> None:
        one = opener()
        found = one.identity()
        assert len(found.id) == len(found.key) == 32
        two = opener()
        assert two.identity() == one.identity() == found
        two.close()
        one.close()

    def test_tasks_are_listed_newest_first_by_every_filter_and_in_pages(self, store: Store) -> None:
        for n in range(7):
            store.append([group(created(f"t{n}", agent=f"agent{n % 2}", user="ana" if n % 3 == 0 else None))])
        row = summary_of(store, "t4")
        waiting = summarise(row, "t4", ev.TaskSuspended(why="person"), AT)
        staged = summarise(waiting, "t4", ev.StageSet(stage="drafting"), AT)
        store.append([group(Write("t4", draft(note("x")), summary=staged))])

        def ids(**wanted: Any) -> list[str]:
            return [row.id for row in store.list(Query(**wanted))]

        assert ids() == ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]
        assert ids(limit=2) == ["t6", "t5"]
        assert ids(limit=2, after="t5") == ["t4", "t3"]
        with pytest.raises(TaskNotFound):
            ids(after="absent")
        gone = head_of(store, "t3")
        assert store.remove([Tombstone("t3", gone.seq, gone.digest, AT)]) == ["t3"]
        assert ids(after="t3") == ["t2", "t1", "t0"], "a page continues after what was removed meanwhile"
        assert store.logs(after="t3") == ["t4", "t5", "t6"]
        row_t3 = created("u3", agent="agent1", user="ana")
        assert ok(store.append([group(row_t3)])[0])
        assert ids(status="waiting") == ids(stage="drafting") == ["t4"]
        assert ids(agent="agent1") == ["u3", "t5", "t1"]
        assert ids(agent="agent0", status="pending") == ["t6", "t2", "t0"]
        assert ids(user="ana", after="t6") == ["t0"]
        assert ids(user="ana", agent="agent1") == ["u3"]
        assert ids(user="ana", status="pending") == ["u3", "t6", "t0"]
        assert ids(stage="drafting", status="pending") == []
        assert ids(status="failed") == []
        none: dict[str, Any] = {"in_doubt": True, "due_us": 0, "changed_since_us": AT + 99, "expired_us": 0}
        for name in (one for one in Query().filters() if one != "namespace"):  # a view of a tenant sets that itself
            assert ids(**{name: none.get(name, "what no task has")}) == [], f"{name}= is not looked at"
        assert store.summary("t4") == staged

    def test_hostile_text_is_only_text(self, store: Store) -> None:
        hostile = "'; drop table events; --"
        store.append([group(created("t", agent=hostile, user="%_'\""))])
        assert [row.id for row in store.list(Query(agent=hostile))] == ["t"]
        assert store.list(Query(status="' or 1=1 --")) == []
        with pytest.raises(TaskNotFound):
            store.list(Query(after=hostile))
        assert store.owner_of_key(hostile) is None
        assert len(store.read("t")) == 1

    def test_logs_and_forks_are_listed_in_the_order_they_were_made(self, store: Store) -> None:
        store.append([group(created("b"))])
        head = head_of(store, "b")
        store.append([group(created("a", origin=Origin("b", 1), start=head))])
        assert store.logs() == ["b", "a"]
        assert store.logs(after="b") == ["a"]
        assert store.forks("b") == ["a"]
        assert store.origin("a") == Origin("b", 1)
        assert [row.seq for row in store.read("a")] == [2]

    # Erasing and removing

    def test_an_erased_body_leaves_its_hash_and_who_erased_it(self, store: Store) -> None:
        store.append([group(created("t"))])
        before = store.read("t")[0]
        erasure = Erasure("t", 1, "ana", "asked for it", AT)
        store.erase([erasure])
        after = store.read("t")[0]
        assert after.body is None
        assert (after.body_hash, after.digest) == (before.body_hash, before.digest)
        assert store.erasures("t") == [erasure]

    def test_a_removed_log_leaves_a_tombstone_and_its_name_never_acts_again(self, store: Store) -> None:
        _, mine = codec.make_blob(codec.pack("m" * 5000))
        _, shared = codec.make_blob(codec.pack("s" * 5000))
        store.append([group(created("t"), unique_keys=(UniqueKey("k", "t", "pay#1"),)), group(created("u"))])
        store.append([group(Write("t", draft(note("x")), blobs=(mine, shared)))])
        store.append([group(Write("u", draft(note("x")), blobs=(shared,)))])
        head = head_of(store, "t")
        stone = Tombstone("t", head.seq, head.digest, AT, "old")
        assert store.remove([stone]) == ["t"]
        assert store.head("t") is None and store.read("t") == [] and store.summary("t") is None
        assert store.tombstone("t") == stone
        assert isinstance(store.append([group(created("t"))])[0], Conflict)
        assert isinstance(store.append([group(Write("t", draft(note("zombie")), head))])[0], Conflict)
        assert store.blob(mine.hash) is None
        assert store.blob(shared.hash) == shared.data
        assert store.owner_of_key("k") is not None, "a unique key outlives the log that took it"

    def test_the_past_of_a_fork_and_a_log_that_moved_on_stay(self, store: Store) -> None:
        store.append([group(created("p")), group(created("q"))])
        p, q = head_of(store, "p"), head_of(store, "q")
        store.append([group(created("f", origin=Origin("p", 1), start=p)), group(Write("q", draft(note("goes on"))))])
        stones = [
            Tombstone("p", 1, p.digest, AT),
            Tombstone("q", 1, q.digest, AT),
            Tombstone("absent", 1, p.digest, AT),
        ]
        assert store.remove(stones) == []
        assert store.head("p") == p and len(store.read("q")) == 2
        assert store.tombstones() == []

    def test_a_fork_of_what_is_gone_is_refused(self, store: Store) -> None:
        store.append([group(created("p"))])
        head = head_of(store, "p")
        store.remove([Tombstone("p", 1, head.digest, AT)])
        assert isinstance(store.append([group(created("f", origin=Origin("p", 1), start=head))])[0], Conflict)
        assert store.head("f") is None

    def test_ended_tasks_are_found_by_age_and_count(self, store: Store) -> None:
        for n in range(5):
            store.append([group(created(f"t{n}"))])
            if n != 2:
                end = ev.TaskCompleted(result=codec.pack(n))
                done = summarise(summary_of(store, f"t{n}"), f"t{n}", end, AT + n)
                store.append([group(Write(f"t{n}", draft(end, at_us=AT + n), summary=done))])
        assert store.finished(before_us=None, skip=0, limit=10) == ["t4", "t3", "t1", "t0"]
        assert store.finished(before_us=None, skip=3, limit=10) == ["t0"]
        assert store.finished(before_us=AT + 3, skip=0, limit=10) == ["t1", "t0"]

    def test_marks_of_another_store_are_adopted(self, store: Store) -> None:
        stone, take = Tombstone("gone", 3, b"\1" * 32, AT, "old"), UniqueKey("k", "gone", "pay#1", "h")
        for _ in range(2):
            store.restore_marks([stone], [take])
        assert (store.tombstones(), store.unique_keys()) == ([stone], [take])
        assert isinstance(store.append([group(created("gone"))])[0], Conflict)

    # Staying whole

    def test_everything_is_there_after_opening_again(self, opener: Opener) -> None:
        first = opener()
        first.append([group(created("t"), unique_keys=(UniqueKey("k", "t", "s"),))])
        rows, row = first.read("t"), first.summary("t")
        second = opener()
        assert (second.read("t"), second.summary("t")) == (rows, row)
        assert second.owner_of_key("k") is not None
        assert second.check() == []
        first.close()
        second.close()

    @pytest.mark.parametrize("point", ["append.before", "commit.before", "commit.after", "append.after"])
    @pytest.mark.parametrize("shape", ["one event", "group", "batch"])
    def test_a_crash_around_a_commit_leaves_whole_groups_only(self, opener: Opener, point: str, shape: str) -> None:
        store = opener()
        store.append([group(created("a")), group(created("b"))])
        a, b = head_of(store, "a"), head_of(store, "b")
        both = group(
            Write("a", draft(note("1")), a), Write("b", draft(note("2")), b), unique_keys=(UniqueKey("k", "a", "s"),)
        )
        groups = [both, group(created("c"))] if shape == "batch" else [both]

        def write() -> object:
            return store.append_event("a", a, draft(note("1"))[0]) if shape == "one event" else store.append(groups)

        with pytest.raises(SampleCrash), armed(crash_at(point)):
            write()
        again = opener()
        written = len(again.read("a")) == 2
        if shape != "one event":
            assert (len(again.read("b")) == 2) == written
            assert (again.owner_of_key("k") is not None) == written
        if point in ("append.before", "commit.before"):
            assert not written or shape == "batch", "nothing was committed yet"
        if point in ("commit.after", "append.after"):
            assert written, "what was committed stays"
        assert ok(again.append([group(Write("a", draft(note("goes on"))))])[0])
        store.close()
        again.close()

    def test_of_many_threads_exactly_one_wins_each_seq(self, store: Store) -> None:
        threads, rounds = 8, 40
        store.append([group(created("t"))])
        wins: list[int] = []
        starting = threading.Barrier(threads)

        def race(number: int) -> None:
            starting.wait()
            for n in range(rounds):
                head = head_of(store, "t")
                outcome = store.append([group(Write("t", draft(note(f"{number}/{n}")), head))])[0]
                if isinstance(outcome, tuple):
                    wins.append(outcome[0].first)

        workers = [threading.Thread(target=race, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        rows = store.read("t")
        assert len(wins) == len(set(wins))
        assert sorted(wins) == [row.seq for row in rows[1:]] == list(range(2, len(rows) + 1))
        assert len(wins) >= rounds, "one writer wins every round"

    def test_readers_see_whole_groups_while_others_write(self, store: Store) -> None:
        store.append([group(created("a"), created("b"))])
        torn: list[tuple[int, int]] = []
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                # b is read after a, and both grow together: so b can never be behind.
                a, b = len(store.read("a")), len(store.read("b"))
                if b < a:
                    torn.append((a, b))

        watcher = threading.Thread(target=watch)
        watcher.start()
        for n in range(100):
            store.append([group(Write("a", draft(note(str(n)))), Write("b", draft(note(str(n)))))])
        stop.set()
        watcher.join()
        assert torn == []

    # Being alive

    def test_a_holder_is_alive_until_it_closes(self, opener: Opener) -> None:
        store = opener()
        holder = store.holder()
        assert store.holder() == holder
        assert store.alive(holder)
        assert not store.alive("1-beef")
        assert not store.alive("nonsense")
        assert store.loss(holder) is None
        assert store.loss("nonsense") in ("proven", "presumed")
        store.close()

    def test_closing_twice_is_fine_and_a_closed_store_says_so(self, opener: Opener) -> None:
        store = opener()
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.append([group(created("t"))])

    def test_stats_count_what_is_there(self, store: Store) -> None:
        store.append([group(created("a")), group(created("b"))])
        store.append([group(Write("a", draft(note("x"))))])
        stats = store.stats()
        assert (stats.tasks, stats.events, stats.by_status) == (2, 3, {"pending": 2})
        assert stats.bytes == sum(stats.bytes_by_table.values()) > 0
