"""A task's events as lines: for `holdfast log`, and for watching a task at work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.cli.show.formatting import length, shown, spent
from holdfast.cli.show.style import Style, clean, cut, fold
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
NARROW = 60
"""Below this, a line has no room for the time, and what was done has a line of its own below what it is about."""

_FULL_LINES = 12
"""Number of lines that an event may take where every event is wanted whole."""


def sign(verb: str) -> str:
    """One character that stands for a verb, on a terminal."""
    return _SIGNS.get(verb, "·")


def lines(
    records: Iterable[LoggedEvent], fetch: Fetch, style: Style, began_us: int, *, full: bool = False
) -> Iterator[str]:
    """A line for every event worth one, or for every event; with what was spent up to there at the end."""
    tokens, cost = 0, 0.0
    if full or style.terminal:
        yield heading(style)
    for record in records:
        line = describe(record, fetch)
        tokens, cost = tokens + line.tokens, cost + (line.cost or 0.0)
        if full or not line.dull:
            yield from lines_of(record, line, style, began_us, whole=full)
    if tokens or cost:
        yield style.paint(f"{'':>{7 if _is_narrow(style) else 17}}spent {spent(tokens, cost)}", "dim")


def heading(style: Style) -> str:
    """Return the line above the events."""
    time = "" if _is_narrow(style) else f" {'seconds':>9}"
    return style.paint(f"{'seq':>5}{time}  {'what':<{_VERB + (2 if style.terminal else 0)}}about", "bold")


def lines_of(
    record: LoggedEvent, line: EventLine, style: Style, began_us: int, *, whole: bool = False
) -> Iterator[str]:
    """Describe an event after its seq and its time."""
    time = "" if _is_narrow(style) else f" {(record.at_us - began_us) / 1_000_000:>9.3f}"
    prefix = f"{record.seq:>5}{time}  "
    first, *more = block(line, style, len(prefix), whole=whole)
    yield style.paint(prefix, "dim") + first
    yield from (" " * len(prefix) + one for one in more)


def one(line: EventLine, style: Style, before: int = 0) -> str:
    """Describe an event on one line, as wide as is left."""
    head, about, rest = _parts(line, style)
    wide = len(about) if _is_narrow(style) else _ABOUT
    text = f"{about:<{wide}} {rest}" if rest and wide else about or rest
    room = max(10, style.width - before - len(head)) if style.width else 0
    return (style.paint(head, line.tone) + cut(text, room)).rstrip()


def block(line: EventLine, style: Style, before: int = 0, *, whole: bool = False) -> list[str]:
    """Describe an event, after so many columns: on one line, cut between words; with `whole`, on several.

    On a narrow terminal, details come below.
    """
    if not style.width or not (whole or _is_narrow(style)):
        return [one(line, style, before)]
    head, about, rest = _parts(line, style)
    narrow, most = _is_narrow(style), _FULL_LINES if whole else 1
    indent = 2 if narrow else len(head)
    room = max(10, style.width - before - indent)
    if not narrow:
        made = fold(f"{about:<{_ABOUT}} {rest}".rstrip() if rest else about, room)
        first, more = style.paint(head, line.tone) + made[0], made[1:]
    else:
        first = style.paint(head.rstrip(), line.tone) + f" {cut(about, style.width - before - len(head.rstrip()) - 1)}"
        more = [] if not rest else fold(rest, room) if whole else [cut(rest, room)]
    kept = [*more[: most - 1], cut(" ".join(more[most - 1 :]), room)] if len(more) > most else more
    return [first.rstrip(), *(f"{'':>{indent}}{part.strip()}" for part in kept)]


def _parts(line: EventLine, style: Style) -> tuple[str, str, str]:
    """The verb, what it is about, and the details."""
    marked = f"{sign(line.verb)} " if style.terminal else ""
    return f"{marked}{line.verb:<{_VERB}}", clean(line.about), clean(details(line))


def _is_narrow(style: Style) -> bool:
    return 0 < style.width < NARROW


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
