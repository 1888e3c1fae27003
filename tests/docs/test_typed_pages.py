"""Every page with commands in it is typed in, in order, in an empty folder, and prints what the page shows."""

from pathlib import Path

import pytest

from tests.docs.typist import Typist, blocks, same, shows

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if any(block.language == "console" for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_typed_in_order_prints_what_it_shows(page, tmp_path, request):
    (tmp_path / "here").mkdir()
    given = {}
    if "$DATABASE_URL" in page.read_text("utf-8"):
        databases = request.getfixturevalue("postgres_databases")
        given["DATABASE_URL"] = databases.new(empty=True)
        request.addfinalizer(lambda: databases.drop(given["DATABASE_URL"]))
        given["columns"] = 140  # the address of a test's database is longer than the page's
    typed = []
    for block, command, expected, printed in Typist(tmp_path / "here", **given).follow(page):
        assert shows(expected, printed), "\n".join([f"line {block.line}: $ {command}", *printed])
        typed.append(command)
    assert typed


def test_of_the_first_page_nothing_is_left_untyped_but_the_installation():
    first = blocks(DOCS / "first-ten-minutes.md")
    left = [block.text for block in first if block.language != "console" and not block.title]
    assert left == ["pip install 'path/to/holdfast[testing]'\n"]
    assert sum(block.language == "console" for block in first) > 10


def test_what_differs_from_time_to_time_is_all_that_is_overlooked():
    assert same("✓ done   draft#1   12 ms  3 lines") == same("✓ done draft#1 1.04 s  3 lines")
    assert same("  4  1.007  ✓ done") == same("  4     0.993  ✓ done")
    assert same("claimed  process 17") == same("claimed  process 4711")
    assert shows(["a", "…", "schema …"], ["a", "b", "c", "schema 2"]) and shows(["…"], [])
    assert shows(["done  9 ms  no answ…"], ["done  10 ms  no ans…"]) and not shows(["no answ…"], ["no harm…"])
    assert not shows(["a", "…", "schema …"], ["a", "b", "c"]) and not shows(["a"], ["a", "b"])
    for one, other in (("seq 4", "seq 5"), ("1 passed", "2 passed"), ("book#1", "book#2"), ("exit 1", "exit 6")):
        assert same(one) != same(other)
