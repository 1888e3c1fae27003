"""A task's events as lines: for `holdfast log`, and for watching a task at work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.cli.show.formatting import length, shown, spent
from holdfast.cli.show.style import Style, clean, cut
from holdfast.engine.reading.describe import EventLine, describe
from holdfast.engine.reading.values import Fetch, LoggedEvent

_SIGNS = {
    "done": "✓",
    "completed": "✓",
    "approved": "✓",
    "settled": "✓",
    "step failed": "✗",
    "failed": "✗",
    "rejected": "✗",
    "cancelled": "✗",
    "retry": "↻",
    "in doubt": "⚠",
    "announced": "→",
    "started": "→",
    "waits": "⏸",
    "asks": "⏸",
    "approval?": "⏸",
    "waits for": "⏸",
    "sleeps": "⏸",
    "decided": "◆",
}
_VERB, _ABOUT = 12, 20
_NARROW = 60
"""Below this, a line has no room for the time and no gap before its details."""


def sign(verb: str) -> str:
    """One character that stands for a verb, on a terminal."""
    return _SIGNS.get(verb, "·")


def lines(
    records: Iterable[LoggedEvent], fetch: Fetch, style: Style, began_us: int, *, full: bool = False
) -> Iterator[str]:
    """A line for every event worth one, or for every event; with what was spent up to there at the end."""
    tokens, cost = 0, 0.0
    if full or style.terminal:
        time = "" if _is_narrow(style) else f" {'seconds':>9}"
        yield style.paint(f"{'seq':>5}{time}  {'what':<{_VERB + (2 if style.terminal else 0)}}about", "bold")
    for record in records:
        line = describe(record, fetch)
        tokens, cost = tokens + line.tokens, cost + (line.cost or 0.0)
        if full or not line.dull:
            time = "" if _is_narrow(style) else f" {(record.at_us - began_us) / 1_000_000:>9.3f}"
            prefix = f"{record.seq:>5}{time}  "
            yield style.paint(prefix, "dim") + one(line, style, len(prefix))
    if tokens or cost:
        yield style.paint(f"{'':>17}spent {spent(tokens, cost)}", "dim")


def one(line: EventLine, style: Style, before: int = 0) -> str:
    """Describe an event, as wide as is left."""
    marked = f"{sign(line.verb)} " if style.terminal else ""
    head = f"{marked}{line.verb:<{_VERB}}"
    rest = clean(details(line))
    about = clean(line.about)
    wide = len(about) if _is_narrow(style) else _ABOUT
    text = f"{about:<{wide}} {rest}" if rest and wide else about or rest
    room = max(10, style.width - before - len(head)) if style.width else 0
    return (style.paint(head, line.tone) + cut(text, room)).rstrip()


def _is_narrow(style: Style) -> bool:
    return 0 < style.width < _NARROW


def details(line: EventLine) -> str:
    """Return duration, attempts, cost, person and value."""
    parts = [length(line.took_us)] if line.took_us else []
    if line.attempt > 1 and line.verb != "retry":
        parts.append(f"attempt {line.attempt}")
    parts += [used] if (used := spent(line.tokens, line.cost)) else []
    parts += [f"by {line.by}"] if line.by else []
    parts += [f"from {line.source}"] if line.source else []
    value = "" if line.value is None else shown(line.value)
    return "  ".join([" · ".join(parts), value] if parts else [value]).strip()
