"""What stores do for records: names by prefix, the newest rows, beginnings that go, names that are given again."""

from __future__ import annotations

import threading

import pytest

from holdfast.core import codec
from holdfast.core.codec import Blob, Draft, Group, Head, LogCut, Origin, RecordHeader, Stored, Write
from holdfast.core.errors import Conflict
from holdfast.failpoints import armed
from holdfast.store.protocol import Erasure, Store, Tombstone
from holdfast.testing.conformance.samples import AT, Opener, SampleCrash, crash_at, created, group, head_of, ok


def records(*data: bytes, blobs: tuple[Blob, ...] = ()) -> tuple[Draft, ...]:
    """Records ready to be written."""
    refs = {blob.hash: codec.RecordBlob(blob.hash, 0) for blob in blobs}
    return tuple(codec.draft_record(one, RecordHeader("0" * 16, None, refs), AT) for one in data)


def begun(log: str, *data: bytes, start: Head | None = None, blobs: tuple[Blob, ...] = ()) -> Write:
    """The first write of a log of records."""
    start = start or Head(0, codec.genesis(log))
    return Write(log, records(*data), start, Origin(None, start.seq), blobs=blobs)


def stone_at(store: Store, log: str, seq: int, why: str = "") -> Tombstone:
    """Return the tombstone of a log that goes up to a seq."""
    (row,) = store.read(log, after=seq - 1, upto=seq)
    return Tombstone(log, seq, row.digest, AT, why)


def cut(store: Store, log: str, seq: int, *drafts: Draft, blobs: tuple[str, ...] = ()) -> Group:
    """A group that removes the beginning of a log, and may append to it."""
    return Group((Write(log, drafts, head_of(store, log)),), cuts=(LogCut(stone_at(store, log, seq), blobs),))


def follows(rows: list[Stored], start: Head) -> bool:
    """Return whether the chain of rows holds from a head on."""
    before = start.digest
    for seq, row in enumerate(rows, start=start.seq + 1):
        before = codec.chain(before, seq, row.kind, row.at_us, row.body_hash)
        if (row.seq, row.digest) != (seq, before):
            return False
    return True


class RecordConformance:
    """Logs whose beginning may go, and whose name may be given again."""

    # Reading

    def test_logs_are_listed_by_name_if_a_prefix_is_given(self, store: Store) -> None:
        names = ["@r/b", "@r/a/2", "@r/ä", "@r/a/1", "@r/a", "@r0", "@q/z", "@r/%", "@r/A", "@r/\U0010ffff"]
        for name in names:
            ok(store.append([group(begun(name, b"x"))])[0])
        inside = sorted(name for name in names if name.startswith("@r/"))
        assert store.logs(prefix="@r/") == inside
        assert store.logs(prefix="@r/a") == ["@r/a", "@r/a/1", "@r/a/2"]
        assert store.logs(prefix="@r/%") == ["@r/%"] and store.logs(prefix="@r/_") == []
        assert store.logs(prefix="@r/\U0010ffff") == ["@r/\U0010ffff"]
        assert store.logs(prefix="@r/", limit=3) == inside[:3]
        assert store.logs(prefix="@r/", after=inside[2]) == inside[3:]
        assert store.logs(prefix="@r/", after="@r/a/1½") == [name for name in inside if name > "@r/a/1½"]
        assert store.logs(prefix="@r/a", after="@r/z") == [] == store.logs(prefix="@absent/")
        assert store.logs(prefix="") == sorted(store.logs())

    def test_the_last_event_of_every_log_with_a_prefix_comes_with_its_name(self, store: Store) -> None:
        for name, count in (("@r/b", 3), ("@r/a", 1), ("@q", 2), ("@r/c", 2)):
            ok(store.append([group(begun(name, *(b"%d" % n for n in range(count))))])[0])
        ok(store.append([cut(store, "@r/b", 2)])[0])
        names = ["@r/a", "@r/b", "@r/c"]
        last = [(name, store.read(name)[-1]) for name in names]
        assert store.newest(prefix="@r/") == last
        assert store.newest(prefix="@r/", limit=1) == last[:1] and store.newest(prefix="@r/", after="@r/a") == last[1:]
        assert store.newest(prefix="@absent/") == []

    def test_the_newest_events_come_in_their_order(self, store: Store) -> None:
        store.append([group(begun("@r/k", *(b"%d" % n for n in range(5))))])
        rows = store.read("@r/k")
        assert store.read("@r/k", last=2) == rows[3:] and store.read("@r/k", last=9) == rows
        assert store.read("@r/k", upto=4, last=2) == rows[2:4] and store.read("@r/k", after=4, last=2) == rows[4:]
        assert store.read("@r/k", last=0) == [] == store.read("@absent", last=3)

    # Removing beginnings

    def test_the_beginning_of_a_log_goes_and_the_rest_still_chains(self, store: Store) -> None:
        store.append([group(begun("@r/k", b"1", b"2", b"3", b"4"))])
        rows, head = store.read("@r/k"), head_of(store, "@r/k")
        ok(store.append([cut(store, "@r/k", 2)])[0])
        assert store.read("@r/k") == rows[2:] and store.head("@r/k") == head
        assert store.origin("@r/k") == Origin(None, 2)
        assert store.tombstone("@r/k") == Tombstone("@r/k", 2, rows[1].digest, AT)
        assert follows(store.read("@r/k"), Head(2, rows[1].digest))
        since = store.since("@r/k", 4)
        assert (since.base, since.rows) == (2, rows[3:])
        assert isinstance(store.append_event("@r/k", head, records(b"5")[0]), bytes)
        assert store.check() == []

    def test_what_is_cut_again_or_less_is_no_error(self, store: Store) -> None:
        store.append([group(begun("@r/k", b"1", b"2", b"3", b"4"))])
        less, same = cut(store, "@r/k", 1), cut(store, "@r/k", 3)
        for one in (same, same, less):
            ok(store.append([one])[0])
        assert [row.seq for row in store.read("@r/k")] == [4]
        assert store.origin("@r/k") == Origin(None, 3)
        left = store.tombstone("@r/k")
        assert left is not None and left.seq == 3, "a tombstone never moves back"

    def test_a_group_that_conflicts_removes_nothing(self, store: Store) -> None:
        store.append([group(begun("@r/k", b"1", b"2", b"3"))])
        stale = cut(store, "@r/k", 2, *records(b"4"))
        gone = Erasure("@r/k", 1, "ana", "why", AT)
        erases = Group((Write("@r/k", records(b"4"), head_of(store, "@r/k")),), erasures=(gone,))
        store.append([group(Write("@r/k", records(b"another")))])
        before = store.read("@r/k")
        for one in (stale, erases):
            assert isinstance(store.append([one])[0], Conflict)
        assert store.read("@r/k") == before
        assert store.tombstone("@r/k") is None and store.erasures("@r/k") == []

    def test_who_removes_what_was_read_is_refused_if_the_beginning_went_meanwhile(self, store: Store) -> None:
        store.append([group(begun("@r/k", b"1", b"2", b"3", b"4"))])
        head, further = head_of(store, "@r/k"), cut(store, "@r/k", 3)
        ok(store.append([cut(store, "@r/k", 1)])[0])
        for base, drafts in ((0, ()), (0, records(b"5")), (2, ())):
            write = Write("@r/k", drafts, head, base=base)
            assert isinstance(store.append([Group((write,), cuts=further.cuts)])[0], Conflict)
        assert [row.seq for row in store.read("@r/k")] == [2, 3, 4]
        ok(store.append([Group((Write("@r/k", (), head, base=1),), cuts=further.cuts)])[0])
        assert [row.seq for row in store.read("@r/k")] == [4]

    def test_a_cut_and_an_append_are_one(self, store: Store) -> None:
        store.append([group(begun("@r/k", b"1", b"2")), group(begun("@r/l", b"1"))])
        both = cut(store, "@r/k", 1, *records(b"3"))
        other = group(Write("@r/l", records(b"2")))
        ok(store.append([both, other])[0])
        assert [row.seq for row in store.read("@r/k")] == [2, 3] and len(store.read("@r/l")) == 2

    def test_a_body_is_erased_together_with_what_says_so(self, store: Store) -> None:
        mine, shared = codec.make_record_blob(b"m" * 5000)[1], codec.make_record_blob(b"s" * 5000)[1]
        store.append([group(begun("@r/k", b"1", b"2", blobs=(mine, shared)))])
        store.append([group(begun("@r/l", b"1", blobs=(shared,)))])
        before = store.read("@r/k")
        erasure = Erasure("@r/k", 1, "ana", "asked for it", AT, (mine.hash, shared.hash))
        said = codec.draft_erased([1], "0" * 16, AT)
        done = store.append([Group((Write("@r/k", (said,), head_of(store, "@r/k")),), erasures=(erasure,))])[0]
        assert ok(done)[0].first == 3
        after = store.read("@r/k")
        assert [row.body is None for row in after] == [True, False, False]
        assert (after[0].body_hash, after[0].digest) == (before[0].body_hash, before[0].digest)
        assert [(one.seq, one.by, one.why) for one in store.erasures("@r/k")] == [(1, "ana", "asked for it")]
        assert store.blob(mine.hash) is None and store.blob(shared.hash) == shared.data
        assert store.since("@r/k", 3).erased == 1

    def test_what_a_removed_beginning_referred_to_goes_unless_another_log_does(self, store: Store) -> None:
        mine, shared = codec.make_record_blob(b"m" * 5000)[1], codec.make_record_blob(b"s" * 5000)[1]
        store.append([group(begun("@r/k", b"1", b"2", blobs=(mine, shared)))])
        store.append([group(begun("@r/l", b"1", blobs=(shared,)))])
        store.erase([Erasure("@r/k", 1, "", "", AT)])
        ok(store.append([cut(store, "@r/k", 1, blobs=(mine.hash, shared.hash))])[0])
        assert store.blob(mine.hash) is None and store.blob(shared.hash) == shared.data
        assert store.blobs_of("@r/k") == [] and store.erasures("@r/k") == []

    @pytest.mark.parametrize("how", ["erase", "cut"])
    def test_of_one_batch_a_later_group_keeps_what_an_earlier_one_removes(self, store: Store, how: str) -> None:
        blob = codec.make_record_blob(b"m" * 5000)[1]
        store.append([group(begun("@r/k", b"1", b"2", blobs=(blob,)))])
        removes = cut(store, "@r/k", 1, blobs=(blob.hash,))
        if how == "erase":
            said = codec.draft_erased([1], "0" * 16, AT)
            gone = Erasure("@r/k", 1, "", "", AT, (blob.hash,))
            removes = Group((Write("@r/k", (said,), head_of(store, "@r/k")),), erasures=(gone,))
        again = group(Write("@r/k", records(b"refers"), blobs=(blob,)))
        assert all(map(ok, store.append([removes, again])))
        assert store.blob(blob.hash) == blob.data and store.blobs_of("@r/k") == [blob]
        assert store.check() == []

    def test_of_one_batch_only_the_first_removes_what_both_have_read(self, store: Store) -> None:
        store.append([group(begun("@r/k", b"1", b"2", b"3"))])
        head, stone = head_of(store, "@r/k"), stone_at(store, "@r/k", 2)
        both = [Group((Write("@r/k", (), head, base=0),), cuts=(LogCut(stone),)) for _ in range(2)]
        first, second = store.append(both)
        assert ok(first) and isinstance(second, Conflict)
        assert [row.seq for row in store.read("@r/k")] == [3]

    # Names that are given again

    def test_a_removed_name_begins_again_at_its_tombstone_and_nowhere_else(self, store: Store) -> None:
        store.append([group(begun("@r/k", b"1", b"2"))])
        stone = stone_at(store, "@r/k", 2, "dropped")
        left = Head(stone.seq, stone.digest)
        assert store.remove([stone]) == ["@r/k"]
        assert store.logs(prefix="@r/") == []
        ok(store.append([group(created("parent"))])[0])
        fork = Write("@r/k", records(b"x"), head_of(store, "parent"), Origin("parent", 1))
        for wrong in (
            begun("@r/k", b"x"),
            begun("@r/k", b"x", start=Head(1, stone.digest)),
            begun("@r/k", b"x", start=Head(2, b"\0" * 32)),
            begun("@r/k", b"x", start=Head(3, stone.digest)),
            begun("@r/new", b"x", start=Head(3, b"\0" * 32)),
            Write("@r/k", records(b"x"), left),
            fork,
        ):
            assert isinstance(store.append([group(wrong)])[0], Conflict), wrong
        assert ok(store.append([group(begun("@r/k", b"3", start=left))])[0])[0].first == 3
        assert store.origin("@r/k") == Origin(None, 2) and store.logs(prefix="@r/") == ["@r/k"]
        assert follows(store.read("@r/k"), left)
        assert isinstance(store.append([group(begun("@r/k", b"x", start=left))])[0], Conflict), "it is there"
        assert store.check() == []

    def test_who_knew_the_log_before_finds_the_one_that_has_its_name_now(self, opener: Opener) -> None:
        log = "@records/space/key"
        one, two = opener(), opener()
        ok(one.append([group(begun(log, b"1"))])[0])
        assert isinstance(one.append_event(log, head_of(one, log), records(b"2")[0]), bytes)
        old = head_of(one, log)
        assert two.remove([stone_at(two, log, 2)]) == [log]
        assert one.read(log) == [] and one.head(log) is None
        ok(two.append([group(begun(log, b"3", b"4", start=old))])[0])
        assert [row.seq for row in one.read(log)] == [row.seq for row in one.read(log, last=9)] == [3, 4]
        assert [row.seq for row in one.since(log, 3).rows] == [3, 4] and len(one.rows(log)) == 2
        assert isinstance(one.append_event(log, old, records(b"late")[0]), Conflict)
        assert isinstance(one.append_event(log, head_of(one, log), records(b"5")[0]), bytes)
        assert follows(two.read(log), old)
        one.close()
        two.close()

    def test_a_name_can_be_removed_again_and_again(self, store: Store) -> None:
        start = Head(0, codec.genesis("@r/k"))
        for turn in range(1, 4):
            ok(store.append([group(begun("@r/k", b"x", start=start))])[0])
            stone = stone_at(store, "@r/k", turn, f"turn {turn}")
            assert store.remove([stone]) == ["@r/k"] and store.remove([stone]) == []
            assert store.tombstone("@r/k") == stone and store.tombstones() == [stone]
            start = Head(stone.seq, stone.digest)

    def test_adopted_tombstones_move_forward_only(self, store: Store) -> None:
        old, new = (Tombstone("@r/k", seq, bytes([seq]) * 32, AT, "dropped") for seq in (3, 7))
        for marks in ([old], [new], [old]):
            store.restore_marks(marks, ())
        assert store.tombstone("@r/k") == new
        assert ok(store.append([group(begun("@r/k", b"x", start=Head(7, new.digest)))])[0])[0].first == 8

    def test_of_many_that_begin_a_name_again_one_wins(self, store: Store) -> None:
        store.append([group(begun("@r/k", b"1"))])
        stone = stone_at(store, "@r/k", 1)
        store.remove([stone])
        starting, outcomes = threading.Barrier(6), list[object]()

        def begin(number: int) -> None:
            starting.wait()
            write = begun("@r/k", b"%d" % number, start=Head(1, stone.digest))
            outcomes.append(store.append([group(write)])[0])

        threads = [threading.Thread(target=begin, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [isinstance(one, tuple) for one in outcomes].count(True) == 1
        assert [row.seq for row in store.read("@r/k")] == [2]

    @pytest.mark.parametrize("point", ["append.before", "commit.before", "commit.after", "append.after"])
    def test_a_crash_around_a_cut_leaves_all_or_nothing_of_it(self, opener: Opener, point: str) -> None:
        store = opener()
        store.append([group(begun("@r/k", b"1", b"2", b"3"))])
        first = store.read("@r/k")[0]
        one = cut(store, "@r/k", 1, *records(b"4"))

        with pytest.raises(SampleCrash), armed(crash_at(point)):
            store.append([one])
        again = opener()
        seqs, start = [row.seq for row in again.read("@r/k")], Head(0, codec.genesis("@r/k"))
        if seqs == [2, 3, 4]:
            start = Head(1, first.digest)
            assert again.tombstone("@r/k") == one.cuts[0].stone
        else:
            assert seqs == [1, 2, 3] and again.tombstone("@r/k") is None
            assert point in ("append.before", "commit.before"), "what was committed stays"
        assert follows(again.read("@r/k"), start)
        store.close()
        again.close()
