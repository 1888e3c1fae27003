"""A page over every namespace of a store (`holdfast ui --all-namespaces`): one of all, and a whole page for each.

The page of a namespace lies below `/ns/{name}`, that of tasks without one below `/ns/-`. It is the page that
`--namespace` gives. What lies above them lists tasks, inbox, workers and audit of all. See decision 0105.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import quote, unquote

from msgspec.structs import replace

from holdfast import App
from holdfast.web.access.gate import Denied, Gate, Scope
from holdfast.web.asgi import API, ROUTES, PageApp, PageRoute, Receive, Send
from holdfast.web.reading.everywhere import HANDLERS, UNNAMED, named
from holdfast.web.requests.site import Site, Spread

MOST_NAMESPACES = 200
"""How many are listed together, by name. Any other has its own page, and can be filtered by; the page says so."""

MOST_PAGES = 256
NAMES_SECONDS = 2.0

_SHARED = (
    "/",
    "/inbox",
    "/workers",
    "/audit",
    "/static/{version}/{name}",
    "/healthz",
    f"{API}/session",
    f"{API}/link",
    f"{API}/stream",
)
OVERVIEW = (
    *(one for one in ROUTES if one.path in _SHARED),
    *(PageRoute("GET", f"{API}{path}", "look", handler) for path, handler in HANDLERS.items()),
)
"""The routes above the pages of namespaces."""


class NamespaceSite(Site):
    """The site of one namespace. Its app is opened when it is first asked, by a person who may."""

    def __init__(self, whole: Site, namespace: str, open_app: Callable[[str], App]) -> None:
        settings = replace(whole.settings, namespace=namespace, one_of_many=True)
        super().__init__(whole.app, settings, whole.sessions, whole.known)
        self._whole, self._open_app = whole, open_app
        self._opening = threading.Lock()
        self._own: App | None = None

    @property
    def app(self) -> App:
        """The app of this namespace; refused if no task is in it."""
        whole = self._whole.app  # which notices that the store is gone
        with self._opening:
            if self._own is None:
                if self.settings.namespace not in whole.namespaces():
                    told = f"There is no task in namespace {named(self.settings.namespace)!r}."
                    raise Denied(404, "not-found", told, "See the list of all namespaces.")
                self._own = self._open_app(self.settings.namespace) if self.settings.namespace else whole
            return self._own


class NamespacesApp:
    """An ASGI app: the list of all namespaces, and below it the page of each."""

    def __init__(self, site: Site, gate: Gate, open_app: Callable[[str], App]) -> None:
        self.site = site
        self._gate, self._open_app = gate, open_app
        self._pages: OrderedDict[str, PageApp] = OrderedDict()
        self._lock = threading.Lock()
        site.spread, site.site_of = self._spread, self._site_of
        self._overview = PageApp(site, gate, OVERVIEW)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inside = _inside(scope) if scope["type"] == "http" else None
        if inside is None:
            await self._overview(scope, receive, send)
        else:
            name, below = inside
            await self._page(name)(below, receive, send)

    def _page(self, name: str) -> PageApp:
        with self._lock:
            made = self._pages.pop(name, None) or PageApp(NamespaceSite(self.site, name, self._open_app), self._gate)
            self._pages[name] = made
            while len(self._pages) > MOST_PAGES:  # anyone can name one; an app is opened only for those that exist
                self._pages.popitem(last=False)
            return made

    def _names(self) -> list[str]:
        return self.site.kept("namespaces", NAMES_SECONDS, self.site.app.namespaces)

    def _spread(self) -> Spread:
        names = self._names()
        sites = tuple(self._page(name).site for name in names[:MOST_NAMESPACES])
        return Spread(sites, max(0, len(names) - MOST_NAMESPACES))

    def _site_of(self, namespace: str) -> Site | None:
        return self._page(namespace).site if namespace in self._names() else None


def _inside(scope: Scope) -> tuple[str, Scope] | None:
    """The namespace that a path names, and the request as the page of that namespace gets it."""
    root = quote(scope.get("root_path", ""))
    raw = (scope.get("raw_path") or quote(scope["path"]).encode()).decode("latin-1")
    parts = raw.partition("?")[0].removeprefix(root).split("/", 3)
    if len(parts) < 4 or parts[1] != "ns":
        return None
    name = unquote(parts[2])
    return ("" if name == UNNAMED else name), {**scope, "root_path": f"{unquote(root)}/ns/{name}"}
