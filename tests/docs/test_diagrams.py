"""The diagrams are what the script draws, are valid, and fetch nothing."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tools import diagrams

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_a_diagram_is_what_the_script_draws(name):
    drawn, kept = diagrams.DIAGRAMS[name]().svg(), (DOCS / "pictures" / name).read_text("utf-8")
    assert drawn == kept, "python -m tools.diagrams docs/pictures"
    root = ElementTree.fromstring(kept)
    assert root.findtext("{*}title") and root.findtext("{*}desc"), "screen readers need both"
    assert "prefers-color-scheme: dark" in kept
    assert "http" not in kept.replace("http://www.w3.org/2000/svg", "") and "<script" not in kept


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_a_diagram_stands_on_a_page(name):
    assert any(f"pictures/{name})" in page.read_text("utf-8") for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_everything_in_a_diagram_lies_within_it(name):
    root = ElementTree.fromstring(diagrams.DIAGRAMS[name]().svg())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for rect in root.iter("{*}rect"):
        x, y = float(rect.attrib["x"]), float(rect.attrib["y"])
        assert 0 <= x <= x + float(rect.attrib["width"]) <= width
        assert 0 <= y <= y + float(rect.attrib["height"]) <= height
    for text in root.iter("{*}text"):
        assert 0 < float(text.attrib["x"]) < width and 0 < float(text.attrib["y"]) < height
