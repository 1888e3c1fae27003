"""The harness of the benchmarks: what it tells is what was measured, and it kills where it says."""

import json
import os
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
from benchmarks import page
from benchmarks.crashes import Tally, _spread
from benchmarks.plot import Series, line_plot
from benchmarks.table import Row, as_json, as_markdown, as_text, at_least, at_most, from_json, skipped

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks" / "peers"))  # its modules are scripts of another environment

SECTIONS = {
    "speed": [
        Row(name="quick", measured=10, unit="ms", compare=5, goal=at_most(3)),
        Row(name="slow", measured=10, unit="ms", compare=5, goal=at_most(1.5)),
        Row(name="many", measured=10, unit="steps/s", goal=at_least(20, "steps/s")),
        skipped("absent", "not installed"),
    ],
    "curve": [
        Row(name="at 10", measured=1, unit="ms", compare=2, beside="A peer", curve="resume", at=10),
        Row(name="at 100", measured=1, unit="ms", compare=3, beside="A peer", curve="resume", at=100),
    ],
}


def test_the_table_says_what_holds_what_is_missed_and_what_has_no_number():
    lines = as_text(SECTIONS).splitlines()
    assert next(line for line in lines if line.startswith("quick")).endswith("ok")
    assert next(line for line in lines if line.startswith("slow")).endswith("MISS")
    assert next(line for line in lines if line.startswith("absent")).endswith("skipped: not installed")
    assert "1 goals reached, 2 missed, 1 rows without a number" in lines
    assert "- missed: slow, 2.00× raw, ≤ 1.5×" in lines  # noqa: RUF001
    assert "- missed: many, 10 steps/s, ≥ 20 steps/s" in lines


def test_programs_and_pages_get_the_same_facts():
    facts = json.loads(as_json(SECTIONS))
    assert [row["ok"] for row in facts["speed"]] == [True, False, False, None]
    assert facts["speed"][0]["ratio"] == 2
    for line in as_markdown(SECTIONS, {}).splitlines():
        assert not line.startswith("|") or line.count("|") == 7, line


def test_a_plot_shows_every_point_of_every_line_and_names_its_axes():
    svg = line_plot(
        "Title <1>", "turns", "ms", [Series("a", [(10, 1), (100, 2)]), Series("b", [(10, 500)])], log_y=True
    )
    root = xml.fromstring(svg)
    tags = [element.tag.partition("}")[2] for element in root.iter()]
    assert tags.count("circle") == 3 and tags.count("polyline") == 2
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"Title <1>", "turns (log scale)", "ms (log scale)", "a: 2", "b: 500 (at 10)"} <= set(texts)


def test_a_history_that_begins_with_nothing_is_drawn_from_nought_on():
    svg = line_plot("Growth", "events", "steps/s", [Series("a", [(0, 90), (1e6, 100)])], log_y=False)
    places = [(float(one.get("cx")), float(one.get("cy"))) for one in xml.fromstring(svg).iter() if one.get("cx")]
    texts = [element.text for element in xml.fromstring(svg).iter() if element.tag.endswith("text")]
    assert places[0][0] < places[1][0] and places[0][1] > places[1][1]
    assert {"0", "500k", "1M", "events", "steps/s", "a: 100"} <= set(texts)


GROWING = [
    Row(name=f"{line}, {at}", measured=cost, unit="ms", curve="scaling", at=at, line=line)
    for line, costs in (("steps", (1, 2, 4, 8)), ("squares", (1, 4, 16, 64)))
    for at, cost in zip((10, 20, 40, 80), costs, strict=True)
]


def test_the_growth_table_has_a_row_for_each_thing_and_its_worst_doubling():
    table = page.growth_table(GROWING).splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == ["| steps", "| squares"]
    assert table[2].endswith("| 1 ms | 2 ms | 4 ms | 8 ms | 2.00× |")  # noqa: RUF001
    assert table[3].endswith("| 4.00× |")  # noqa: RUF001


def test_a_linear_cost_is_drawn_as_a_level_line():
    steps, squares = page.relative(GROWING)
    assert [y for _, y in steps.points] == [1, 1, 1, 1] and [x for x, _ in steps.points] == [1, 2, 4, 8]
    assert [y for _, y in squares.points] == [1, 2, 4, 8]


def test_no_line_of_a_plot_is_left_out():
    many = [Series(str(number), [(1, 1), (2, number)]) for number in range(1, 12)]
    svg = line_plot("Growth", "times", "times", many, log_y=False)
    assert sum(one.tag.endswith("polyline") for one in xml.fromstring(svg).iter()) == len(many)
    with pytest.raises(AssertionError, match="left out"):
        line_plot("Growth", "times", "times", [*many, *many], log_y=False)


def test_a_page_is_written_between_its_marks_and_nowhere_else(tmp_path):
    before = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    (tmp_path / "benchmarks.md").write_text(before, "utf-8")
    page.write(tmp_path, SECTIONS)
    after = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert "| quick |" in after and "Measured on 20" in after
    assert after.partition("<!-- machine -->")[0] == before.partition("<!-- machine -->")[0]
    assert {path.name for path in (tmp_path / "benchmarks").iterdir()} == {"figures.json", "resume.svg"}
    page.write(tmp_path, SECTIONS)
    assert (tmp_path / "benchmarks.md").read_text("utf-8").count("| quick |") == 1


def test_one_subject_measured_anew_leaves_the_others_as_they_were(tmp_path):
    before = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    (tmp_path / "benchmarks.md").write_text(before, "utf-8")
    order = [*SECTIONS, "more"]
    page.write(tmp_path, SECTIONS, SECTIONS)
    whole = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert from_json(as_json(SECTIONS)) == SECTIONS
    page.write(tmp_path, {"more": [Row(name="another", measured=1.0, unit="ms")]}, order)
    after = (tmp_path / "benchmarks.md").read_text("utf-8")
    table = whole.partition("<!-- table -->")[2].partition("| quick |")
    assert "| another |" in after and table[0] in after and "**more**, measured on 20" in after
    assert (
        after.partition("<!-- machine -->")[2].partition("<!-- end")[0]
        == (whole.partition("<!-- machine -->")[2].partition("<!-- end")[0])
    )
    page.write(tmp_path, {next(iter(SECTIONS)): next(iter(SECTIONS.values()))}, order)
    assert "**more**, measured on 20" in (tmp_path / "benchmarks.md").read_text("utf-8"), "it keeps its day"


def test_an_unknown_subject_is_refused_with_those_there_are():
    command = [sys.executable, "-m", "benchmarks", "sleeping"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "there is no subject 'sleeping'; use steps, postgres" in done.stderr


def test_points_come_in_an_order_that_is_spread_from_its_beginning():
    assert sorted(_spread(100)) == list(range(100))
    assert sorted(_spread(96)[:3]) == [0, 32, 64]


def test_a_tally_counts_points_not_deeds():
    tally = Tally("somebody")
    tally.all_points = 3
    tally.add({"killed": True, "repeated": ["pick", "pay"], "flagged": [], "lost": []})
    tally.add({"killed": True, "repeated": [], "flagged": ["pay"], "lost": ["pack"]})
    tally.add({"killed": False, "repeated": [], "flagged": [], "lost": []})
    assert (tally.where, tally.silent, tally.flagged, tally.lost) == ("2", 1, 1, 1)


@pytest.fixture
def killing():
    found = pytest.importorskip("killing")
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        pytest.skip("what is measured is written down, and those writes would be counted too")
    try:
        found.live(lambda: None)
    except found.Untraceable as error:
        pytest.skip(f"processes cannot be traced here: {error}")
    return found


def test_a_process_is_killed_at_each_of_its_durable_calls_and_at_no_other_place(killing, tmp_path):
    path = tmp_path / "notes.db"

    def note():
        connection = sqlite3.connect(path)
        connection.execute("insert into notes values (1)")
        connection.commit()

    def notes():
        connection = sqlite3.connect(path)
        found = connection.execute("select count(*) from notes").fetchone()[0]
        connection.close()
        return found

    connection = sqlite3.connect(path)
    connection.execute("create table notes (number)")
    connection.close()
    whole = killing.live(note)
    assert (whole.killed, whole.code) == (False, 0) and whole.calls > 3 and notes() == 1
    found = []
    for number in range(1, whole.calls + 1):
        for side in ("before", "after"):
            before = notes()
            end = killing.live(note, number, side)
            assert end == (True, 9, number)
            found.append(notes() - before)
    assert found == sorted(found) and set(found) == {0, 1}, "first nothing is there, then all of it"
    assert not killing.live(note, whole.calls + 100).killed


def test_a_failing_process_is_told_from_one_that_was_killed(killing, capfd):
    assert killing.live(lambda: 1 / 0) == (False, 1, 0)
    assert "ZeroDivisionError" in capfd.readouterr().err
