"""Every code has a page, made of the code, with an example that really raises it."""

import os
import re

import pytest
from tools.reference.errors import HOW

from holdfast.cli.failures.explanation import known
from holdfast.store.sqlite import file
from tests.docs.error_pages import PAGES, example, raised, tells
from tests.docs.typist import blocks

TYPED = {"usage", "unexpected"}
"""Codes of the command line itself: their pages are typed in, as all pages with commands are."""


def test_every_code_has_a_page_and_every_page_a_code():
    assert sorted(page.stem for page in PAGES.glob("*.md")) == known()
    listed = re.findall(r"\]\(errors/(.+)\.md\)", (PAGES.parent / "errors.md").read_text("utf-8"))
    assert listed == known()


@pytest.mark.parametrize("code", sorted(TYPED))
def test_errors_of_the_command_line_itself_are_typed_in(code):
    typed = "".join(block.text for block in blocks(PAGES / f"{code}.md") if block.language == "console")
    assert f"error[{code}]" in typed


@pytest.mark.parametrize("code", [code for code in known() if code not in {*TYPED, "holdfast"}])
def test_the_example_of_a_page_raises_its_error_and_is_told_as_the_page_says(code, tmp_path, monkeypatch):
    monkeypatch.setattr(file, "BUSY_SECONDS", 0.2)
    text = (PAGES / f"{code}.md").read_text("utf-8")
    assert text.count(HOW) == 1
    source, page_says = example(PAGES / f"{code}.md")
    got, told = raised(source, os.path.realpath(tmp_path))
    assert got == code
    assert tells(page_says, told), "python -m tests.docs.error_pages"
