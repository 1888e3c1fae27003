"""Records with a bug planted in them. Each bug is caught by a check that they pass without it."""

import threading

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Conflict, RecordWrite
from holdfast.core import codec
from holdfast.core.codec import Head
from holdfast.engine.logs import record_logs
from holdfast.engine.logs.committer import Committer
from holdfast.engine.records.records import Records
from holdfast.engine.records.removal import RecordRemover
from holdfast.engine.records.writing import RecordWriter
from holdfast.store import acceptance
from holdfast.store.memory.store import MemoryStore
from holdfast.store.sqlite import rows

LARGE = b"large" * 2000

# Checks


def no_seq_is_used_twice(app):
    records = app.records("space")
    records.append("k", [b"1", b"2"])
    cursor, seen = records.changes("k").cursor, {1, 2}
    records.drop("k")
    seen_again = records.append("k", [b"3", b"4"])
    assert not seen & {*seen_again}
    assert records.changes("k", cursor).restarted


def the_rest_verifies_after_a_trim(app):
    records = app.records("space")
    records.append("k", [b"1", b"2", b"3", b"4"])
    assert records.trim("k", keep=2) == 2
    assert [one.data for one in records.read("k")] == [b"3", b"4"]
    assert records.verify("k").ok


def values_stay_that_others_refer_to(app):
    records = app.records("space")
    records.append("k", b"1", blobs={"x": LARGE})
    records.append("k", b"2", blobs={"x": LARGE})
    records.append("k", b"3", blobs={"x": LARGE})
    records.trim("k", keep=2)
    records.pop("k")
    assert app.verify().problems == [] and records.read("k")[0].blobs["x"] == LARGE


def values_that_nobody_refers_to_go(app):
    records = app.records("space")
    records.append("k", [b"0"])
    for _ in range(3):
        records.append("k", b"1", blobs={"x": LARGE})
        records.pop("k")
        records.append("k", b"1", blobs={"x": LARGE})
        records.append("k", b"2")
        records.trim("k", keep=1)
        assert app.stats().blobs == 0


def a_value_appended_meanwhile_stays(app):
    """Between the look at what goes and its removal, another writer refers to the same value."""
    records, other = app.records("space"), app.records("space")
    records.append("k", b"1", blobs={"x": LARGE})
    right = app.logs.committer.commit
    once = threading.Event()

    def commit(group):
        if group.removes and not once.is_set():
            once.set()
            other.append("k", b"2", blobs={"x": LARGE})
        return right(group)

    app.logs.committer.commit = commit
    assert records.pop("k").data == b"2", "the newest is the one that came meanwhile"
    records.erase("k", [1])
    records.append("k", b"3", blobs={"x": LARGE})
    assert app.verify().problems == []


def one_of_two_writers_wins(app):
    records = app.records("space")
    records.append("k", b"1", expect=0)
    records.append("k", b"2", expect=1)
    for stale in (0, 1):
        with pytest.raises(Conflict):
            records.append("k", b"late", expect=stale)
        with pytest.raises(Conflict):
            records.append("k", [b"late", b"later"], expect=stale)
    assert len(records.read("k")) == 2


def a_pop_is_noticed(app):
    records = app.records("space")
    records.append("k", [b"1", b"2"])
    kept = records.changes("k")
    head = records.head("k")
    records.pop("k")
    assert records.changes("k", kept.cursor).erased == [2]
    with pytest.raises(Conflict):
        records.append("k", b"late", expect=head)


def several_keys_are_one(app):
    records = app.records("space")
    records.append("b", b"1")
    with pytest.raises(Conflict):
        records.write([RecordWrite(key="a", data=b"1"), RecordWrite(key="b", data=b"2", expect=0)])
    assert records.keys() == ["b"]


# Bugs


def begins_at_one_again(patch):
    patch.setattr(RecordWriter, "_start", lambda self, log: Head(0, codec.genesis(log)))
    patch.setattr(acceptance, "_may_begin", lambda name, origin, start, known: True)


def leaves_the_wrong_digest(patch):
    right = MemoryStore._cut
    patch.setattr(
        MemoryStore,
        "_cut",
        lambda self, cut: right(self, replace(cut, stone=replace(cut.stone, digest=b"\0" * 32))),
    )


def forgets_where_the_rest_begins(patch):
    right = MemoryStore._cut

    def cut(self, one):
        origin = self._logs[one.stone.log].origin
        right(self, one)
        self._logs[one.stone.log].origin = origin

    patch.setattr(MemoryStore, "_cut", cut)


def cuts_one_too_many(patch):
    right = RecordRemover._beginning
    patch.setattr(RecordRemover, "_beginning", lambda self, log, head, keep: right(self, log, head, keep - 1))


def releases_what_others_use(patch):
    patch.setattr(record_logs, "unused", lambda name, hashes, stays: tuple(sorted(hashes)))


def releases_nothing(patch):
    patch.setattr(record_logs, "unused", lambda name, hashes, stays: ())


def removes_at_any_head(patch):
    right = Committer.commit

    def commit(self, group):
        writes = tuple(replace(one, expect=None, base=None) if group.removes else one for one in group.writes)
        return right(self, replace(group, writes=writes))

    patch.setattr(Committer, "commit", commit)


def does_not_compare(patch):
    right = RecordWriter.append
    patch.setattr(
        RecordWriter, "append", lambda self, additions: right(self, [replace(one, expect=None) for one in additions])
    )


def erases_without_a_word(patch):
    right = Committer.commit

    def commit(self, group):
        if not group.erasures:
            return right(self, group)
        self._store.erase(group.erasures)
        return ()

    patch.setattr(Committer, "commit", commit)
    patch.setattr(RecordWriter, "accept", lambda self, writes, placed: None)


def writes_one_after_the_other(patch):
    right = RecordWriter.append
    patch.setattr(
        RecordWriter, "append", lambda self, additions: [first for one in additions for first in right(self, [one])]
    )


def reads_on_from_any_cursor(patch):
    right = Records.changes

    def changes(self, key, cursor=None):
        return replace(right(self, key, cursor), restarted=cursor is None)

    patch.setattr(Records, "changes", changes)


BUGS = {
    begins_at_one_again: no_seq_is_used_twice,
    reads_on_from_any_cursor: no_seq_is_used_twice,
    leaves_the_wrong_digest: the_rest_verifies_after_a_trim,
    forgets_where_the_rest_begins: the_rest_verifies_after_a_trim,
    cuts_one_too_many: the_rest_verifies_after_a_trim,
    releases_what_others_use: values_stay_that_others_refer_to,
    releases_nothing: values_that_nobody_refers_to_go,
    removes_at_any_head: a_value_appended_meanwhile_stays,
    does_not_compare: one_of_two_writers_wins,
    erases_without_a_word: a_pop_is_noticed,
    writes_one_after_the_other: several_keys_are_one,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(bug, monkeypatch):
    check = BUGS[bug]
    with holdfast.open("memory:") as app:
        check(app)
    bug(monkeypatch)
    with (
        holdfast.open("memory:") as app,
        pytest.raises((AssertionError, pytest.fail.Exception, holdfast.HoldfastError)),
    ):
        check(app)


def test_the_file_itself_refuses_to_lose_more_than_its_tombstone_says(monkeypatch, tmp_path):
    """A store that deletes beyond the cut is stopped by the database."""
    right = rows.cut_beginning

    def beyond(writer, number, cut):
        monkeypatch.setattr(rows.q, "CUT", ("delete from events where log = :log and seq <= :seq + 1",))
        right(writer, number, cut)

    monkeypatch.setattr(rows, "cut_beginning", beyond)
    with holdfast.open(tmp_path / "store.db") as app:
        records = app.records("space")
        records.append("k", [b"1", b"2", b"3"])
        with pytest.raises(holdfast.HoldfastError):
            records.trim("k", keep=2)
        assert [one.data for one in records.read("k")] == [b"1", b"2", b"3"] and records.verify("k").ok
