"""ARCHITECTURE.md speaks of what there is: every package, path, function and test that it names exists."""

import ast
import re
from pathlib import Path

import pytest

from tests.shape import rooms
from tests.shape.test_shape import SOURCE, tree_of

ROOT = SOURCE.parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
PATHS = [one for one in QUOTED if re.fullmatch(r"[a-z_]+(/[a-z_]+)+(\.py)?/?", one)]
PLACES = [one for one in QUOTED if re.fullmatch(r"[a-z_/]+\.py:[\w.]+", one)]
TESTS = [one for one in QUOTED if one.startswith("test_")]


def test_it_can_be_read_in_ten_minutes():
    assert TEXT.count("\n") <= 150


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_named_exists(path):
    assert (SOURCE / path).exists() or (ROOT / path).exists() or (SOURCE / f"{path}.py").exists()


@pytest.mark.parametrize("place", PLACES)
def test_a_function_that_is_named_exists(place):
    path, _, name = place.partition(":")
    body = tree_of(SOURCE / path).body
    for part in name.split("."):
        found = [one for one in body if getattr(one, "name", "") == part]
        assert found, f"{path} has no {part}"
        body = getattr(found[0], "body", [])
    assert isinstance(found[0], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


@pytest.mark.parametrize("name", TESTS)
def test_a_test_that_holds_an_invariant_exists(name):
    files = [*(ROOT / "tests").rglob("*.py"), *(SOURCE / "testing").rglob("*.py")]
    assert any(f"def {name}(" in path.read_text("utf-8") for path in files)


def test_it_names_every_package():
    missing = [room for room in rooms.ORDER if room.split("/")[0] in ("core", "store", "engine") and room not in TEXT]
    named = {room for room in missing if Path(room).name in TEXT}
    assert named == {*missing}, f"not on the map: {sorted({*missing} - named)}"
