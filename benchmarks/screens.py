"""The page (`holdfast ui`): its server among 100,000 tasks beside 100, and a task of 10,000 events beside one of 33.

The server's part is time of the processor, and statements. The browser's part is a real Chromium on a real page: script
time as the browser itself counts it, nodes, bytes, and how soon an event that is committed elsewhere is on screen.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import holdfast
from benchmarks.bench import Absent, Bench
from benchmarks.reading import fill
from benchmarks.table import Row, at_most
from benchmarks.workload import best, say
from holdfast import events as ev
from holdfast.core import codec
from holdfast.engine.app import App

FEW, MANY = 100, 100_000
SMALL, MIDDLE, LONG = 33, 400, 10_000  # the rows of a small task fit on the screen, and do not scroll
ROUNDS = 5
PASSES = 3
MOVES = 40
SCROLLS = 40
TABS = 50
SIGNALS = 20
IDLE_SECONDS = 2.0
KB = 1024

LISTS: dict[str, tuple[str, ...]] = {
    "first paint of the list": ("/about", "/tasks", "/tasks/counts", "/rates"),
    "the list by status": ("/tasks?q=status%3Acompleted",),
    "the inbox, 50 entries": ("/inbox",),
    "the audit": ("/audit",),
}
TASK = ("", "/steps", "/rows?limit=5000", "/rows?limit=5000&after=5000")


def rows(bench: Bench) -> list[Row]:
    """A row for each goal of the page."""
    try:
        from playwright import sync_api  # noqa: F401
    except ImportError as error:
        raise Absent(f"no {error.name}") from None
    say("page")
    store = bench.place / "long.db"
    with holdfast.open(store, durability="process") as app:
        _write(app, "small", SMALL)
        _write(app, "middle", MIDDLE)
        _write(app, "long", LONG)
        made = [*_lists(bench.place), *_weights(app), *_tabs(bench.place)]
        with _browser(store) as (browser, page):
            return [*made, *_opening(browser, page), *_moving(browser, page), *_live(browser, page, app)]


def _write(app: App, id: str, count: int) -> None:
    """A task of so many events: steps, state, facts and notes, as an agent that reads pages would write them."""
    app.start("reader", id=id)
    app.append(id, ev.TaskClaimed(holder="1-benchmark"))
    kinds: tuple[Callable[[int], ev.Event], ...] = (
        lambda n: ev.StepCompleted(key=f"read#{n}", name="read", result=codec.pack(f"page {n} " * 4), input={}),
        lambda n: ev.StateSet(name="count", value=codec.pack(n)),
        lambda n: ev.NoteSet(key=f"note-{n % 40}", value=codec.pack(n)),
        lambda n: ev.FactLearned(key=f"fact-{n % 60}", value=codec.pack({"at": n}), source="read"),
    )
    for first in range(0, count - 2, 500):
        app.append(id, *(kinds[n % 4](n) for n in range(first, min(first + 500, count - 2))))
    assert app.head(id) == count


# The server


def _lists(place: Path) -> Iterator[Row]:
    """Time of the processor and statements of what the first screens ask for."""
    from tests.web.statements import Asking, counted

    with counted() as sent, ExitStack() as stack:
        apps = {
            size: stack.enter_context(holdfast.open(place / f"{size}.db", durability="process")) for size in (FEW, MANY)
        }
        for size, app in apps.items():
            fill(app, size)
        for name, paths in LISTS.items():
            found = best(ROUNDS, few=lambda p=paths: _cpu(apps[FEW], p), many=lambda p=paths: _cpu(apps[MANY], p))
            yield _ratio(f"{name}, {MANY:,} tasks", found["many"] * 1e3, found["few"] * 1e3, "ms", f"of {FEW}", 2)
        asking = Asking(apps[MANY])
        sent.taken()
        asking.get(*LISTS["first paint of the list"])
        count = len(sent.taken())
        asking.close()
        yield Row(name="statements of the first paint of the list", measured=count, goal=at_most(6, ""))


def _cpu(app: App, paths: tuple[str, ...]) -> float:
    """The time of the processor of one visit, with nothing kept of the one before."""
    from tests.web.statements import Asking

    asking = Asking(app)
    began = time.process_time()
    asking.get(*paths)
    took = time.process_time() - began
    asking.close()
    return took


def _weights(app: App) -> Iterator[Row]:
    from tests.web.loads import first_loads
    from tests.web.statements import Asking

    from holdfast.web.page import assets

    asking = Asking(app)
    long = asking.weight(*(f"/tasks/long{path}" for path in TASK))
    small = asking.weight(*(f"/tasks/small{path}" for path in TASK[:-1]))
    asking.close()
    yield Row(
        name=f"bytes of a task of {LONG:,} events, compressed",
        measured=long / KB,
        unit="KB",
        compare=small / KB,
        beside=f"of {SMALL}",
        goal=at_most(150, "KB"),
    )
    heaviest = max(sum(len(assets()[name].packed or b"") for name in one) for one in first_loads().values())
    every = sum(len(one.packed) for one in assets().values() if one.packed is not None)
    fonts = sum(len(one.body) for one in assets().values() if one.packed is None)
    yield Row(
        name="scripts and styles of the heaviest first screen, compressed",
        measured=heaviest / KB,
        unit="KB",
        compare=every / KB,
        beside="all files",
        goal=at_most(60, "KB"),
    )
    yield Row(name="its fonts", measured=fonts / KB, unit="KB", goal=at_most(70, "KB"))


def _tabs(place: Path) -> Iterator[Row]:
    """Statements while tabs listen to a task that gets events, and after the last of them has left."""
    from tests.web.statements import counted

    with counted() as sent:
        found = {tabs: _listened(place / f"tabs-{tabs}.db", tabs, sent) for tabs in (1, TABS)}
    one, many = found[1], found[TABS]
    yield _ratio(f"statements for {TABS} tabs on one task, ten events", many[0], one[0], "", "for one", 1.2)
    yield Row(
        name=f"statements in {IDLE_SECONDS:g} s after the last tab has left", measured=many[1], goal=at_most(0, "")
    )


def _listened(path: Path, tabs: int, sent: Any) -> tuple[int, int]:
    from tests.web.statements import listening

    from holdfast.web.feed import Feeds
    from holdfast.web.requests.site import Settings, Site

    def signals(app: App) -> None:
        sent.taken()
        for number in range(10):
            app.signal("small", "last" if number == 9 else "more", number)
            time.sleep(0.1)

    async def listen(app: App) -> tuple[int, int]:
        await listening(Feeds(Site(app, Settings(), None)), "small", tabs, lambda: signals(app))
        during = len(sent.taken())
        await asyncio.sleep(IDLE_SECONDS)
        return during, len(sent.taken())

    with holdfast.open(path, durability="process") as app:
        _write(app, "small", SMALL)
        return asyncio.run(listen(app))


# The browser


@contextmanager
def _browser(store: Path) -> Iterator[tuple[Any, Any]]:
    from playwright import sync_api
    from tests.web.browser import FLAGS, chromium
    from tests.web.world import page_of

    with page_of(store) as page, sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        except sync_api.Error as error:
            raise Absent(f"no Chromium: {str(error).splitlines()[0]}") from None
        yield browser, page
        browser.close()


PAINTED = """new MutationObserver((_, watching) => {
  if (!document.querySelector("li.wrow")) return;
  watching.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.painted = performance.now(); }));
}).observe(document, {childList: true, subtree: true});"""
HEARD = """window.heard = {};
new MutationObserver(() => {
  const slider = document.getElementById("seq");
  if (slider && !(slider.max in heard)) heard[slider.max] = Date.now();
}).observe(document, {childList: true, subtree: true, attributes: true});"""


@contextmanager
def _tab(browser: Any, page: Any, id: str) -> Iterator[Any]:
    from tests.web.browser import tab

    with tab(browser, page, "/audit") as opened:  # logged in: what is measured is a visit like any other
        opened.locator("h1").first.wait_for()
        opened.add_init_script(PAINTED + HEARD)
        opened.goto(f"{page.url}/tasks/{id}")
        opened.locator("li.wrow").nth(3).wait_for()
        opened.locator(".live:has-text('Live')").wait_for()
        yield opened


def _opening(browser: Any, page: Any) -> Iterator[Row]:
    """From the address to the first rows on screen."""
    nodes: dict[str, int] = {}

    def painted(id: str) -> float:
        with _tab(browser, page, id) as opened:
            nodes[id] = opened.locator(".wrow, .wrow *").count()
            return float(opened.evaluate("window.painted"))

    found = best(ROUNDS, long=lambda: painted("long"), small=lambda: painted("small"))
    yield _ratio(f"until a task of {LONG:,} events is painted", found["long"], found["small"], "ms", f"of {SMALL}", 4)
    yield Row(
        name="nodes of its rows",
        measured=nodes["long"],
        compare=nodes["small"],
        beside=f"of {SMALL}",
        goal=at_most(400, ""),
    )


def _moving(browser: Any, page: Any) -> Iterator[Row]:
    """Script time of one move of the slider, and of one scroll: the slowest but for a twentieth, in the best pass."""
    asked: list[str] = []
    slid: dict[str, float] = {}
    scrolled: dict[str, float] = {}
    for id, block in {
        "small": range(1, SMALL),
        "middle": range(1, MIDDLE),
        "long": range(LONG // 2 + 2, LONG // 2 + 500),
    }.items():
        passes = [random.Random(seed).choices(block, k=MOVES) for seed in range(PASSES)]
        with _tab(browser, page, id) as opened:
            opened.on("request", lambda one: asked.append(one.url))
            _slide(opened, passes[0][:5])
            slid[id] = min(_p95(_slide(opened, seqs)) for seqs in passes)
            scrolled[id] = min(_p95(_scroll(opened)) for _ in passes)
    questions = sum("/tasks/long/" in one for one in asked)
    yield _ratio("script time of a move of the slider, p95", slid["long"], slid["small"], "ms", f"of {SMALL}", 3)
    yield _ratio("script time of a scroll, p95", scrolled["long"], scrolled["middle"], "ms", f"of {MIDDLE}", 3)
    yield Row(name=f"questions for {PASSES * MOVES} moves within 500 seqs", measured=questions, goal=at_most(2, ""))


def _slide(opened: Any, seqs: list[int]) -> list[float]:
    def move(seq: int) -> None:
        opened.locator("#seq").fill(str(seq))
        opened.locator("h2", has_text=f"State at seq {seq}").wait_for()

    return _scripted(opened, [lambda seq=seq: move(seq) for seq in seqs])


def _scroll(opened: Any) -> list[float]:
    there = "document.querySelector('.wscroll') || document.scrollingElement"
    move = "region.scrollTop = top % Math.max(1, region.scrollHeight - region.clientHeight)"
    frames = "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"

    def to(top: int) -> None:
        opened.evaluate(f"async (top) => {{ const region = {there}; {move}; {frames} }}", top)

    return _scripted(opened, [lambda top=number * 431: to(top) for number in range(SCROLLS)])


def _scripted(opened: Any, actions: list[Callable[[], None]]) -> list[float]:
    """The script time of each action in milliseconds, as the browser counts it."""
    session = opened.context.new_cdp_session(opened)
    session.send("Performance.enable")

    def spent() -> float:
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["ScriptDuration"]) * 1e3

    found: list[float] = []
    for action in actions:
        before = spent()
        action()
        found.append(spent() - before)
    return found


def _live(browser: Any, page: Any, app: App) -> Iterator[Row]:
    """From the commit of an event in this process to its place on the screen of another."""
    from holdfast.web.feed import LOOK_SECONDS

    with _tab(browser, page, "small") as opened:
        times: list[float] = []
        for number in range(SIGNALS):
            app.signal("small", "live", number)
            committed, head = time.time() * 1e3, app.head("small")
            opened.locator(f"#seq[max='{head}']").wait_for()
            times.append(float(opened.evaluate(f"window.heard[{head}]")) - committed)
        yield _ratio(
            f"from commit to screen, median of {SIGNALS}",
            statistics.median(times),
            LOOK_SECONDS * 1e3,
            "ms",
            "a look",
            3,
        )


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


def _ratio(name: str, measured: float, compare: float, unit: str, beside: str, most: float) -> Row:
    return Row(name=name, measured=measured, unit=unit, compare=compare, beside=beside, goal=at_most(most))
