"""Finishes and looks at a built site: `python -m tests.docs.site docs site`.

The pages are put beside it as Markdown, where llms.txt looks for them. Then: no page fetches anything from elsewhere,
and no link is dead.
"""

import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
_FETCHING = {"stylesheet", "preconnect", "dns-prefetch", "preload", "prefetch", "icon", "manifest"}
_URL = re.compile(r"""(?:@import\s+|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """What one page links to, fetches and can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.fetched, self.ids = [], [], set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given.get("id"), given.get("name")}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and set((given.get("rel") or "").split()) & _FETCHING:
            self.fetched.append(given.get("href") or "")
        if tag in _FETCHED and given.get(_FETCHED[tag]):
            self.fetched.append(given[_FETCHED[tag]])


def finish(docs, site):
    """Put the pages as they were written beside those that were made of them."""
    for page in docs.rglob("*.md"):
        shutil.copy(page, site / page.relative_to(docs))


def problems(site):
    """Everything that is wrong with a site, a line each."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site} has no pages"
    for path, page in pages.items():
        for one in page.fetched:
            if urlsplit(one).netloc:
                yield f"{path.name} fetches {one}"
        for link in page.links:
            yield from _dead(path, link, pages, site)
    for path in site.rglob("*.css"):
        yield from (f"{path.name} fetches {one}" for one in _URL.findall(path.read_text("utf-8")))


def _dead(path, link, pages, site):
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or path.name == "404.html":  # which is shown at any address
        return
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        yield f"{path.relative_to(site.resolve())} links to {link}, which is not there"
    elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        yield f"{path.relative_to(site.resolve())} links to {link}, which has no such place"


if __name__ == "__main__":
    finish(Path(sys.argv[1]), Path(sys.argv[2]))
    found = list(problems(Path(sys.argv[2])))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
