"""Records: opaque bytes in ordered, named logs, on every store."""

import threading

import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import Conflict, Diverged, InvalidId, InvalidValue, RecordWrite, ValueDamaged, agent
from holdfast.core import codec, limits, names
from holdfast.core.codec import Head
from holdfast.store.protocol import Tombstone

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture
def records(app):
    return app.records("space")


def data_of(records, key, **bounds):
    return [one.data for one in records.read(key, **bounds)]


def seqs_of(records, key, **bounds):
    return [one.seq for one in records.read(key, **bounds)]


# Appending and reading


def test_records_come_back_byte_for_byte_in_their_order(app, records, clock):
    assert records.append("k", b"one") == 1
    clock.advance(5)
    assert records.append("k", [b"two\n\0\xff", bytearray(b""), memoryview(b"four")]) == [2, 3, 4]
    found = records.read("k")
    assert [(one.key, one.seq, one.data) for one in found] == [
        ("k", 1, b"one"),
        ("k", 2, b"two\n\0\xff"),
        ("k", 3, b""),
        ("k", 4, b"four"),
    ]
    assert [type(one.data) for one in found] == [bytes] * 4
    assert 5 <= (found[1].at - found[0].at).total_seconds() < 5.1
    assert found == app.records("space").read("k"), "a space is the same, however often it is asked for"
    assert records.read("nobody") == [] and records.head("nobody") == 0 and records.head("k") == 4


def test_records_are_read_by_position_from_both_ends(records):
    records.append("k", [b"%d" % n for n in range(1, 8)])
    assert seqs_of(records, "k", after=5) == [6, 7] and seqs_of(records, "k", before=3) == [1, 2]
    assert seqs_of(records, "k", after=1, limit=2) == [2, 3] and seqs_of(records, "k", limit=99) == [*range(1, 8)]
    assert seqs_of(records, "k", last=3) == [7, 6, 5], "the newest come first"
    assert seqs_of(records, "k", last=2, before=5) == [4, 3] and seqs_of(records, "k", last=9, after=5) == [7, 6]
    assert records.read("k", last=0) == records.read("k", limit=0) == records.read("k", after=7) == []


def test_large_values_are_kept_beside_a_record_once_and_read_when_asked_for(app, records):
    large, other = b"\0large" * 5000, b"other" * 5000
    before = app.stats().blobs
    for key in ("a", "b"):
        records.append(key, b"refers", blobs={"state": large, "same": large, "none": b""})
    records.append("a", b"refers", blobs={"state": other})
    assert app.stats().blobs == before + 3, "equal content is stored once"
    first, second = records.read("a")
    assert dict(first.blobs) == {"state": large, "same": large, "none": b""}
    assert second.blobs["state"] == other and list(second.blobs) == ["state"] and len(second.blobs) == 1
    assert first.blobs != second.blobs and first.blobs == records.read("b")[0].blobs
    with pytest.raises(KeyError):
        assert second.blobs["nobody"]
    assert "25,000 bytes" in repr(second)


def test_a_task_and_a_record_share_a_large_value_and_gc_leaves_it(app, records):
    """A step's result of the same bytes is the same blob."""
    text = "x" * 9000

    @agent
    def worker(task):
        return task.step(lambda: text, name="look")

    app.run(worker, id="t")
    before = app.stats().blobs
    records.append("k", b"", blobs={"same": codec.dump(text)})
    assert app.stats().blobs == before
    assert app.gc(older_than=0).tasks == 1
    assert records.read("k")[0].blobs["same"] == codec.dump(text) and app.verify().ok


def test_compare_and_append_lets_one_of_two_writers_win(records, texts):
    assert records.append("k", b"1", expect=0) == 1
    assert records.append("k", b"2", expect=1) == 2
    for stale in (0, 1, 3):
        with texts.raises(Conflict) as refused:
            records.append("k", b"late", expect=stale)
        assert (refused.value.details["expected"], refused.value.details["actual"]) == (stale, 2)
    with texts.raises(Conflict):
        records.append("nobody", b"first", expect=4)
    assert data_of(records, "k") == [b"1", b"2"] and records.keys() == ["k"]


def test_several_keys_are_written_all_or_nothing(records):
    records.append("session", b"begin")
    done = records.write(
        [
            RecordWrite(key="session", data=b"event", expect=1),
            RecordWrite(key="user", data=[b"state", b"more"]),
            RecordWrite(key="session", data=b"large", blobs={"x": b"x" * 5000}),
        ]
    )
    assert done == [[2], [1, 2], [3]]
    with pytest.raises(Conflict):
        records.write([RecordWrite(key="user", data=b"lost"), RecordWrite(key="session", data=b"lost", expect=2)])
    with pytest.raises(Conflict):
        records.write([RecordWrite(key="new", data=b"lost"), RecordWrite(key="session", data=b"lost", expect=2)])
    assert (data_of(records, "session"), data_of(records, "user")) == (
        [b"begin", b"event", b"large"],
        [b"state", b"more"],
    )
    assert records.keys() == ["session", "user"] and records.write([]) == []


def test_many_threads_append_to_one_key_and_nothing_is_lost(app):
    threads, rounds = 6, 20
    acknowledged, starting = [], threading.Barrier(threads)

    def appender(number):
        mine = app.records("space")
        starting.wait()
        for turn in range(rounds):
            data = b"%d/%d" % (number, turn)
            acknowledged.append((mine.append("k", data), data))

    running = [threading.Thread(target=appender, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert sorted(acknowledged) == [(one.seq, one.data) for one in app.records("space").read("k")]
    assert len(acknowledged) == threads * rounds and app.verify().ok


def test_two_apps_append_to_one_key(url, app):
    """Each knows a head that the other has passed."""
    if url == "memory:":
        pytest.skip("a store in memory has one app")
    with holdfast.open(url) as other:
        apps = [app.records("space"), other.records("space")]
        assert [apps[n % 2].append("k", b"%d" % n) for n in range(6)] == [1, 2, 3, 4, 5, 6]
        assert [apps[n % 2].append("k", [b"a", b"b"]) for n in range(2)] == [[7, 8], [9, 10]]
        apps[0].drop("k")
        assert apps[1].append("k", b"after") == 11 and apps[0].append("k", b"it") == 12
        assert data_of(apps[1], "k") == data_of(apps[0], "k") == [b"after", b"it"]


# Keys


def test_keys_are_listed_by_prefix_in_their_order_page_by_page(records, app):
    names_ = ["b", "a/2", "ä", "a/1", "a", "a!b", 'a"b', "a b", "%", "A", "\U0010ffff", "a/1/x", "a#"]
    for name in names_:
        records.append(name, name.encode())
    app.records("space2").append("a/9", b"of another space")
    assert records.keys(limit=99) == sorted(names_)
    assert (
        records.keys("a/") == ["a/1", "a/1/x", "a/2"]
        and records.keys("a!") == ["a!b"]
        and records.keys('a"') == ['a"b']
    )
    assert records.keys("_") == [] and records.keys("%") == ["%"]
    pages, after = [], None
    while page := records.keys(after=after, limit=4):
        pages, after = [*pages, page], page[-1]
    assert [one for page in pages for one in page] == sorted(names_) and [len(page) for page in pages] == [4, 4, 4, 1]
    assert records.keys("a", after="a/1") == ["a/1/x", "a/2"], "in the order of code points"
    records.drop("a/1")
    assert records.keys("a/", after="a/1") == ["a/1/x", "a/2"], "a page goes on after what was dropped"
    for name in names_:
        assert name == "a/1" or data_of(records, name) == [name.encode()]


def test_the_newest_record_of_every_key_is_listed(records, app):
    for key in ("a/1", "a/2", "a/3", "a/4", "b"):
        records.append(key, [b"old", key.encode()], user="ana")
    records.pop("a/2")
    records.erase("a/3", [1, 2])
    records.drop("a/4")
    app.records("space2").append("a/9", b"of another space")
    assert [(one.key, one.data) for one in records.latest()] == [("a/1", b"a/1"), ("a/2", b"old"), ("b", b"b")]
    assert [one.key for one in records.latest("a/")] == ["a/1", "a/2"] and records.latest("c") == []
    pages, after = [], None
    while page := records.latest(after=after, limit=1):
        pages, after = [*pages, page[0].key], page[-1].key
    assert pages == ["a/1", "a/2", "b"], "keys without records do not end a listing"


@given(st.lists(st.text(max_size=12), min_size=2, max_size=2))
def test_names_of_logs_keep_the_order_and_the_beginnings_of_keys(keys):
    one, two = (
        (names.record_prefix("space", key.replace("\0", "")) for key in keys) if all(map(_fits, keys)) else ("", "")
    )
    if one:
        first, second = keys
        assert (one < two, one == two, two.startswith(one)) == (
            first < second,
            first == second,
            second.startswith(first),
        )
        assert names.record_key(one) == ("space", first) and "!" not in one


def _fits(key):
    return "\0" not in key and not any("\ud800" <= char <= "\udfff" for char in key)


def test_the_longest_key_can_be_written_also_by_a_tenant(url):
    longest = '"' * limits.MAX_KEY_BYTES
    with holdfast.open(url, namespace="n" * limits.MAX_ID_LENGTH) as app:
        records = app.records("s" * limits.MAX_SPACE_LENGTH)
        assert records.append(longest, b"x") == 1 and records.keys() == [longest]
        assert records.append("ä" * (limits.MAX_KEY_BYTES // 2), b"x") == 1
        assert records.append("\U0010ffff" * (limits.MAX_KEY_BYTES // 4), b"x") == 1
        assert app.verify().ok


@pytest.mark.parametrize("space", ["", "a/b", "no spaces", "x" * 65, "@x", "a!b", "ä", "\ud800", 7, None])
def test_a_bad_space_is_refused(app, space, texts):
    with texts.raises(InvalidId):
        app.records(space)


VERBS = {
    "append": lambda records, key: records.append(key, b"x"),
    "read": lambda records, key: records.read(key),
    "head": lambda records, key: records.head(key),
    "changes": lambda records, key: records.changes(key),
    "pop": lambda records, key: records.pop(key),
    "erase": lambda records, key: records.erase(key, 1),
    "trim": lambda records, key: records.trim(key, keep=1),
    "trim to nothing": lambda records, key: records.trim(key, keep=0),
    "drop": lambda records, key: records.drop(key),
    "verify": lambda records, key: records.verify(key),
    "export": lambda records, key: records.export(key, "never-written"),
    "export_lines": lambda records, key: records.export_lines(key),
    "write": lambda records, key: records.write([RecordWrite(key=key, data=b"x")]),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("key", ["", "\ud800", "a\0b", "ä" * 513, "k" * 1025, 7, None, b"k"])
def test_a_bad_key_is_refused_by_every_verb(records, verb, key):
    with pytest.raises(InvalidValue) as refused:
        VERBS[verb](records, key)
    assert refused.value.hint and records.keys() == []


# Bad input

BAD = {
    "text": lambda records: records.append("k", "text"),
    "a number": lambda records: records.append("k", 7),
    "nothing": lambda records: records.append("k", None),
    "text among bytes": lambda records: records.append("k", [b"x", "text"]),
    "no records": lambda records: records.append("k", []),
    "a generator": lambda records: records.append("k", (one for one in [b"x"])),
    "too many": lambda records: records.append("k", [b""] * (limits.MAX_EVENTS_PER_WRITE + 1)),
    "too large": lambda records: records.append("k", bytes(limits.MAX_RECORD_BYTES + 1)),
    "a list of blobs": lambda records: records.append("k", b"x", blobs=[b"x"]),
    "a blob of text": lambda records: records.append("k", b"x", blobs={"a": "text"}),
    "a blob without a name": lambda records: records.append("k", b"x", blobs={"": b"x"}),
    "a blob named by a number": lambda records: records.append("k", b"x", blobs={7: b"x"}),
    "a blob for several": lambda records: records.append("k", [b"x", b"y"], blobs={"a": b"x"}),
    "too many blobs": lambda records: records.append("k", b"x", blobs={str(n): b"" for n in range(1001)}),
    "a negative expect": lambda records: records.append("k", b"x", expect=-1),
    "an expect of text": lambda records: records.append("k", b"x", expect="1"),
    "an expect of the second write": lambda records: records.write(
        [RecordWrite(key="k", data=b"x"), RecordWrite(key="k", data=b"x", expect=1)]
    ),
    "a user with spaces": lambda records: records.append("k", b"x", user="no spaces"),
    "no RecordWrite": lambda records: records.write([("k", b"x")]),
    "a write that is no list": lambda records: records.write(RecordWrite(key="k", data=b"x")),
    "limit and last": lambda records: records.read("k", limit=1, last=1),
    "a negative limit": lambda records: records.read("k", limit=-1),
    "an after of text": lambda records: records.read("k", after="1"),
    "a seq beyond all": lambda records: records.read("k", after=1 << 63),
    "no page": lambda records: records.keys(limit=0),
    "too large a page": lambda records: records.keys(limit=limits.MAX_PAGE_SIZE + 1),
    "no page of the latest": lambda records: records.latest(limit=0),
    "a bad prefix of the latest": lambda records: records.latest("\ud800"),
    "a bad prefix": lambda records: records.keys("\ud800"),
    "a cursor of another kind": lambda records: records.changes("k", "nonsense"),
    "a cursor that is a number": lambda records: records.changes("k", 7),
    "to keep less than nothing": lambda records: records.trim("k", keep=-1),
    "to keep a truth": lambda records: records.trim("k", keep=True),
    "to erase text": lambda records: records.erase("k", "1"),
    "to erase nothing known": lambda records: records.erase("k", [None]),
    "a reason that is no text": lambda records: records.erase("k", [1], why="\ud800"),
    "a reason to drop that is no text": lambda records: records.drop("k", why="\ud800"),
    "verify what is not there": lambda records: records.verify("nobody"),
    "export what is not there": lambda records: records.export("nobody", "never-written"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_with_a_remedy_and_writes_nothing(app, records, what, texts):
    records.append("k", b"there")
    with texts.raises(InvalidValue) as refused:
        BAD[what](records)
    assert refused.value.hint
    assert (records.keys(), data_of(records, "k"), records.head("k")) == (["k"], [b"there"], 1)


def test_one_append_takes_only_so_much(records, monkeypatch, texts):
    monkeypatch.setattr(limits, "MAX_APPEND_BYTES", 10_000)
    with texts.raises(InvalidValue):
        records.append("k", [bytes(6_000), bytes(6_000)])
    assert records.append("k", bytes(6_000)) == 1


# Taking away


def test_the_newest_record_can_be_popped(records):
    records.append("k", [b"1", b"2"])
    records.append("k", b"3", blobs={"large": b"x" * 5000}, user="ana")
    popped = records.pop("k")
    assert (popped.seq, popped.data, dict(popped.blobs), popped.user) == (3, b"3", {"large": b"x" * 5000}, "ana")
    assert data_of(records, "k") == [b"1", b"2"] and data_of(records, "k", last=1) == [b"2"]
    head = records.head("k")
    assert head == 4, "a pop is something that happened to the key"
    with pytest.raises(Conflict):
        records.append("k", b"late", expect=3)
    with pytest.raises(Conflict):
        records.pop("k", expect=3)
    assert records.append("k", b"4", expect=head) == 5
    assert [records.pop("k").data for _ in range(3)] == [b"4", b"2", b"1"]
    assert records.pop("k") is None and records.pop("nobody") is None and records.read("k") == []
    assert records.verify("k").ok and records.append("k", b"again") == 9


def test_a_popped_record_takes_its_large_values_with_it_unless_others_have_them(app, records):
    shared, own, elsewhere = b"shared" * 1000, b"own" * 2000, b"elsewhere" * 1000
    before = app.stats().blobs
    records.append("k", b"1", blobs={"shared": shared})
    records.append("l", b"1", blobs={"elsewhere": elsewhere})
    records.append("k", b"2", blobs={"shared": shared, "own": own, "elsewhere": elsewhere})
    kept = records.read("k", last=1)[0]
    assert app.stats().blobs == before + 3
    records.pop("k")
    assert app.stats().blobs == before + 2
    assert records.read("k")[0].blobs["shared"] == shared and records.read("l")[0].blobs["elsewhere"] == elsewhere
    with pytest.raises(ValueDamaged, match="gone"):
        assert kept.blobs["own"]
    records.pop("k")
    assert app.stats().blobs == before + 1 and app.verify().ok


def test_many_pops_in_a_row_find_the_record_below(records):
    records.append("k", [b"%d" % n for n in range(60)])
    assert [records.pop("k").data for _ in range(59)] == [b"%d" % n for n in range(59, 0, -1)]
    assert data_of(records, "k", last=5) == data_of(records, "k", limit=5) == [b"0"]


def test_records_can_be_erased_wherever_they_are(app, records):
    records.append("k", [b"%d" % n for n in range(1, 6)])
    assert records.erase("k", [2, 4, 99], by="ana", why="asked for it") == 2
    assert records.erase("k", 2) == 0 and records.erase("nobody", [1]) == 0 and records.erase("k", []) == 0
    assert data_of(records, "k") == [b"1", b"3", b"5"] and records.head("k") == 6
    assert data_of(records, "k", last=2) == [b"5", b"3"] and data_of(records, "k", limit=2) == [b"1", b"3"]
    found = app.store.erasures(names.record_log("space", "k"))
    assert [(one.seq, one.by, one.why) for one in found] == [(2, "ana", "asked for it"), (4, "ana", "asked for it")]
    verified = records.verify("k")
    assert (verified.ok, verified.events, verified.erased) == (True, 6, 2)


def test_more_records_are_erased_than_fit_in_one_group(records):
    records.append("k", [b"%d" % n for n in range(250)])
    assert records.erase("k", range(1, 241)) == 240
    assert seqs_of(records, "k") == [*range(241, 251)] and records.verify("k").ok


def test_an_erased_record_leaves_nothing_to_guess_by(app, records):
    """Two equal records have different hashes: whoever has a hash cannot try what it was."""
    records.append("k", [b"yes", b"yes"])
    first, second = app.store.read(names.record_log("space", "k"))
    assert first.body_hash != second.body_hash


def test_the_oldest_records_are_trimmed_and_the_rest_still_verifies(app, records):
    large, kept = b"large" * 2000, b"kept" * 2000
    before = app.stats().blobs
    records.append("k", b"1", blobs={"large": large, "kept": kept})
    records.append("k", [b"2", b"3"])
    records.append("k", b"4", blobs={"kept": kept})
    assert records.trim("k", keep=4) == records.trim("k", keep=9) == records.trim("nobody", keep=1) == 0
    assert records.trim("k", keep=2) == 2 and seqs_of(records, "k") == [3, 4]
    assert app.stats().blobs == before + 1 and records.read("k", last=1)[0].blobs["kept"] == kept
    assert records.verify("k").ok and records.head("k") == 4
    assert records.append("k", b"5") == 5 and records.append("k", b"6", expect=5) == 6
    assert records.trim("k", keep=1) == 3 and data_of(records, "k") == [b"6"] and app.verify().ok


def test_trimming_counts_records_and_not_what_was_erased(records):
    records.append("k", [b"%d" % n for n in range(1, 8)])
    records.erase("k", [5, 6])
    records.pop("k")
    assert seqs_of(records, "k") == [1, 2, 3, 4]
    assert records.trim("k", keep=3) == 1 and seqs_of(records, "k") == [2, 3, 4]
    records.append("k", b"new")
    assert records.trim("k", keep=2) == 2 and data_of(records, "k") == [b"4", b"new"] and records.verify("k").ok
    records.pop("k")
    assert records.trim("k", keep=1) == 0 and data_of(records, "k") == [b"4"]


def test_trimming_to_nothing_drops_the_key(records):
    records.append("k", [b"1", b"2", b"3"])
    records.pop("k")
    assert records.trim("k", keep=0) == 2 and records.keys() == [] and records.trim("k", keep=0) == 0
    assert records.append("k", b"again", expect=0) == 5


def test_a_dropped_key_is_free_and_its_seqs_are_never_used_again(app, records, texts):
    records.append("k", [b"1", b"2"], expect=0)
    cursor = records.changes("k").cursor
    for turn in range(3):
        assert records.drop("k") and not records.drop("k")
        assert records.keys() == [] and records.read("k") == [] and records.head("k") == 0
        with texts.raises(Conflict):
            records.append("k", b"late", expect=2)
        assert records.append("k", b"again", expect=0) == 3 + turn
        assert data_of(records, "k") == [b"again"] and records.verify("k").ok
    changed = records.changes("k", cursor)
    assert changed.restarted and [one.seq for one in changed.records] == [5]
    assert app.store.tombstone(names.record_log("space", "k")).why == "dropped"


def test_a_key_is_dropped_only_if_it_is_as_expected(records):
    records.append("k", b"1")
    with pytest.raises(Conflict):
        records.drop("k", expect=0)
    with pytest.raises(Conflict):
        records.drop("nobody", expect=3)
    assert records.drop("k", expect=1) and not records.drop("k", expect=0)


def test_a_dropped_key_takes_its_large_values_with_it(app, records):
    before = app.stats()
    records.append("k", b"1", blobs={"x": b"x" * 5000, "shared": b"y" * 5000})
    records.append("l", b"1", blobs={"shared": b"y" * 5000})
    records.drop("k")
    assert app.stats().blobs == before.blobs + 1 and app.stats().events == before.events + 1
    records.drop("l")
    assert (app.stats().blobs, app.stats().events) == (before.blobs, before.events)


# What others keep in memory


def test_a_reader_is_told_what_changed_since(records):
    """Whatever happens to a key, what a reader kept and the changes together are what the key has."""
    kept, cursor = {}, None

    def refresh():
        nonlocal cursor
        changed = records.changes("k", cursor)
        if changed.restarted:
            kept.clear()
        for seq in [seq for seq in kept if seq < changed.first or seq in changed.erased]:
            del kept[seq]
        kept.update((one.seq, one.data) for one in changed.records)
        cursor = changed.cursor
        assert kept == {one.seq: one.data for one in records.read("k")}
        return changed.restarted

    assert refresh(), "there is nothing yet, and no cursor"
    records.append("k", [b"1", b"2", b"3"])
    assert refresh()
    for change in (
        lambda: None,
        lambda: records.append("k", [b"4", b"5"]),
        lambda: records.pop("k"),
        lambda: records.erase("k", [2, 3]),
        lambda: (records.append("k", b"x"), records.pop("k")),
        lambda: records.trim("k", keep=1),
        lambda: (records.append("k", [b"6", b"7", b"8"]), records.trim("k", keep=9)),
    ):
        change()
        assert not refresh(), "the same log went on"
    records.trim("k", keep=1)
    refresh()
    records.append("k", [b"9"] * 5)
    records.trim("k", keep=1)
    assert refresh(), "what the cursor pointed at is gone"
    records.drop("k")
    assert refresh() and cursor is None and kept == {}
    records.append("k", b"again")
    assert refresh() and list(kept.values()) == [b"again"]


# Not tasks


def test_records_are_no_tasks(app, records):
    """They are in no list, no queue, no inbox and no audit, and gc does not touch them."""
    told = []
    app.on_events(lambda log, events: told.append(log))
    records.append("k", [b"1", b"2"], user="ana")
    records.pop("k")
    assert told == []
    assert app.list() == [] and list(app.inbox()) == [] and list(app.audit()) == [] and app.depths() == []
    assert (app.stats().tasks, app.stats().by_status) == (0, {})
    assert app.user("ana").tasks() == []
    assert app.gc(older_than=0, keep=0).tasks == 0 and app.collectable(older_than=0) == []
    assert data_of(records, "k") == [b"1"]
    with pytest.raises(InvalidId):
        app.get(names.record_log("space", "k"))
    assert [one.level for one in app.doctor() if one.what in ("integrity", "interrupted")] == ["ok", "ok"]


def test_no_task_can_pass_for_records(app):
    for id in ("@records/space/k", "x!@records/space/k"):
        with pytest.raises(InvalidId):
            app.start("a", id=id)


# Erasure


def test_what_belongs_to_a_user_goes_when_the_user_is_erased(app, records):
    records.append("k", [b"of ana", b"of ana too"], user="ana")
    records.append("k", b"of nobody", blobs={"large": b"x" * 5000})
    records.append("l", b"of ben", user="ben")
    app.records("other").append("k", b"of ana there", user="ana", blobs={"large": b"y" * 5000})
    assert [one.user for one in records.read("k")] == ["ana", "ana", None]
    before = app.stats().blobs
    assert app.user("ana").erase(by="ana", why="asked to") == 3
    assert (data_of(records, "k"), data_of(records, "l")) == ([b"of nobody"], [b"of ben"])
    assert app.records("other").read("k") == [] and app.stats().blobs == before - 1
    found = app.verify()
    assert found.ok and found.erased == 3
    assert app.user("ana").erase() == 0


def test_the_database_refuses_to_delete_what_no_tombstone_covers(app, records):
    if app.store.url == "memory:":
        return
    records.append("k", [b"one", b"two", b"three"])
    records.trim("k", keep=2)
    log = names.record_log("space", "k")
    for statement in (
        "delete from events where seq = 2",
        "update tombstones set seq = 0",
        "delete from tombstones",
        "update events set body = null where seq = 2",
    ):
        with pytest.raises(Exception, match="never"):
            _run(app.store, statement)
    assert app.store.tombstone(log).seq == 1 and seqs_of(records, "k") == [2, 3] and app.verify().ok


def _run(store, statement):
    if not store.url.startswith("postgres"):
        store._writer.execute(statement)
        return
    with store._links.link() as link:
        link.execute("set search_path = holdfast")
        link.execute(statement)


# What was acknowledged


@pytest.mark.parametrize("lost", ["some", "all"])
def test_records_that_were_acknowledged_and_are_gone_are_missed_once(app, records, lost, texts):
    """As after a fail-over to a server that lagged behind: the log ends before what this process wrote."""
    records.append("k", [b"1", b"2", b"3"])
    log = names.record_log("space", "k")
    head = app.store.head(log)
    app.logs.record_heads.remember(log, Head(head.seq + 2, b"\1" * 32))
    if lost == "all":
        app.store.remove([Tombstone(log, head.seq, head.digest, 0)])
    with texts.raises(Diverged) as missed:
        records.append("k", b"4")
    assert missed.value.details["known_seq"] == 5
    assert records.append("k", b"4") == 4, "the next append goes on from what is left"


def test_a_record_as_json(records, clock):
    records.append("k", b"\0\xff", blobs={"x": b"1"}, user="ana")
    (one,) = records.read("k")
    told = codec.parse(one.to_json())
    assert told == {
        "key": "k",
        "seq": 1,
        "at": one.at.isoformat().replace("+00:00", "Z"),
        "data": "AP8=",
        "blobs": ["x"],
        "user": "ana",
    }


def test_trimming_after_another_writer_is_refused_if_a_head_was_expected(records):
    records.append("k", [b"1", b"2", b"3"])
    seen = records.changes("k").head
    records.append("k", b"4")
    with pytest.raises(Conflict):
        records.trim("k", keep=1, expect=seen)
    assert seqs_of(records, "k") == [1, 2, 3, 4]
    assert records.trim("k", keep=1, expect=4) == 3 and seqs_of(records, "k") == [4]
    with pytest.raises(Conflict):
        records.trim("k", keep=0, expect=9)


def test_changes_tell_the_head_that_an_append_can_expect(records):
    assert records.changes("k").head == 0
    records.append("k", [b"1", b"2"], expect=0)
    records.pop("k")  # an event of its own, which moves the head
    changes = records.changes("k")
    assert changes.head == records.head("k") == 3 and [one.seq for one in changes.records] == [1]
    assert records.append("k", b"3", expect=changes.head) == 4
