"""Records against a plain model of them: lists of bytes, by key. Whatever is done, both give the same answers."""

import itertools

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import holdfast
from holdfast import Conflict, RecordWrite
from holdfast.engine.maintenance.copy import verified_copy

STORES = ("memory", "sqlite", "postgres")

KEYS = st.sampled_from(["a", "a/1", 'a!"', "ä"])
DATA = st.binary(max_size=6)
BLOBS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from([b"", b"one" * 2000, b"two" * 2000]), max_size=2)
SPACES = itertools.count()


class Key:
    """What a key has: its records by seq, the last seq that was ever given, and whether it is there."""

    def __init__(self):
        self.records, self.last, self.is_there = {}, 0, False

    @property
    def head(self):
        return self.last if self.is_there else 0


def values_of(one):
    """The large values of a key."""
    return [data for _, blobs in one.records.values() for data in blobs.values()]


class Reader:
    """Somebody who keeps what was read, and brings it up to date now and then."""

    def __init__(self):
        self.kept, self.cursor = {}, None

    def refresh(self, records, key):
        changed = records.changes(key, self.cursor)
        if changed.restarted:
            self.kept = {}
        gone = {seq for seq in self.kept if seq < changed.first} | set(changed.erased)
        self.kept = {seq: data for seq, data in self.kept.items() if seq not in gone}
        self.kept.update({one.seq: one.data for one in changed.records})
        self.cursor = changed.cursor


class Model(RuleBasedStateMachine):
    def __init__(self, opened, reopen):
        super().__init__()
        self.app, self.reopen = opened, reopen
        self.space = f"space{next(SPACES)}"
        self.keys, self.readers = {}, {}
        self.target = holdfast.open("memory:")

    @property
    def records(self):
        return self.app.records(self.space)

    def of(self, key):
        return self.keys.setdefault(key, Key())

    def added(self, key, items, blobs):
        one = self.of(key)
        one.is_there = True
        seqs = [one.last + count for count, _ in enumerate(items, start=1)]
        for seq, data in zip(seqs, items, strict=True):
            one.records[seq] = (data, blobs)
        one.last += len(items)
        return seqs

    @rule(key=KEYS, data=DATA, blobs=BLOBS)
    def append(self, key, data, blobs):
        assert self.records.append(key, data, blobs=blobs) == self.added(key, [data], blobs)[0]

    @rule(key=KEYS, items=st.lists(DATA, min_size=1, max_size=4))
    def append_many(self, key, items):
        assert self.records.append(key, items) == self.added(key, items, {})

    @rule(key=KEYS, data=DATA, off=st.integers(-2, 2))
    def append_expecting(self, key, data, off):
        expect = max(0, self.of(key).head + off)
        if expect == self.of(key).head:
            assert [self.records.append(key, data, expect=expect)] == self.added(key, [data], {})
            return
        with pytest.raises(Conflict) as refused:
            self.records.append(key, data, expect=expect)
        assert (refused.value.details["actual"] or 0) == self.of(key).head

    @rule(one=KEYS, two=KEYS, items=st.lists(DATA, min_size=2, max_size=3), off=st.integers(0, 1))
    def write(self, one, two, items, off):
        expect = self.of(one).head + off
        writes = [RecordWrite(key=one, data=items[0], expect=expect), RecordWrite(key=two, data=items[1:])]
        if off:
            with pytest.raises(Conflict):
                self.records.write(writes)
            return
        assert self.records.write(writes) == [self.added(one, items[:1], {}), self.added(two, items[1:], {})]

    @rule(key=KEYS)
    def pop(self, key):
        popped, one = self.records.pop(key), self.of(key)
        if not one.records:
            assert popped is None
            return
        seq = max(one.records)
        assert (popped.seq, (popped.data, dict(popped.blobs))) == (seq, one.records.pop(seq))
        one.last += 1

    @rule(key=KEYS, chosen=st.sets(st.integers(1, 30), max_size=5))
    def erase(self, key, chosen):
        one = self.of(key)
        gone = chosen & one.records.keys()
        assert self.records.erase(key, chosen) == len(gone)
        one.records = {seq: record for seq, record in one.records.items() if seq not in gone}
        one.last += bool(gone)

    @rule(key=KEYS, keep=st.integers(0, 4))
    def trim(self, key, keep):
        one = self.of(key)
        kept = dict(sorted(one.records.items())[max(0, len(one.records) - keep) :]) if keep else {}
        assert self.records.trim(key, keep=keep) == len(one.records) - len(kept)
        one.records, one.is_there = kept, one.is_there and keep > 0

    @rule(key=KEYS)
    def drop(self, key):
        one = self.of(key)
        assert self.records.drop(key) == one.is_there
        one.records, one.is_there = {}, False

    @rule(key=KEYS, after=st.integers(0, 12), before=st.integers(1, 12), most=st.integers(0, 5))
    def read_a_part(self, key, after, before, most):
        inside = [seq for seq in sorted(self.of(key).records) if after < seq < before]
        found = self.records.read(key, after=after, before=before, limit=most)
        assert [one.seq for one in found] == inside[:most]
        found = self.records.read(key, after=after, before=before, last=most)
        assert [one.seq for one in found] == inside[::-1][:most]

    @rule(key=KEYS)
    def refresh(self, key):
        reader = self.readers.setdefault(key, Reader())
        reader.refresh(self.records, key)
        assert reader.kept == {seq: data for seq, (data, _) in self.of(key).records.items()}

    @rule()
    @precondition(lambda self: self.reopen is not None)
    def open_again(self):
        self.app.close()
        self.app = self.reopen()

    @rule()
    def copy(self):
        """A copy that is made again and again has what its source has, whatever happened to that meanwhile."""
        verified_copy(self.app.logs, self.target.logs)
        copied = self.target.records(self.space)
        for key, one in self.keys.items():
            assert {found.seq: (found.data, dict(found.blobs)) for found in copied.read(key)} == one.records
            assert copied.head(key) == one.head
        assert copied.keys() == self.records.keys() and self.target.verify().ok
        assert self.target.stats().blobs == len({data for one in self.keys.values() for data in values_of(one)})

    def teardown(self):
        for key in self.keys:
            self.records.drop(key)
        self.target.close()

    @invariant()
    def agrees(self):
        for key, one in self.keys.items():
            found = {record.seq: (record.data, dict(record.blobs)) for record in self.records.read(key)}
            assert found == one.records and list(found) == sorted(found)
            assert self.records.head(key) == one.head
            if one.is_there:
                assert self.records.verify(key).ok
        assert self.records.keys() == sorted(key for key, one in self.keys.items() if one.is_there)


def test_records_are_as_a_plain_model_of_them(url):
    reopen = None if url == "memory:" else lambda: holdfast.open(url, durability="process")
    app = holdfast.open(url, durability="process")
    machines = []

    def machine():
        machines.append(Model(machines[-1].app if machines else app, reopen))
        return machines[-1]

    examples = settings().max_examples
    few = max(5, examples // 4) if url.startswith("postgres") else examples
    run_state_machine_as_test(machine, settings=settings(max_examples=few, stateful_step_count=30))
    app = machines[-1].app
    assert app.verify().ok
    app.close()
