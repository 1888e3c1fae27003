"""A byte that is not as it was written is found, with its task and seq, and the other tasks do not suffer."""

import random
import struct
from dataclasses import dataclass

import apsw
import pytest

import holdfast
from holdfast.core import codec
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.workload import THOROUGH
from tests.crash.writer import note

PAGE_BYTES = 4096
TABLE_LEAF = 13
TARGET, OTHERS, EVENTS = "target", ("before", "after", "beside"), 80
ALONE, SHARED = 45, 120
FLIPS = 24


@dataclass
class Cell:
    """Where a row lies in the file: what the tree needs of it, its header and each of its columns."""

    tree: range
    header: range
    columns: list[range]
    seq: int = 0


def varint(data, at):
    """SQLite's integers of one to nine bytes; gives the value and what follows."""
    value = 0
    for length in range(1, 9):
        byte = data[at + length - 1]
        value = value << 7 | byte & 127
        if byte < 128:
            return value, at + length
    return value << 8 | data[at + 8], at + 9


def cells(data):
    """Every row of every table in a database file, by the file format's description."""
    for page in range(0, len(data), PAGE_BYTES):
        if data[page] == TABLE_LEAF:
            (count,) = struct.unpack_from(">H", data, page + 3)
            yield from (cell(data, page + at) for at in struct.unpack_from(f">{count}H", data, page + 8))


def cell(data, start):
    _, at = varint(data, start)
    _, header = varint(data, at)
    size, at = varint(data, header)
    columns, place = [], header + size
    while at < header + size:
        kind, at = varint(data, at)
        length = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[kind] if kind < 12 else (kind - 12) // 2
        columns.append(range(place, place + length))
        place += length
    return Cell(range(start, header), range(header, header + size), columns)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store as bytes. Some of the target's events have a page to themselves, some share theirs."""
    path = tmp_path_factory.mktemp("whole") / "store.db"
    with holdfast.open(path, durability="process") as app:
        for id in ("before", TARGET, "after", "beside"):
            app.start("tester", id=id)
            for seq in range(2, EVENTS + 1):
                app.append(id, note(f"this is event {seq} of {id}"))
                if id == "beside":
                    app.append(TARGET, note(f"this is event {EVENTS + seq - 1} of {TARGET}"))
    assert path.with_name("store.db-wal").stat().st_size == 0, "it was checkpointed"
    return path.read_bytes()


@pytest.fixture(params=[ALONE, SHARED], ids=["alone on its page", "on a page with others"])
def target(whole, request):
    return find(whole, request.param)


def find(whole, seq):
    body = f'{{"text":"this is event {seq} of {TARGET}"}}'.encode()
    (found,) = [one for one in cells(whole) if len(one.columns) == 7 and body == part(whole, one.columns[4])]
    assert part(whole, found.columns[2]) == b"log_written"
    page = found.tree.start // PAGE_BYTES * PAGE_BYTES
    neighbours = [other for other in OTHERS if f" of {other}".encode() in whole[page : page + PAGE_BYTES]]
    assert neighbours == ([] if seq == ALONE else ["beside"])
    found.seq = seq
    return found


def part(data, place):
    return data[place.start : place.stop]


def flips(places):
    """Single bits to flip: some, or all of them in a thorough run."""
    everything = [(at, 1 << bit) for at in places for bit in range(8)]
    return everything if THOROUGH else random.Random(len(everything)).sample(everything, min(FLIPS, len(everything)))


def problems_of(path, data):
    """What verify finds in a file, once it is clear that the other tasks can be read and that one can go on."""
    path.write_bytes(data)
    with holdfast.open(path, durability="process") as app:
        for id in OTHERS:
            assert [record.seq for record in app.events(id)] == list(range(1, EVENTS + 1))
            assert app.get(id).seq == EVENTS
            assert app.verify(id).ok
            app.append(id, note("going on"))
        return app.verify().problems


COLUMNS = ("log", "seq", "kind", "at", "body", "body_hash", "digest")


@pytest.mark.parametrize("column", COLUMNS)
def test_a_flipped_bit_in_a_column_is_found_with_its_task_and_seq(whole, target, column, tmp_path):
    for at, bit in flips(target.columns[COLUMNS.index(column)]):
        problems = problems_of(tmp_path / f"{at} {bit}.db", flipped(whole, at, bit))
        assert_named(problems, target.seq, (at, bit))


def test_a_flipped_bit_in_the_header_of_a_row_is_found_with_its_task_and_seq(whole, target, tmp_path):
    for at in target.header:
        for bit in range(8):
            problems = problems_of(tmp_path / f"{at} {bit}.db", flipped(whole, at, 1 << bit))
            assert_named(problems, target.seq, (at - target.header.start, bit))


def test_a_flipped_bit_in_what_the_tree_needs_of_a_row_is_found_with_its_task(whole, tmp_path):
    """SQLite then loses its way to other rows on the page too, so another seq of the task can be the one named."""
    target = find(whole, ALONE)
    for at in target.tree:
        for bit in range(8):
            problems = problems_of(tmp_path / f"{at} {bit}.db", flipped(whole, at, 1 << bit))
            assert {problem.task for problem in problems} - {""} == {TARGET}, (at, bit, problems)


def flipped(data, at, bit):
    changed = bytearray(data)
    changed[at] ^= bit
    return bytes(changed)


def assert_named(problems, seq, where):
    assert any((problem.task, problem.seq) == (TARGET, seq) for problem in problems), (where, problems)
    assert {problem.task for problem in problems} <= {TARGET, ""}, (where, problems)


def test_a_whole_file_has_no_problems(whole, tmp_path):
    assert problems_of(tmp_path / "store.db", whole) == []


# The same by someone who can write SQL

TAMPERING = {
    "kind": "update events set kind = 'state_set' where {place}",
    "time": "update events set at = at + 1 where {place}",
    "body": "update events set body = cast(replace(body, 'this', 'that') as blob) where {place}",
    "no body": "update events set body = null where {place}",
    "body and hash": "update events set body = x'7b7d', body_hash = zeroblob(32) where {place}",
    "hash": "update events set body_hash = zeroblob(32) where {place}",
    "digest": "update events set digest = zeroblob(32) where {place}",
    "seq": "update events set seq = seq + 1000 where {place}",
    "log": "update events set log = 99 where {place}",
    "gone": "delete from events where {place}",
    "swapped": (
        "update events set body = (select body from events where log = {log} and seq = {seq} + 1),"
        " body_hash = (select body_hash from events where log = {log} and seq = {seq} + 1) where {place}"
    ),
    "copied": (
        "update events set digest = (select digest from events where log = {log} and seq = {seq} - 1) where {place}"
    ),
}


@pytest.mark.parametrize("tampering", TAMPERING.values(), ids=TAMPERING)
def test_tampering_with_sql_is_found_with_its_task_and_seq(whole, tampering, tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(whole)
    connection = apsw.Connection(str(path))
    connection.execute("drop trigger events_are_never_changed; drop trigger events_are_never_deleted")
    (log,) = connection.execute("select log from logs where name = ?", (TARGET,)).fetchone()
    connection.execute(tampering.format(place=f"log = {log} and seq = {ALONE}", log=log, seq=ALONE))
    assert connection.changes() == 1
    connection.close()
    assert_named(problems_of(path, path.read_bytes()), ALONE, tampering)


@pytest.mark.parametrize("verb", ["update events set at = 0", "delete from events", "delete from tombstones"])
def test_without_dropping_the_triggers_sql_cannot_tamper(whole, verb, tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(whole)
    with holdfast.open(path) as app:
        app.append(OTHERS[0], holdfast.events.TaskCompleted(result=codec.pack(None)))
        app.gc(keep=0)
    connection = apsw.Connection(str(path))
    with pytest.raises(apsw.ConstraintError):
        connection.execute(verb)
    connection.close()
    with holdfast.open(path) as app:
        assert app.verify().ok


def test_a_log_that_lost_its_end_is_found(whole, tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(whole)
    with holdfast.open(path) as app:
        app.append(TARGET, holdfast.events.TaskCompleted(result=codec.pack(None)))
    connection = apsw.Connection(str(path))
    connection.execute("drop trigger events_are_never_deleted")
    connection.execute("delete from events where seq = ?", (2 * EVENTS,))
    connection.close()
    with holdfast.open(path) as app:
        assert [(one.task, one.seq) for one in app.verify().problems] == [(TARGET, 2 * EVENTS)]


def test_a_chain_forged_from_end_to_end_is_found_by_the_head_the_task_is_known_to_have_had(whole, tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(whole)
    with holdfast.open(path) as app:
        app.append(TARGET, holdfast.events.StageSet(stage="late"))
    connection = apsw.Connection(str(path))
    connection.execute("drop trigger events_are_never_changed")
    digest = codec.genesis(TARGET)
    rows = "from events where log = (select log from logs where name = ?)"
    for rowid, seq, kind, at, body in connection.execute(f"select rowid, seq, kind, at, body {rows}", (TARGET,)).get:
        body = body.replace(b"this", b"that")
        digest = codec.chain(digest, seq, kind, at, codec.body_hash(body))
        changed = (body, codec.body_hash(body), digest, rowid)
        connection.execute("update events set body = ?, body_hash = ?, digest = ? where rowid = ?", changed)
    connection.close()
    with holdfast.open(path) as app:
        assert [(one.task, one.seq) for one in app.verify().problems] == [(TARGET, 2 * EVENTS)]


def test_a_damaged_large_value_is_found_with_its_task_and_seq(tmp_path):
    path = tmp_path / "store.db"
    store = SqliteStore(str(path))
    app = holdfast.App(store)
    app.start("tester", {"text": "long " * 2000}, id=TARGET)
    app.start("tester", id=OTHERS[0])
    app.close()
    connection = apsw.Connection(str(path))
    connection.execute("update blobs set data = zeroblob(40)")
    connection.close()
    with holdfast.open(path) as app:
        assert [(one.task, one.seq) for one in app.verify().problems] == [(TARGET, 1)]
        assert app.get(OTHERS[0]).seq == 1
