"""Lists of contents: a page that is long begins with links to its sections. See `__main__.py`."""

from __future__ import annotations

import re
from pathlib import Path

LONG = 200
"""How many lines a page may have without a list."""

_MARK = "**On this page:** "
_LIST = re.compile(rf"^{re.escape(_MARK)}.*\n\n", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def write_contents(folder: Path) -> None:
    """Renew the list of every page that needs one, and take it from those that don't."""
    for path in sorted(folder.rglob("*.md")):
        before = path.read_text("utf-8")
        after = with_contents(before)
        if after != before:
            path.write_text(after, "utf-8")


def with_contents(page: str) -> str:
    """Return a page with its list of contents before its first section, if it is long."""
    page = _LIST.sub("", page, count=1)
    titles = _SECTION.findall(_CODE.sub("", page))
    if page.count("\n") <= LONG or not titles:
        return page
    links = " · ".join(f"[{re.sub('[`*]', '', title)}](#{_anchor(title)})" for title in titles)
    at = page.index(f"\n## {titles[0]}\n") + 1
    return f"{page[:at]}{_MARK}{links}\n\n{page[at:]}"


def _anchor(title: str) -> str:
    """Return where a heading can be linked to, as GitHub and the site name it."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", title)
    return re.sub(r"[^\w\s-]", "", text.lower()).strip().replace(" ", "-")
