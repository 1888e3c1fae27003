"""ARCHITECTURE.md speaks of what there is: every package, path, function and test that it names exists."""

import re
from pathlib import Path

import pytest

from tests.shape import named, rooms
from tests.shape.named import ROOT
from tests.shape.test_contributing import RECIPES, anchor
from tests.shape.test_shape import SOURCE

TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
TESTS = sorted({one for one in named.quoted(TEXT) if one.startswith("test_")})
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| \[\w+\]\(CONTRIBUTING\.md#([\w-]+)\) \|$", TEXT, re.M)


def test_it_can_be_read_in_ten_minutes():
    """Words count, not lines: cells of many files made few lines, and were read by no one."""
    assert len(TEXT.split()) <= 2_000


@pytest.mark.parametrize("path", sorted(set(named.paths(TEXT))))
def test_a_path_that_is_named_exists(path):
    assert named.found_at(path) or path in ("queries.py", "rows.py", "store.py", "queues.py"), path


@pytest.mark.parametrize(
    "path", ["sqlite/queries.py", "postgres/server/queries.py", "sqlite/rows.py", "postgres/rows.py"]
)
def test_a_module_that_two_stores_have_is_in_both(path):
    assert named.found_at(f"store/{path}")


@pytest.mark.parametrize("place", sorted(set(named.places(TEXT))))
def test_a_function_that_is_named_exists(place):
    path, _, name = place.partition(":")
    assert named.defines(path, name), f"{path} has no {name}"


@pytest.mark.parametrize("name", TESTS)
def test_a_test_that_holds_an_invariant_exists(name):
    files = [*(ROOT / "tests").rglob("*.py"), *(SOURCE / "testing").rglob("*.py")]
    assert any(f"def {name}(" in path.read_text("utf-8") for path in files)


def test_it_names_every_package():
    missing = [room for room in rooms.ORDER if room.split("/")[0] in ("core", "store", "engine") and room not in TEXT]
    found = {room for room in missing if Path(room).name in TEXT}
    assert found == {*missing}, f"not on the map: {sorted({*missing} - found)}"


def test_every_change_has_a_recipe_and_every_recipe_is_for_a_change():
    assert {link for _, _, link in ROWS} == {anchor(title) for title in RECIPES}


@pytest.mark.parametrize(("change", "files", "link"), ROWS, ids=[change for change, _, _ in ROWS])
def test_a_recipe_names_every_file_of_its_row(change, files, link):
    recipe = next(text for title, text in RECIPES.items() if anchor(title) == link)
    missing = [path for path in named.paths(files) if path.rstrip("/") not in recipe]
    assert not missing, f"{change}: the recipe does not name {missing}"
