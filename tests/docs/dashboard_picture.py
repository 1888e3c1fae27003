"""Draws docs/pictures/dashboard.svg of docs/dashboards/holdfast.json and the metrics of a real worker.

No Grafana can be installed from a package index, so this is not a screenshot: it shows the panels where Grafana puts
them, each with what its queries find. `python -m tests.docs.dashboard_picture` writes it anew.
"""

import json
import re
import sys
import tempfile
from html import escape
from pathlib import Path

import holdfast
from holdfast import Retry, agent, tool

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD, PICTURE = DOCS / "dashboards" / "holdfast.json", DOCS / "pictures" / "dashboard.svg"
CELL, ROW, GAP, TOP = 42, 34, 8, 50
SERIES = 5
"""How many series a panel shows."""
SAMPLE = re.compile(r"^([a-z_]+)(\{.*\})? ([0-9.e+-]+)$")


def measured():
    """Metrics of some tasks: two that end, one with a retry, one that waits for a person, one for a worker."""
    tries = []

    def look():
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError
        return 1

    @tool(effect="once")
    def pay(euros: int) -> str:
        return "paid"

    @agent
    def shop(task):
        task.step(look, retry=Retry(attempts=2, first="1ms"))
        usage = {"prompt_tokens": 90, "completion_tokens": 10}
        task.step(lambda: {"role": "assistant", "content": "hi", "model": "small-1", "usage": usage}, name="model")
        return task.call(pay, euros=7)

    @agent
    def asking(task):
        return task.ask("who?")

    with tempfile.TemporaryDirectory() as folder, holdfast.open(f"{folder}/holdfast.db", metrics=True) as app:
        for number in range(2):
            app.run(shop, id=f"order-{number}")
        app.run(asking, id="asking")
        app.start(shop, id="waiting")
        return app.metrics()


def series(text, query):
    """The samples that the metrics named in a query have."""
    names = set(re.findall(r"holdfast_[a-z_]+", query))
    found = [SAMPLE.match(line) for line in text.splitlines()]
    return [one for one in found if one and one[1] in names and 'le="' not in (one[2] or "")]


def drawn(dashboard, text):
    """The picture: a box for each panel, in the grid of the dashboard."""
    height = TOP + max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in dashboard["panels"]) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * CELL} {height}" font-family="sans-serif">',
        f'<rect width="{24 * CELL}" height="{height}" fill="#111217"/>',
        f'<text x="{GAP}" y="32" fill="#d8d9da" font-size="20">{escape(dashboard["title"])}</text>',
    ]
    for panel in dashboard["panels"]:
        parts += _panel(panel, text)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel, text):
    place = panel["gridPos"]
    x, y = place["x"] * CELL + GAP / 2, TOP + place["y"] * ROW + GAP / 2
    wide, high = place["w"] * CELL - GAP, place["h"] * ROW - GAP
    yield f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="3" fill="#181b1f" stroke="#2c3235"/>'
    yield f'<text x="{x + 10}" y="{y + 22}" fill="#d8d9da" font-size="14">{escape(panel["title"])}</text>'
    found = [one for target in panel["targets"] for one in series(text, target["expr"])][:SERIES]
    most = max((float(one[3]) for one in found), default=0) or 1
    for number, one in enumerate(found):
        share = 1 if "seconds" in one[1] else float(one[3]) / most  # times differ from run to run
        at, size = y + 36 + number * 24, max(2, (wide - 20) * share * 0.3)
        labels = re.sub(r'[{}"]', "", one[2] or one[1]).replace(",", " · ")
        yield f'<rect x="{x + 10}" y="{at}" width="{size:.0f}" height="14" fill="#73bf69"/>'
        told = escape(f"{_short(one)}  {labels}"[: wide // 8])
        yield f'<text x="{x + 16 + size:.0f}" y="{at + 12}" fill="#9fa7b3" font-size="12">{told}</text>'


def _short(sample):
    """A count; of what differs from run to run only that it is a time."""
    return "… s" if "seconds" in sample[1] else sample[3]


if __name__ == "__main__":
    PICTURE.write_text(drawn(json.loads(DASHBOARD.read_text("utf-8")), measured()), "utf-8")
    sys.stdout.write(f"{PICTURE}\n")
