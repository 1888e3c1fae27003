"""docs/llms.txt: the pages of the docs, listed for language models in the order of the site. See `__main__.py`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_INTRO = """# Holdfast

> The durable state layer for AI agents, in Python. A task is its log: every step, decision and answer is an immutable
> event, and state is computed by replaying them. Kill the process at any instruction, and the task resumes.

`import holdfast`; `app = holdfast.open("holdfast.db")` (SQLite, PostgreSQL or memory:). An agent is `@agent def f(task:
Task, …)`; `task.step(fn, …)` is done once, `task.call(tool, …)` by the tool's effect: `@tool(effect="read" |
"idempotent" | "once" | "transaction")`. `app.run(agent, input, id=…)` starts or resumes a task. Code between
verbs is executed again on replay: no clock, no randomness, nothing slow there. Every example in these pages is tested.
"""


def llms_page(folder: Path) -> str:
    """docs/llms.txt, of the pages in a folder and the navigation beside it."""
    parts = [_INTRO]
    for title, what in _entries(tomllib.loads((folder.parent / "zensical.toml").read_text("utf-8"))["project"]["nav"]):
        if isinstance(what, str):
            parts.append(_line(folder, title, what) + "\n")
        else:
            parts.append(f"## {title}\n")
            parts.append("\n".join(_line(folder, name, page) for name, page in _entries(what)) + "\n")
    return "\n".join(parts)


def _entries(nav: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for entry in nav:
        yield from entry.items()


def _line(folder: Path, title: str, page: str) -> str:
    return f"- [{title}]({page}): {_first_sentence((folder / page).read_text('utf-8'))}"


def _first_sentence(text: str) -> str:
    """Return the first sentence of a page as plain text; skip the line of a decision that names its packages."""
    parts = (part for part in text.split("\n\n")[1:] if not part.startswith("**Where:**"))
    first = next((part for part in parts if part[:1].isalpha() or part[:1] in "`*"), "")
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(first.split())).replace("**", "")
    return re.split(r"(?<=\.) ", plain)[0].rstrip(".:") + "."
