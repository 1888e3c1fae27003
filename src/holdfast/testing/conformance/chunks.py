"""What stores do for steps that stream: batches beside the logs, read by others, and gone with their log."""

from __future__ import annotations

import threading

from holdfast.core.codec import Write
from holdfast.store.chunks import ChunkBatch
from holdfast.store.protocol import Erasure, Store, Tombstone
from holdfast.testing.conformance.samples import AT, Opener, created, draft, group, head_of, note


def batch(log: str, stream: str, part: int, *, step: str = "say#1", at_us: int = AT, data: bytes = b"{}") -> ChunkBatch:
    """Some chunks."""
    return ChunkBatch(log, stream, part, step, 1, 1, at_us, data)


class ChunkConformance:
    """Chunks lie beside the logs, and count for nothing."""

    def test_chunks_come_back_as_they_were_written_also_elsewhere(self, store: Store, opener: Opener) -> None:
        store.append([group(created("t"))])
        whole = ChunkBatch("t", "s1", 1, "säy#1", 3, 7, AT, b"\x00\xff")
        store.chunks.put([whole])
        other = opener()
        assert other.chunks.read("t", {}) == [whole]
        if other is not store:
            other.close()

    def test_only_parts_that_were_not_seen_are_read(self, store: Store) -> None:
        store.append([group(created("t"))])
        one, two, three = (batch("t", "a", part) for part in (1, 2, 3))
        beside = batch("t", "b", 1, step="other#1")
        store.chunks.put([one, two])
        store.chunks.put([three, beside])
        assert store.chunks.read("t", {}) == [one, two, three, beside]
        assert store.chunks.read("t", {"a": 2}) == [three, beside]
        assert store.chunks.read("t", {"a": 3, "b": 1, "unknown": 9}) == []
        assert store.chunks.read("nothing", {}) == []

    def test_a_batch_that_is_written_again_is_there_once(self, store: Store) -> None:
        store.append([group(created("t"))])
        for _ in range(2):
            store.chunks.put([batch("t", "a", 1), batch("t", "a", 2)])
        assert [one.part for one in store.chunks.read("t", {})] == [1, 2]

    def test_the_first_batch_of_an_attempt_removes_those_of_others_of_its_step(self, store: Store) -> None:
        store.append([group(created("t")), group(created("u"))])
        store.chunks.put([batch("t", "old", 1), batch("t", "old", 2), batch("t", "beside", 1, step="b#1")])
        store.chunks.put([batch("u", "elsewhere", 1)])
        store.chunks.put([batch("t", "new", 1)])
        assert sorted(one.stream for one in store.chunks.read("t", {})) == ["beside", "new"]
        assert len(store.chunks.read("u", {})) == 1

    def test_chunks_of_a_log_that_is_not_there_are_forgotten(self, store: Store) -> None:
        store.chunks.put([batch("nothing", "a", 1)])
        store.append([group(created("nothing"))])
        assert store.chunks.read("nothing", {}) == []

    def test_streams_are_dropped_one_by_one(self, store: Store) -> None:
        store.append([group(created("t")), group(created("u"))])
        store.chunks.put([batch("t", "a", 1), batch("t", "b", 1, step="b#1"), batch("u", "a", 1)])
        store.chunks.drop("t", ["a", "unknown"])
        assert [one.stream for one in store.chunks.read("t", {})] == ["b"]
        assert [one.stream for one in store.chunks.read("u", {})] == ["a"]

    def test_streams_whose_newest_batch_is_old_are_dropped(self, store: Store) -> None:
        store.append([group(created("t"))])
        store.chunks.put([batch("t", "old", 1), batch("t", "old", 2, at_us=AT + 1)])
        store.chunks.put([batch("t", "live", 1, step="b#1"), batch("t", "live", 2, step="b#1", at_us=AT + 10)])
        assert store.chunks.drop_old(AT + 5) == 2
        assert [(one.stream, one.part) for one in store.chunks.read("t", {})] == [("live", 1), ("live", 2)]
        assert store.chunks.drop_old(AT + 5) == 0

    def test_erasing_a_body_drops_the_chunks_of_its_log(self, store: Store) -> None:
        store.append([group(created("t")), group(created("u"))])
        store.append([group(Write("t", draft(note("x")), head_of(store, "t")))])
        store.chunks.put([batch("t", "a", 1), batch("u", "b", 1)])
        store.erase([Erasure("t", 2, "ana", "asked", AT, ())])
        assert store.chunks.read("t", {}) == [] and len(store.chunks.read("u", {})) == 1

    def test_a_removed_log_has_no_chunks_left(self, store: Store) -> None:
        store.append([group(created("t"))])
        store.chunks.put([batch("t", "a", 1)])
        head = head_of(store, "t")
        assert store.remove([Tombstone("t", head.seq, head.digest, AT, "old")]) == ["t"]
        assert store.chunks.read("t", {}) == []

    def test_chunks_move_no_head_and_no_digest(self, store: Store) -> None:
        store.append([group(created("t"))])
        head, rows = head_of(store, "t"), store.rows("t")
        store.chunks.put([batch("t", "a", 1)])
        assert (head_of(store, "t"), store.rows("t"), store.check()) == (head, rows, [])

    def test_many_threads_stream_at_once(self, store: Store) -> None:
        store.append([group(created("t"))])

        def stream(name: str) -> None:
            for part in range(1, 11):
                store.chunks.put([batch("t", name, part, step=f"{name}#1")])

        threads = [threading.Thread(target=stream, args=(f"s{number}",)) for number in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        found = store.chunks.read("t", {})
        for number in range(4):
            assert [one.part for one in found if one.stream == f"s{number}"] == list(range(1, 11))
