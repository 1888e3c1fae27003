"""Records whose rows somebody changed: verify finds it, and names the place."""

import pytest

STORES = ("sqlite",)


@pytest.fixture
def records(app):
    return app.records("space")


@pytest.mark.parametrize("column", ["body", "body_hash", "digest", "at", "kind"])
def test_a_changed_row_is_found_with_its_place(app, records, column):
    records.append("k", [b"one", b"two", b"three"])
    records.append("other", b"fine")
    app.store._writer.execute("drop trigger events_are_never_changed")
    changed = {
        "body": "cast('{\"nonce\":\"0\"}' || char(10) || 'TWO' as blob)",
        "at": "at + 1",
        "kind": "'record_erased'",
    }
    app.store._writer.execute(f"update events set {column} = {changed.get(column, 'zeroblob(32)')} where seq = 2")
    (problem,) = [one for one in app.verify().problems if one.task]
    assert (problem.task, problem.seq) == ("@records/space/k", 2)
    assert not records.verify("k").ok and records.verify("other").ok


@pytest.mark.parametrize(
    "harm",
    [
        "delete from events where seq = 1",
        "delete from events where seq = 2",
        "update logs set base = 1",
        "delete from blobs",
        "update blobs set data = zeroblob(9)",
        "update events set body = null where seq = 1",
    ],
)
def test_missing_rows_and_values_are_found(app, records, harm):
    records.append("k", b"one", blobs={"x": b"x" * 5000})
    records.append("k", [b"two", b"three"])
    for name in ("events_are_never_changed", "events_are_never_deleted"):
        app.store._writer.execute(f"drop trigger {name}")
    app.store._writer.execute(harm)
    assert not app.verify().ok and not records.verify("k").ok


def test_a_trimmed_log_without_its_tombstone_is_found(app, records):
    records.append("k", [b"one", b"two", b"three"])
    records.trim("k", keep=1)
    app.store._writer.execute("drop trigger tombstones_stay")
    app.store._writer.execute("delete from tombstones")
    (problem,) = records.verify("k").problems
    assert "no tombstone" in problem.why
