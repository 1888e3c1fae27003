"""Records on a server: cut connections, round trips, and names that are looked up by index."""

import time

import pytest

import holdfast
from holdfast import RecordWrite
from holdfast.core import names

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")


@pytest.mark.parametrize("how", ["before", "after", "late"])
@pytest.mark.parametrize("number", range(1, 20, 2))
def test_what_is_done_to_records_is_done_once_wherever_the_connection_was_cut(
    postgres_url, proxy, through, number, how
):
    """No append is there twice, no pop takes two, and a trim that was repeated takes no more."""
    with holdfast.open(through) as app, holdfast.open(postgres_url) as sure:
        records = app.records("space")
        records.append("k", [b"1", b"2"])
        proxy.cut(number, how)
        assert records.append("k", b"3") == 3
        assert records.append("k", b"4", blobs={"large": b"x" * 5000}) == 4
        assert records.pop("k").data == b"4"
        assert records.write([RecordWrite(key="k", data=b"5"), RecordWrite(key="l", data=[b"1", b"2"])]) == [
            [6],
            [1, 2],
        ]
        records.trim("k", keep=3)
        assert records.erase("k", [3]) == 1
        time.sleep(0.5 if how == "late" else 0)
        found = sure.records("space")
        assert proxy.cuts == 1
        assert [(one.seq, one.data) for one in found.read("k")] == [(2, b"2"), (6, b"5")] and found.head("k") == 7
        assert [one.data for one in found.read("l")] == [b"1", b"2"]
        assert sure.verify().problems == [] and sure.store.check() == [] and sure.stats().blobs == 0


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 8))
def test_a_key_that_is_dropped_over_a_cut_connection_can_be_dropped_again(postgres_url, proxy, through, number, how):
    with holdfast.open(through) as app, holdfast.open(postgres_url) as sure:
        records = app.records("space")
        records.append("k", b"1")
        proxy.cut(number, how)
        try:
            records.drop("k")
        except holdfast.StorePoisoned:  # whether it was done is not known; doing it again is harmless
            records.drop("k")
        assert sure.records("space").keys() == []
        assert records.append("k", b"2") == 2 and sure.verify().problems == []


def trips(proxy, work):
    found = []
    for _ in range(4):  # the first time it is prepared; and an answer may come in two pieces
        before = proxy.trips
        work()
        found.append(proxy.trips - before)
    return min(found[1:])


def test_appending_and_reading_are_one_round_trip_each(proxy, through):
    with holdfast.open(through) as app:
        records = app.records("space")
        records.append("k", b"first")
        cursor = records.changes("k").cursor
        large = {"x": b"x" * 5000}
        several = [RecordWrite(key="k", data=b"1"), RecordWrite(key="l", data=b"1")]
        records.write(several)
        assert trips(proxy, lambda: records.append("k", b"x")) == 1
        assert trips(proxy, lambda: records.append("k", [b"x", b"y"])) == 1
        assert trips(proxy, lambda: records.append("k", b"x", blobs=large)) == 1
        assert trips(proxy, lambda: records.write(several)) == 1
        assert trips(proxy, lambda: records.read("k", last=3)) == 1
        assert trips(proxy, lambda: records.read("k")) == trips(proxy, lambda: records.read("l", last=99)) == 1
        assert trips(proxy, lambda: records.changes("k", cursor)) == 1
        assert trips(proxy, lambda: records.keys()) == 1
        assert trips(proxy, lambda: records.latest()) == 1


def test_keys_are_found_by_index_however_many_there_are(postgres_url):
    """A prefix that few names have reads few names."""
    with holdfast.open(postgres_url) as app:
        store = app.store
        names_ = [names.record_log("many", f"{n:05}") for n in range(3000)]
        writes = [RecordWrite(key=names.record_key(name)[1], data=b"x") for name in names_]
        for at in range(0, len(writes), 500):
            app.records("many").write(writes[at : at + 500])
        with psycopg.connect(postgres_url, autocommit=True) as raw:
            raw.execute("analyze")
            raw.execute("set search_path = holdfast")
            plan = raw.execute(
                "explain (analyze, format json) select name from logs where name >= %s and name < %s"
                " order by name limit 100",
                ("@records/many/0299", "@records/many/029:"),
            ).fetchone()[0][0]["Plan"]
        assert "Index" in str(plan) and "Seq Scan" not in str(plan)
        assert len(store.logs(prefix="@records/many/0299")) == 10
