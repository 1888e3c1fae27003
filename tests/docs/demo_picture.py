"""Draws the timeline of `holdfast demo` as it happened: `python -m tests.docs.demo_picture docs/demo.svg`.

It runs the demo, reads its log through the command line, and draws a bar for each step where the log says it was.
"""

import json
import subprocess
import sys
import tempfile
from datetime import datetime
from html import escape
from pathlib import Path

WIDTH, LEFT, RIGHT, TOP, ROW = 900, 170, 30, 96, 28
INK, DIM, LINE, PAPER = "#1f2933", "#6b7785", "#d8dee6", "#ffffff"
DONE, DOUBT, KILL, ONCE = "#2f7d5b", "#c98a1b", "#c0392b", "#3564a8"
DARK = {
    INK: "#e6ebf2",
    DIM: "#a3b0c2",
    LINE: "#333c48",
    PAPER: "#161b22",
    DONE: "#4fae84",
    KILL: "#e57373",
    ONCE: "#6a9be0",
}
"""The colours of readers whose system is dark."""


def played(folder):
    """Run the demo in a folder; gives what it tells programs, and the log."""
    store = str(Path(folder) / "demo.db")
    facts = _told("demo", "--store", store)
    return facts, _told("log", "order-7", "--full", "--store", store)


def _told(*arguments):
    done = subprocess.run([sys.executable, "-m", "holdfast", *arguments, "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)


def picture(facts, events):
    """The timeline as SVG."""
    first = _seconds(events[0]["at"])
    last = _seconds(events[-1]["at"]) - first
    scale = (WIDTH - LEFT - RIGHT) / (last * 1.02)

    def x(at):
        return LEFT + (_seconds(at) - first) * scale

    claims = [event for event in events if event["kind"] == "task_claimed"]
    height = TOP + ROW * len(facts["steps"]) + 58
    parts = [*_frame(height, facts), *_gap(events, claims, x, height)]
    for number, step in enumerate(facts["steps"]):
        parts += _step(step, facts["settled"].get(step["key"]), TOP + ROW * number, x)
    parts += _axis(last, scale, height)
    ending = f"card charged once · e-mail sent once · {facts['events']} events, each chained to the one before"
    assert facts["once"] and facts["intact"] and facts["sent"] == {"charges": 1, "emails": 1}
    parts.append(_text(LEFT, height - 14, ending, fill=DONE, weight="bold"))
    return "\n".join([*parts, "</svg>", ""])


def _frame(height, facts):
    title = "An agent of nine steps is killed after it charged a card, and resumes: the card is charged once"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">'
    )
    yield f"<title>{title}</title>"
    dark = " ".join(
        f'[fill="{one}"] {{ fill: {new} }} [stroke="{one}"] {{ stroke: {new} }}' for one, new in DARK.items()
    )
    yield f"<style>@media (prefers-color-scheme: dark) {{ {dark} }}</style>"
    yield (
        '<defs><pattern id="doubt" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="7" height="7" fill="#fff6e3"/><rect width="3" height="7" fill="{DOUBT}"/></pattern></defs>'
    )
    yield f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" fill="{PAPER}" stroke="{LINE}"/>'
    yield _text(20, 32, "$ holdfast demo", weight="bold", size=15)
    replayed = facts["replayed"]
    told = f"replayed {replayed['steps']} steps in {replayed['seconds'] * 1000:.0f} ms"
    yield _text(WIDTH - RIGHT, 32, f"order-7: {facts['status']}, {told}", fill=DIM, anchor="end")


def _gap(events, claims, x, height):
    """Who worked on it, and the time when nobody did."""
    before = events[claims[1]["seq"] - 2]
    start, end, bottom = x(before["at"]), x(claims[1]["at"]), height - 52
    for one, begin, over in ((claims[0], LEFT, start), (claims[1], end, x(events[-1]["at"]))):
        yield f'<line x1="{begin:.1f}" x2="{over:.1f}" y1="72" y2="72" stroke="{DIM}" stroke-width="2"/>'
        yield _text(begin + 2, 64, one["about"], fill=DIM, size=12)
    wide = end - start
    yield f'<rect x="{start:.1f}" y="78" width="{wide:.1f}" height="{bottom - 78}" fill="{KILL}" opacity="0.07"/>'
    yield _text(start + wide / 2, 64, "SIGKILL", fill=KILL, weight="bold", anchor="middle")
    yield _text(start + wide / 2, 90, "charged, not recorded", fill=KILL, size=11, anchor="middle")


def _step(step, settled, top, x):
    start, end = x(step["started_at"]), x(step["ended_at"])
    fill = "url(#doubt)" if settled else ONCE if step["effect"] == "once" else DONE
    yield _text(20, top + 19, f"{step['number']}  {step['name']}")
    yield (
        f'<rect x="{start:.1f}" y="{top + 6}" width="{max(3.0, end - start):.1f}" height="17" rx="3" fill="{fill}" '
        f'stroke="{DOUBT if settled else fill}"/>'
    )
    if settled:
        told = f"in doubt; then the bank was asked ({settled}): it had happened"
        yield _text((start + end) / 2, top + 40, told, fill=DOUBT, size=11, anchor="middle")
    elif step["effect"] == "once":
        yield _text(start - 8, top + 19, "announced, made, recorded", fill=DIM, size=11, anchor="end")


def _axis(last, scale, height):
    bottom = height - 50
    yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" stroke="{LINE}"/>'
    for half in range(int(last * 2) + 1):
        at = LEFT + half / 2 * scale
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="{DIM}"/>'
        yield _text(at, bottom + 17, f"{half / 2:.1f} s", fill=DIM, size=11, anchor="middle")


def _text(x, y, text, *, fill=INK, size=13, weight="normal", anchor="start"):
    look = f'fill="{fill}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'


def _seconds(at):
    return datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        Path(sys.argv[1]).write_text(picture(*played(made)), "utf-8")
