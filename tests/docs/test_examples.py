"""Every Python block in the docs runs, and prints what its comments say."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RAISING = ROOT / "docs" / "errors"
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent != RAISING)]
"""Examples that raise an error are executed by test_error_pages.py."""

HEAVY = {"google-adk.md": "google.adk", "claude-agent-sdk.md": "claude_agent_sdk"}
"""Pages whose frameworks are installed in an environment of their own: make test-adapters."""


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)


def expected(block):
    """The comment lines that stand after a print: what it prints."""
    return [line[2:] for line in block.splitlines() if line.startswith("# ")]


@pytest.mark.filterwarnings(r"ignore:.*(RunnableWithMessageHistory|Conversation\w*Memory).*:DeprecationWarning")
@pytest.mark.parametrize("page", [*PAGES, RAISING / "holdfast.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run_in_order_and_print_what_they_say(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    if page.name in HEAVY:
        pytest.importorskip(HEAVY[page.name], reason="make test-adapters")
    if 'os.environ["DATABASE_URL"]' in page.read_text("utf-8"):
        monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("postgres_url"))
    names = {}
    for block in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, page.name, "exec"), names)
        assert printed.getvalue().splitlines() == expected(block)
    if "app" in names:
        names["app"].close()
