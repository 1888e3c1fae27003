"""Records in exports, imports, copies and backups: what comes out of one store goes into another, or is refused."""

import json
from binascii import a2b_base64, b2a_base64

import pytest

import holdfast
from holdfast import HoldfastError, InvalidValue, LogCorrupt, TaskExists, agent
from holdfast.core import codec, names
from holdfast.engine.maintenance.copy import verified_copy

STORES = ("memory", "sqlite", "postgres")
LARGE, OTHER = b"\0large" * 2000, b"other" * 2000


@pytest.fixture
def records(app):
    return app.records("space")


@pytest.fixture
def target():
    with holdfast.open("memory:") as opened:
        yield opened


def filled(records, key='a "key"!'):
    """Records that have been through everything: erased, popped, trimmed, with large values."""
    records.append(key, [b"trimmed", b"trimmed too", b"\xff\0\n"])
    records.append(key, b"with a value", blobs={"x": LARGE, "y": OTHER}, user="ana")
    records.append(key, b"erased", blobs={"y": OTHER})
    records.append(key, b"popped")
    records.erase(key, 5, by="ana", why="asked for it")
    records.pop(key)
    records.trim(key, keep=2)
    return key


def contents(records, key):
    return [(one.seq, one.at_us, one.data, dict(one.blobs), one.user) for one in records.read(key)]


def rows_of(app, log):
    return app.store.read(log), app.store.head(log), app.store.origin(log), app.store.erasures(log)


# Export and import


def test_exported_records_come_back_lossless(app, records, target, tmp_path):
    key = filled(records)
    size = records.export(key, tmp_path / "records.jsonl")
    assert (tmp_path / "records.jsonl").stat().st_size == size
    copied = target.import_(tmp_path / "records.jsonl")
    assert (copied.logs, copied.events, copied.skipped) == (1, 6, 0)
    assert contents(target.records("space"), key) == contents(records, key) != []
    log = names.record_log("space", key)
    assert rows_of(target, log) == rows_of(app, log)
    assert target.verify().ok and target.verify().erased == 2
    again = target.import_(records.export_lines(key))
    assert (again.logs, again.events, again.skipped) == (0, 0, 1)
    records.append(key, b"later")
    assert target.import_(records.export_lines(key)).events == 1
    assert target.records("space").append(key, b"goes on", expect=records.head(key)) == records.head(key) + 1


def test_an_export_of_tasks_and_one_of_records_are_imported_alike(app, records, target):
    @agent
    def worker(task):
        return task.step(lambda: "x" * 9000, name="look")

    app.run(worker, id="t")
    records.append("k", b"1")
    whole = [*list(app.export_lines("t"))[:-1], *list(records.export_lines("k"))[:-1]]
    events = sum(b'"is":"event"' in line for line in whole)
    assert target.import_([*whole, codec.dump({"is": "end", "events": events})]).logs == 2
    assert target.get("t").status == "completed" and target.records("space").read("k")[0].data == b"1"


def test_an_import_takes_nothing_away(app, records, target):
    """What the store has, and the export has no more, stays."""
    records.append("k", [b"1", b"2", b"3"])
    target.import_(records.export_lines("k"))
    records.trim("k", keep=1)
    records.append("k", b"4")
    assert target.import_(records.export_lines("k")).events == 1
    assert [one.data for one in target.records("space").read("k")] == [b"1", b"2", b"3", b"4"] and target.verify().ok


def test_an_import_erases_what_was_erased(records, target):
    records.append("k", b"1", blobs={"x": LARGE})
    records.append("k", [b"2"])
    target.import_(records.export_lines("k"))
    assert target.stats().blobs == 1
    records.erase("k", [1])
    assert target.import_(records.export_lines("k")).events == 1
    assert [one.data for one in target.records("space").read("k")] == [b"2"]
    assert target.stats().blobs == 0 and target.verify().ok


def test_another_history_is_refused(records, target, texts):
    records.append("k", [b"1", b"2"])
    target.records("space").append("k", [b"another", b"one", b"here"])
    before = contents(target.records("space"), "k")
    with texts.raises(TaskExists):
        target.import_(records.export_lines("k"))
    records.append("k", [b"3", b"4", b"5"])
    records.trim("k", keep=1)
    with pytest.raises(TaskExists):
        target.import_(records.export_lines("k"))
    assert contents(target.records("space"), "k") == before


def test_what_was_dropped_here_is_not_brought_back_by_an_old_export(records, target, texts):
    """Its seqs are used up: whoever kept one must not find something else there."""
    records.append("k", [b"1", b"2"])
    lines = list(records.export_lines("k"))
    target.import_(lines)
    target.records("space").drop("k")
    with texts.raises(InvalidValue):
        target.import_(lines)
    assert target.records("space").keys() == []
    records.append("k", b"3")
    records.trim("k", keep=1)
    assert target.import_(records.export_lines("k")).events == 1, "it goes on where it was dropped"
    assert contents(target.records("space"), "k") == contents(records, "k")


# Hostile exports


def changed(lines, place, **fields):
    """An export with one line changed."""
    made = [json.loads(line) for line in lines]
    made[place].update(fields)
    return [json.dumps(line).encode() for line in made]


def test_an_export_that_was_changed_is_refused(records, target):
    records.append("k", b"1", blobs={"x": LARGE})
    records.append("k", b"2")
    lines = list(records.export_lines("k"))
    body = a2b_base64(json.loads(lines[2])["data"])
    for bad in (
        changed(lines, 2, data=b2a_base64(body + b"!", newline=False).decode()),
        changed(lines, 2, data="not base64!"),
        changed(lines, 2, kind="task_created"),
        changed(lines, 2, kind="record_erased"),
        changed(lines, 2, at=7),
        changed(lines, 2, seq=7),
        changed(lines, 1, data=b2a_base64(b"nonsense", newline=False).decode()),
        changed(lines, 1, hash="0" * 64),
        changed(lines, 0, log="@records/space/another"),
        changed(lines, 0, log="@records/no space/k"),
        changed(lines, 0, log="@records/space/"),
        changed(lines, 0, log='@records/space/k"9'),
        changed(lines, 0, log="@records/space/k!l"),
        changed(lines, 0, log="@thread/k"),
        changed(lines, 0, log="k"),
        changed(lines, 0, parent="t", base=1),
        changed(lines, 0, base=1),
        changed(lines, 0, base=0, prev="00" * 32),
        [*lines[:1], *lines[2:]],
        [*lines[:2], *lines[3:]],
        lines[:-1],
    ):
        with pytest.raises(HoldfastError):
            target.import_(bad)
        assert target.store.logs() == [] and target.stats().blobs == 0
    assert target.import_(lines).events == 2


def row_as_a_task(target, kind, body):
    """An export of a task with a row that only records have."""
    with holdfast.open("memory:") as app:
        app.start("a", id="t")
        lines = list(app.export_lines("t"))
        head = app.store.head("t")
    hashed = codec.body_hash(body)
    digest = codec.chain(head.digest, 2, kind, 7, hashed)
    line = {"is": "event", "seq": 2, "kind": kind, "at": 7, "body_hash": hashed.hex(), "digest": digest.hex()}
    data = b2a_base64(body, newline=False).decode()
    return [*lines[:-1], codec.dump({**line, "data": data}), codec.dump({"is": "end", "events": 2})]


@pytest.mark.parametrize("kind", ["record_added", "record_erased"])
def test_no_task_holds_records(target, kind):
    with pytest.raises(LogCorrupt):
        target.import_(row_as_a_task(target, kind, b'{"nonce":"0"}\ndata'))
    assert target.list() == []


# Copies


def test_a_copy_has_all_records_and_follows_its_source(app, records, target):
    key = filled(records)
    records.append("dropped", b"1")
    app.records("other").append("k", b"of another space")
    copied = verified_copy(app.logs, target.logs)
    assert copied.skipped == 0 and target.verify().ok
    there = target.records("space")
    assert there.keys() == records.keys() == [key, "dropped"]
    assert contents(there, key) == contents(records, key) != []
    assert verified_copy(app.logs, target.logs).events == 0, "there is nothing to catch up with"
    records.drop("dropped")
    records.append(key, [b"new", b"newer"])
    records.trim(key, keep=1)
    records.append("late", b"1")
    records.drop("late")
    verified_copy(app.logs, target.logs)
    assert there.keys() == records.keys() == [key] and contents(there, key) == contents(records, key)
    assert target.stats().blobs == app.stats().blobs == 0
    assert records.append("dropped", b"again") == 2 and records.append("late", b"again") == 2
    verified_copy(app.logs, target.logs)
    for name in (key, "dropped", "late"):
        assert contents(there, name) == contents(records, name) != []
        assert there.append(name, b"goes on") == records.head(name) + 1


def test_a_copy_of_every_store_goes_into_every_other(app, records, url, tmp_path, request):
    key = filled(records)
    places = ["memory:", str(tmp_path / "copy.db")]
    if url.startswith("postgres"):
        places.append(request.getfixturevalue("postgres_databases").new(empty=True))
    for place in places:
        with holdfast.open(place) as other:
            verified_copy(app.logs, other.logs)
            assert contents(other.records("space"), key) == contents(records, key)
            assert rows_of(other, names.record_log("space", key)) == rows_of(app, names.record_log("space", key))
            assert other.records("space").append(key, b"goes on") == records.head(key) + 1 and other.verify().ok


def test_what_both_stores_went_on_with_is_named_and_left_as_it_is(app, records, target):
    records.append("k", b"1")
    verified_copy(app.logs, target.logs)
    records.append("k", b"2")
    target.records("space").append("k", b"another")
    with pytest.raises(TaskExists):
        verified_copy(app.logs, target.logs)
    assert [one.data for one in target.records("space").read("k")] == [b"1", b"another"]


def test_a_copy_that_was_cut_off_from_its_source_begins_anew(app, records, target):
    """Since the last copy, everything that was copied was trimmed, and more came."""
    records.append("k", [b"1", b"2"], expect=0)
    verified_copy(app.logs, target.logs)
    records.append("k", [b"3", b"4", b"5"])
    records.trim("k", keep=1)
    verified_copy(app.logs, target.logs)
    assert contents(target.records("space"), "k") == contents(records, "k") and target.verify().ok


def test_tenants_records_are_copied_as_the_tenants(url, target):
    with holdfast.open(url) as root:
        for tenant in ("a", "b"):
            with holdfast.open(url, namespace=tenant) if url != "memory:" else _tenant(root, tenant) as app:
                app.records("space").append("k", tenant.encode(), blobs={"x": LARGE})
        verified_copy(root.logs, target.logs)
        assert root.records("space").keys() == target.records("space").keys() == []
    for tenant in ("a", "b"):
        with _tenant(target, tenant) as app:
            (one,) = app.records("space").read("k")
            assert (one.data, one.blobs["x"]) == (tenant.encode(), LARGE) and app.verify().tasks == 1


class _tenant:
    """A tenant's app on the store of another app, which stays open."""

    def __init__(self, app, name):
        from holdfast.store.tenants import Tenant

        self.app = holdfast.App(Tenant(app.store, name), namespace=name)

    def __enter__(self):
        return self.app

    def __exit__(self, *error):
        return None


# Backups


def test_a_backup_has_all_records(app, records, url, tmp_path):
    if url == "memory:" or url.startswith("postgres"):
        return  # neither is copied to a file
    key = filled(records)
    app.backup(tmp_path / "backup.db")
    with holdfast.open(tmp_path / "backup.db") as backup:
        assert contents(backup.records("space"), key) == contents(records, key) and backup.verify().ok
        with holdfast.open(tmp_path / "backup.db", read_only=True) as looking:
            assert contents(looking.records("space"), key) == contents(records, key)
            assert looking.records("space").keys() == [key]
            with pytest.raises(holdfast.StoreReadOnly):
                looking.records("space").append(key, b"never")
            with pytest.raises(holdfast.StoreReadOnly):
                looking.records("space").drop(key)
