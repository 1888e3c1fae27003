"""CONTRIBUTING.md speaks of what there is: the paths, targets and names that it names exist."""

import re

import pytest

from tests.shape import named
from tests.shape.named import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
RECIPES = dict(
    part.removeprefix("### ").split("\n", 1)
    for part in re.split(r"^(?=### )", TEXT.partition("\n## Recipes\n")[2], flags=re.M)[1:]
)
STEPS = [(title, step) for title, text in RECIPES.items() for step in re.findall(r"^\d+\. .+$", text, re.M)]
BUILT = {"site/"}


def anchor(title):
    """What a link to a heading ends with."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", sorted(set(named.paths(TEXT)) - BUILT))
def test_a_path_that_it_names_exists(path):
    assert named.found_at(path) or path == "show_all_.py", path


def test_the_targets_it_names_are_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make ([a-z-]+)`", TEXT):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_its_links_lead_somewhere():
    headings = {anchor(title) for title in re.findall(r"^#+ (.+)$", TEXT, re.M)}
    assert {*re.findall(r"\]\(#([\w-]+)\)", TEXT)} <= headings


@pytest.mark.parametrize(("title", "step"), STEPS, ids=[f"{title} {step.split('.')[0]}" for title, step in STEPS])
def test_what_a_step_of_a_recipe_names_is_in_a_file_that_it_names(title, step):
    """So a name that is moved or renamed is noticed here."""
    files = [path for path in named.paths(step) if named.found_at(path)]
    lost = [one for one in named.names(step) if not any(named.has_word(path, one) for path in files)]
    assert not lost or lost == ["show_all_"], f"{lost} is in none of {files}"


@pytest.mark.parametrize("title", RECIPES)
def test_the_steps_of_a_recipe_are_numbered(title):
    numbers = [int(step.split(".")[0]) for other, step in STEPS if other == title]
    assert numbers == list(range(1, len(numbers) + 1)) and numbers
