"""Exports that somebody made by hand: every digest holds, and no such log could have been written."""

import base64
import hashlib
import json
import tracemalloc

import pytest
from backports import zstd

import holdfast
from holdfast import StatePatch, events as ev
from holdfast.core import codec, limits
from holdfast.core.events import KIND
from holdfast.engine.maintenance import export
from tests.engine.reading.test_reading import step

STORES = ("memory", "sqlite", "postgres")
P = codec.pack


class Forger:
    """Writes an export whose digests hold, whatever is in it."""

    def __init__(self, name="t", *, parent=None, after=(0, None)):
        seq, digest = after
        self.seq, self.digest = seq, digest or codec.genesis(name)
        header = {"is": "log", "log": name, "parent": parent, "base": seq, "prev": self.digest.hex(), "format": 1}
        self.lines = [header]
        self.count = 0

    def add(self, kind, body, at=1, **more):
        """Add an event: its body as bytes, as a document, or as an event."""
        if isinstance(kind, ev.Event):
            kind, body = KIND[type(kind)], codec.dump(kind)
        body = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        self.seq, self.count = self.seq + 1, self.count + 1
        hashed = hashlib.sha256(body).digest()
        self.digest = codec.chain(self.digest, self.seq, kind, at, hashed)
        line = {"is": "event", "seq": self.seq, "kind": kind, "at": at, "body_hash": hashed.hex()}
        self.lines.append((json.dumps({**line, "digest": self.digest.hex(), **more}), body))
        return self

    def blob(self, data, salt="", stored=None, **wrong):
        """Add a large value; gives what stands for it in an event."""
        hashed = hashlib.sha256(salt.encode() + data).hexdigest()
        packed = base64.b64encode(zstd.compress(data) if stored is None else stored).decode()
        self.lines.insert(1, {"is": "blob", "hash": hashed, "data": packed})
        shape = codec.shape(codec.raw(data))
        return {"$blob": hashed, "bytes": len(data), "shape": shape, **({"salt": salt} if salt else {}), **wrong}

    def export(self, end=True):
        made = [
            json.dumps(one).encode() if isinstance(one, dict) else one[0][:-1].encode() + b',"body":' + one[1] + b"}"
            for one in self.lines
        ]
        return [*made, json.dumps({"is": "end", "events": self.count}).encode()] if end else made


def begun(**fields):
    return Forger().add("task_created", {"agent": "a", **fields})


def held(**fields):
    return begun(**fields).add("task_claimed", {"holder": "h"})


def with_value(value):
    """A log with a fact whose value is encoded like this."""
    body = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    return begun().add("fact_learned", b'{"key":"k","value":' + body + b"}")


def with_blob(data=b'"' + b"x" * 5000 + b'"', **how):
    made = begun()
    return made.add("fact_learned", {"key": "k", "value": made.blob(data, **how)})


def restored(**changed):
    """A log with a rollback whose restored state was changed."""
    with holdfast.open("memory:") as app:
        app.start("a", id="t")
        app.append("t", step("one#1"), step("two#1"))
        app.rollback("t", to=2)
        *_, last = app.events("t")
        hot = {**json.loads(bytes(last.event.hot)), **changed}
        lines = [json.loads(line) for line in app.export_lines("t")]
    made = Forger()
    for line in lines[1:-2]:
        made.add(line["kind"], line["body"], line["at"])
    return made.add("rolled_back", {"to": 2, "hot": hot}, lines[-2]["at"])


APPROVED = {"pay#1": {"key": "pay#1", "name": "pay", "status": "given", "bound": "", "seq": 2, "asked_us": 1}}
ONCE = {"name": "pay", "tool": "pay", "effect": "once", "idempotency_key": "k"}
DEEP = b"[" * 66 + b"]" * 66
IMPOSSIBLE = {
    # Rules
    "two endings": lambda: held().add("task_completed", {"result": 1}).add("task_failed", FAILED),
    "a step after the end": lambda: held().add("task_completed", {"result": 1}).add(step("late#1"), None),
    "the same ending twice": lambda: held().add("task_cancelled", {}).add("task_cancelled", {}),
    "an approval nobody asked for": lambda: held().add("approval_given", {"key": "pay#1", "by": "ana"}),
    "an approval of another call": lambda: (
        held()
        .add("approval_asked", {"key": "pay#1", "bound": "one"})
        .add("approval_given", {"key": "pay#1", "bound": "two"})
    ),
    "an approval after a refusal": lambda: (
        held()
        .add("approval_asked", {"key": "pay#1", "bound": "one"})
        .add("approval_refused", {"key": "pay#1"})
        .add("approval_given", {"key": "pay#1"})
    ),
    "a call that was not announced": lambda: held().add("step_completed", {"key": "pay#1", "result": 1, **ONCE}),
    "a step with two outcomes": lambda: held().add(step("a#1"), None).add(step("a#1", 2), None),
    "a settlement of nothing": lambda: held().add("step_settled", {"key": "pay#1", "happened": True}),
    "an end with an open call": lambda: (
        held().add("step_started", {"key": "pay#1", **ONCE}).add("task_completed", {"result": 1})
    ),
    "a wait that never began": lambda: held().add("wait_ended", {"key": "ask#1", "value": 1}),
    "a turn too far": lambda: held().add("turn_started", {"turn": 7}),
    "a stage it does not have": lambda: begun(stages=["one"]).add("stage_set", {"stage": "two"}),
    "a phase it cannot reach": lambda: begun().add("phase_set", {"phase": "done"}),
    "a task created twice": lambda: begun().add("task_created", {"agent": "b"}),
    "a task that begins with a step": lambda: Forger().add(step("a#1"), None),
    "a person in a task's log": lambda: begun().add("user_created", {}),
    "a name without an end": lambda: begun().add("flag_raised", {"flag": "x" * 201}),
    "a rollback that approves": lambda: restored(approvals=APPROVED),
    "a rollback that forgets a step": lambda: restored(steps={}),
    "a rollback that completes": lambda: restored(result=1),
    "a rollback of another task": lambda: restored(summary={"id": "other", "agent": "a"}),
    "a rollback to no state": lambda: restored(summary=5),
    # Envelopes and values
    "a blob that is a number": lambda: with_value({"$blob": 5}),
    "a blob without a size": lambda: with_value({"$blob": "0" * 64}),
    "a blob that is nowhere": lambda: with_value({"$blob": "0" * 64, "bytes": 9, "shape": "str"}),
    "a blob by another name": lambda: with_value({"$blob": "../../etc/passwd", "bytes": 9, "shape": "str"}),
    "a blob that lies about its size": lambda: with_blob(bytes=5001),
    "a blob that lies about its shape": lambda: with_blob(shape="number"),
    "a blob that is not JSON": lambda: with_blob(b"{" * 5000),
    "a blob that nests without end": lambda: with_blob(b"[" * 3000 + b"]" * 3000),
    "a blob with a salt of any length": lambda: with_blob(salt='"x'),
    "a blob inside a patch": lambda: with_patched_blob(),
    "a list that grew": lambda: with_value({"$append": [[1], 2]}),
    "a list that grew from nothing": lambda: with_value({"$append": 5}),
    "messages that are none": lambda: with_value({"$messages": []}),
    "a wrapped value that is not": lambda: with_value({"$json": 5}),
    "a wrapped value with more beside it": lambda: with_value(b'{"$json":{"$a":1},"more":{}}'),
    "an unknown envelope": lambda: with_value({"$py/object": "os.system"}),
    "a value that nests too deep": lambda: with_value(DEEP),
    "a number beyond all numbers": lambda: with_value(b"1e999"),
    "bytes that are not text": lambda: with_value(b'"\xff"'),
    # Numbers and names that stores cannot hold
    "a time beyond all calendars": lambda: begun(deadline_us=2**70),
    "a time before all calendars": lambda: begun(start_us=-(2**58)),
    "a moment beyond all calendars": lambda: begun().add("log_written", {"text": "x"}, at=2**61),
    "a moment before all calendars": lambda: begun().add("log_written", {"text": "x"}, at=-(2**57)),
    "a priority without an end": lambda: begun(priority=2**70),
    "a user with a NUL": lambda: begun(user="a\0b"),
    "a holder with a NUL": lambda: begun().add("task_claimed", {"holder": "a\0b"}),
    # Files
    "a log that is in it twice": lambda: begun().also(begun()),
    "a fork before its parent": lambda: forked().also(begun()),
    "a person's log under another name": lambda: Forger("@user/../x").add("user_created", {}),
    "a task in a person's log": lambda: Forger("@user/ana").add("task_created", {"agent": "a"}),
    "a kind nobody knows": lambda: begun().add("telepathy_used", {}),
    "a name that is no id": lambda: Forger("acme!t").add("task_created", {"agent": "a"}),
}
FAILED = {"failure": {"type": "ValueError", "message": "no"}}


def also(self, other):
    """Two logs in one file."""
    self.lines += other.lines
    self.count += other.count
    return self


Forger.also = also


def forked():
    parent = begun()
    fork = Forger("f", parent="t", after=(parent.seq, parent.digest))
    return fork.add("task_forked", {"parent": "t", "at": 1})


def with_patched_blob():
    made = begun()
    return made.add("state_patched", {"patch": {"set": {"k": made.blob(b'"' + b"x" * 5000 + b'"')}}})


def test_an_impossible_log_is_refused_and_nothing_is_written(app):
    """One store for all of them: a database a log would take longer than the logs."""
    wrong = {}
    for name, forged in IMPOSSIBLE.items():
        try:
            app.import_(forged().export())
            wrong[name] = "taken"
        except (holdfast.LogCorrupt, holdfast.InvalidValue) as refused:
            if not refused.hint:
                wrong[name] = "without a remedy"
        except Exception as error:
            wrong[name] = repr(error)
        if app.store.logs() or app.list():
            wrong[name] = f"{wrong.get(name, '')} and written"
            break
    assert not wrong and app.stats().blobs == 0


def test_what_a_forger_writes_within_the_rules_is_taken(app):
    """Else the tests above would prove nothing."""
    for made in (with_value({"a": 1}), with_blob(), with_value(b'{"$json":{"$a":1}}'), held(), restored(), forked()):
        with holdfast.open("memory:") as other:
            if made.lines[0]["parent"]:
                other.import_(begun().export())
            assert other.import_(made.export()).logs == 1
            assert other.verify().ok
    assert app.import_(begun().also(forked()).export()).logs == 2
    assert app.get("f").status == "pending" and app.verify().ok


def erased(made, *seqs):
    """An export in which the bodies of some events were erased."""
    lines = [json.loads(line) for line in made.export()]
    for line in (one for one in lines if one.get("seq") in seqs):
        line.pop("body")
        line.update(erased_by="ana", erased_why="asked", erased_at=1)
    return [json.dumps(line, separators=(",", ":")).encode() for line in lines]


def test_an_erased_log_cannot_end_twice_either(app):
    made = held().add("task_completed", {"result": 1}).add("task_completed", {"result": 2})
    with pytest.raises(holdfast.LogCorrupt, match="the task has ended"):
        app.import_(erased(made, 1, 2, 3))
    assert app.store.logs() == []


@pytest.mark.parametrize("changed", [{"id": "other"}, {"status": "odd"}, {"priority": 2**70}, {"stage": "a\0b"}])
def test_the_row_of_an_erased_log_is_looked_at_too(app, changed):
    made = held().add("task_completed", {"result": 1})
    made.lines[0]["summary"] = {"id": "t", "agent": "a", "status": "completed", **changed}
    with pytest.raises((holdfast.LogCorrupt, holdfast.InvalidValue), match=r"row in lists|Integer"):
        app.import_(erased(made, 1))
    assert app.store.logs() == []


@pytest.fixture(scope="module")
def bomb():
    """A gigabyte of JSON text in some kilobytes, under its true name."""
    chunk, packer, hashed = b"0" * (1 << 24), zstd.ZstdCompressor(level=1), hashlib.sha256(b'"')
    parts = [packer.compress(b'"')]
    for _ in range(64):
        hashed.update(chunk)
        parts.append(packer.compress(chunk))
    hashed.update(b'"')
    parts += [packer.compress(b'"'), packer.flush()]
    return hashed.hexdigest(), b"".join(parts)


@pytest.fixture
def frugal():
    """Nothing here needs more than a few times the largest value there may be."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * limits.MAX_VALUE_BYTES


def test_a_value_that_unfolds_to_a_gigabyte_is_refused_before_it_does(app, bomb, frugal):
    hashed, data = bomb
    assert len(data) < 200_000
    for size in (1 << 30, 9):
        made = begun()
        made.lines.insert(1, {"is": "blob", "hash": hashed, "data": base64.b64encode(data).decode()})
        made.add("fact_learned", {"key": "k", "value": {"$blob": hashed, "bytes": size, "shape": "str"}})
        with pytest.raises(holdfast.LogCorrupt):
            app.import_(made.export())
    assert app.store.logs() == [] and app.stats().blobs == 0


def test_so_is_one_that_lies_in_the_store_already(app, bomb, frugal):
    _, data = bomb
    app.start("a", {"x": "y" * 9000}, id="t")
    if hasattr(app.store, "_blobs"):
        app.store._blobs.update(dict.fromkeys(app.store._blobs, data))
    else:
        app.logs.store.blob = lambda hash, **within: data
    with holdfast.open("memory:") as reader:
        reader.logs.store = app.store
        reader.store = app.store
        with pytest.raises(holdfast.ValueDamaged, match="holds more than"):
            _ = reader.get("t").input["x"]
        assert [one.task for one in reader.verify("t").problems] == ["t"]


def test_a_snapshot_that_unfolds_without_end_is_not_used(app, monkeypatch):
    app.start("a", id="t")
    app.append("t", ev.StateSet(name="k", value=P("x" * 4000)))
    log = app.logs.load("t")
    log._snapshot_at = -1
    log.append([step("a#1")])
    monkeypatch.setattr(limits, "BLOB_BYTES", 1)
    body = codec.deflate(codec.dump(log.state))
    monkeypatch.setattr(limits, "MAX_STATE_BYTES", 1000)
    with pytest.raises(ValueError, match="holds more than 1,000 bytes"):
        codec.inflate(body)


def test_a_state_that_is_too_large_for_a_snapshot_gets_none(app, monkeypatch):
    monkeypatch.setattr(limits, "MAX_STATE_BYTES", 1000)
    app.start("a", id="t")
    app.append("t", ev.StateSet(name="k", value=P("x" * 4000)))
    log = app.logs.load("t")
    log._snapshot_at = -1
    log.append([step("a#1")])
    assert app.stats().snapshots == 0
    log.append([step("b#1")])
    assert app.get("t").state["k"] == "x" * 4000


def test_a_line_without_an_end_is_not_read_to_its_end(app, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_LINE_BYTES", 1000)
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(holdfast.InvalidValue, match="longer than 1,000 bytes"):
        app.import_(path)


def test_an_event_that_could_not_be_imported_is_not_written(app, monkeypatch):
    monkeypatch.setattr(limits, "MAX_EVENT_BYTES", 10_000)
    app.start("a", id="t")
    with pytest.raises(holdfast.InvalidValue, match="the most is 10,000"):
        app.patch("t", StatePatch(set={"k": "x" * 20_000}))
    assert app.get("t").seq == 1


def test_the_log_of_a_person_with_a_long_id_is_copied(app, tmp_path):
    app.user("u" * 500).patch(StatePatch(set={"a": 1}))
    assert app.copy_to(tmp_path / "copy.db").logs == 1


def test_what_is_impossible_is_neither_copied_nor_called_sound(app, tmp_path):
    """Somebody wrote to the database by hand, with digests that hold."""
    app.start("a", id="whole")
    app.start("a", id="struck")
    app.append("struck", ev.TaskCompleted(result=P(1)))
    late = codec.draft(ev.TaskCompleted(result=P(2)), 1)[0]
    app.store.append([codec.Group((codec.Write("struck", (late,)),))])
    (found,) = app.verify().problems
    assert (found.task, found.seq) == ("struck", 3) and "the task has ended" in found.why
    with pytest.raises(holdfast.LogCorrupt, match="left out of the copy: 'struck'"):
        app.copy_to(tmp_path / "copy.db")
    with holdfast.open(tmp_path / "copy.db") as copy:
        assert [row.id for row in copy.list()] == ["whole"]


def test_a_fork_that_was_rolled_back_to_before_it_was_forked_is_sound(app, tmp_path):
    app.start("a", id="t")
    app.append("t", step("one#1"), step("two#1"), step("three#1"))
    app.fork("t", id="f", at=3)
    app.append("f", step("own#1"))
    app.rollback("f", to=2)
    app.append("f", step("again#1"))
    assert app.verify().ok and app.copy_to(tmp_path / "copy.db").logs == 2
    with holdfast.open("memory:") as other:
        assert other.import_(app.export_lines("f")).logs == 2
        assert other.get("f").to_dict() == app.get("f").to_dict()
