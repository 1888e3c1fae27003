"""Wrong input: a named error with a remedy, and nothing written."""

import math
import os
import pickle
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import events as ev
from holdfast.core import codec
from holdfast.core.codec import Group, Head, Write
from tests.engine.reading.test_reading import step, worked

P = codec.pack


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda app: app.get("nobody"), holdfast.TaskNotFound),
        (lambda app: app.at("nobody", 1), holdfast.TaskNotFound),
        (lambda app: app.events("nobody"), holdfast.TaskNotFound),
        (lambda app: app.append("nobody", step("a#1")), holdfast.TaskNotFound),
        (lambda app: app.fork("nobody"), holdfast.TaskNotFound),
        (lambda app: app.rollback("nobody"), holdfast.TaskNotFound),
        (lambda app: app.verify("nobody"), holdfast.TaskNotFound),
        (lambda app: app.export("nobody", "never-written"), holdfast.TaskNotFound),
        (lambda app: app.at("t", 0), holdfast.SeqOutOfRange),
        (lambda app: app.at("t", -3), holdfast.SeqOutOfRange),
        (lambda app: app.at("t", 8), holdfast.SeqOutOfRange),
        (lambda app: app.diff("t", 1, 99), holdfast.SeqOutOfRange),
        (lambda app: app.fork("t", at=99), holdfast.SeqOutOfRange),
        (lambda app: app.fork("t", at=0), holdfast.SeqOutOfRange),
        (lambda app: app.fork("t", id="t"), holdfast.TaskExists),
        (lambda app: app.fork("t", effects="maybe"), holdfast.InvalidValue),
        (lambda app: app.fork("t", patch=holdfast.StatePatch(close_question="no?")), holdfast.InvalidEvent),
        (lambda app: app.start("other", id="t"), holdfast.InvalidValue),
        (lambda app: app.start("worker", {"other": 1}, id="t"), holdfast.InputConflict),
        (lambda app: app.start("", id="x"), holdfast.InvalidValue),
        (lambda app: app.start("a", id="no spaces"), holdfast.InvalidId),
        (lambda app: app.start("a", user="no spaces"), holdfast.InvalidId),
        (lambda app: app.start("a", {"x": math.nan}), holdfast.NotSerializable),
        (lambda app: app.start("a", {"x": {"y": [object()]}}), holdfast.NotSerializable),
        (lambda app: app.append("t"), holdfast.InvalidValue),
        (lambda app: app.append("t", step("draft#1")), holdfast.InvalidEvent),
        (lambda app: app.append("t", step("new#1"), step("new#1")), holdfast.InvalidEvent),
        (lambda app: app.append("t", step("new#1"), expect=3), holdfast.Conflict),
        (lambda app: app.append("t", ev.FactLearned(key="k", value=codec.raw(b'{"$blob":5}'))), holdfast.InvalidValue),
        (lambda app: app.append("t", ev.FactLearned(key="k", value=codec.raw(b"[1,"))), holdfast.InvalidValue),
        (lambda app: app.append("t", ev.TaskReleased(wake_us=2**62)), holdfast.InvalidValue),
        (lambda app: app.list(status="finished"), holdfast.InvalidValue),
        (lambda app: app.list(limit=0), holdfast.InvalidValue),
        (lambda app: app.list(limit=10**9), holdfast.InvalidValue),
        (lambda app: app.gc(keep=-1), holdfast.InvalidValue),
        (lambda app: app.steps("t", turn=5), holdfast.StepNotFound),
    ],
)
def test_wrong_input_is_refused_by_name_and_nothing_is_written(app, call, error):
    worked(app)
    before = app.stats().events
    with pytest.raises(error) as refused:
        call(app)
    assert refused.value.code and refused.value.hint
    assert refused.value.hint in str(refused.value)
    assert app.stats().events == before and len(app.list()) == 1
    assert not os.path.exists("never-written")


def test_a_value_that_is_not_json_says_where():
    with holdfast.open("memory:") as app, pytest.raises(holdfast.NotSerializable, match=r"input\['x'\]\['y'\]\[0\]"):
        app.start("a", {"x": {"y": [object()]}})


def test_errors_survive_pickling_between_processes():
    error = holdfast.Conflict("t", 1, 2)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.details) == (type(error), str(error), error.details)


def test_an_event_of_a_newer_version_is_named_and_others_go_on(app, texts):
    worked(app)
    app.start("a", id="other")
    draft = codec.draft(ev.LogWritten(text="x"), 1)[0]
    future = type(draft)("telepathy_used", 1, b'{"who":"ana"}', codec.body_hash(b'{"who":"ana"}'))
    app.store.append([Group((Write("t", (future,)),))])
    with texts.raises(holdfast.UnknownEvent) as refused:
        app.get("t")
    assert refused.value.details["seq"] == 8
    assert app.at("t", 7).steps["send#1"].result == "msg-1", "what came before can be seen"
    assert app.get("other").status == "pending"
    assert app.verify().problems[0].seq == 8


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("mysql://x/y", holdfast.InvalidUrl),
        ("sqlite:/x", holdfast.InvalidUrl),
        ("sqlite://", holdfast.InvalidUrl),
        ("sqlite:///x.db?speed=high", holdfast.InvalidUrl),
        ("sqlite:///x.db?durability=hope", holdfast.InvalidUrl),
        ("sqlite:///:memory:", holdfast.InvalidUrl),
        ("a\0b", holdfast.InvalidUrl),
        ("postgresql://127.0.0.1:1/x", (holdfast.StoreUnreachable, holdfast.MissingExtra)),
        ("no/such/directory/x.db", holdfast.NotAStore),
        (".", holdfast.NotAStore),
    ],
)
def test_a_bad_url_is_refused(url, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as refused:
        holdfast.open(url)
    assert refused.value.hint
    assert os.listdir(tmp_path) == []


def test_urls_name_paths_and_the_environment_is_asked_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///from-env.db?durability=process")
    for url, file in (("rel.db", "rel.db"), ("sqlite:///three.db", "three.db"), (None, "from-env.db")):
        with holdfast.open(url):
            assert os.path.exists(file)
    with holdfast.open(f"sqlite:///{tmp_path}/abs.db"):
        assert os.path.exists("abs.db")
    monkeypatch.delenv("HOLDFAST_URL")
    with holdfast.open():
        assert os.path.exists("holdfast.db")


def test_a_file_that_is_not_a_database_is_not_touched(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 500)
    with pytest.raises(holdfast.NotAStore):
        holdfast.open(path)
    assert path.read_text() == "dear diary, " * 500


def test_the_database_of_another_program_is_not_touched(tmp_path, texts):
    path = str(tmp_path / "other.db")
    other = apsw.Connection(path)
    other.execute("create table customers (name text)")
    other.close()
    before = Path(path).read_bytes()
    with texts.raises(holdfast.NotAStore):
        holdfast.open(path)
    assert Path(path).read_bytes() == before


def test_a_database_of_a_newer_version_is_not_touched(tmp_path, texts):
    path = tmp_path / "a.db"
    holdfast.open(path).close()
    newer = apsw.Connection(str(path))
    newer.execute("pragma user_version = 99")
    newer.close()
    with texts.raises(holdfast.StoreTooNew):
        holdfast.open(path)


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    path = folder / "a.db"
    holdfast.open(path).close()
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    path.chmod(0o400)
    folder.chmod(0o500)
    try:
        with pytest.raises(holdfast.StoreReadOnly):
            holdfast.open(path)
        with pytest.raises(holdfast.StoreReadOnly):
            holdfast.open(folder / "new.db")
    finally:
        folder.chmod(0o700)


def test_a_migration_that_is_not_the_one_that_ran_is_noticed(tmp_path, texts):
    path = tmp_path / "a.db"
    holdfast.open(path).close()
    edited = apsw.Connection(str(path))
    edited.execute("update migrations set checksum = 'other'")
    edited.execute("pragma user_version = 0")
    edited.close()
    with texts.raises(holdfast.StoreError):
        holdfast.open(path)


def test_a_write_with_a_stale_head_conflicts_and_names_both(app):
    worked(app)
    draft = codec.draft(step("x#1"), 1)[0]
    outcome = app.store.append([Group((Write("t", (draft,), Head(2, b"\0" * 32)),))])[0]
    assert isinstance(outcome, holdfast.Conflict)
    assert (outcome.details["expected"], outcome.details["actual"]) == (2, 7)
