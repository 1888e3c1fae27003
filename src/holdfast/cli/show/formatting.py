"""Values, lengths of time, ages and money as people read them."""

from __future__ import annotations

import re
import shlex

from holdfast.cli.show.style import clean
from holdfast.engine.reading.values import moment, shown as shown

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def length(us: int) -> str:
    """A length of time as people read it.

    >>> length(4_321), length(1_234_567), length(75_000_000), length(7_260_000_000)
    ('4 ms', '1.23 s', '1m 15s', '2h 1m')
    """
    if us < 1_000_000:
        return f"{us / 1000:.0f} ms"
    if us < 60_000_000:
        return f"{us / 1_000_000:.2f} s"
    seconds = us // 1_000_000
    for (size, name), (lesser, small) in zip(_UNITS, (*_UNITS[1:], (1, "s")), strict=True):
        if seconds >= size:
            rest = seconds % size // lesser
            return f"{seconds // size}{name} {rest}{small}" if rest else f"{seconds // size}{name}"
    raise AssertionError("a minute or more")


def age(then_us: int, now_us: int) -> str:
    """Return the time since then, as people write it.

    >>> age(0, 5_000_000), age(0, 400), age(0, 90_000_000), age(5, 0)
    ('5 s ago', 'now', '1 m ago', 'now')
    """
    seconds = (now_us - then_us) // 1_000_000
    if seconds < 1:
        return "now"
    for size, name in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {name} ago"
    return f"{seconds} s ago"


def clock(at_us: int) -> str:
    """A moment, in UTC, to the second.

    >>> clock(1_700_000_000_000_000)
    '2023-11-14 22:13:20'
    """
    return moment(at_us).strftime("%Y-%m-%d %H:%M:%S")


def money(cost: float) -> str:
    """Dollars, with as many places as it takes to see something.

    >>> money(0.0041), money(12.5)
    ('$0.0041', '$12.50')
    """
    return f"${cost:.2f}" if cost >= 1 or not cost else f"${cost:.4f}"


def spent(tokens: int, cost: float | None) -> str:
    """Return the usage, or nothing.

    >>> spent(1812, 0.004), spent(0, None)
    ('1,812 tok · $0.0040', '')
    """
    parts = ([f"{tokens:,} tok"] if tokens else []) + ([money(cost)] if cost else [])
    return " · ".join(parts)


def size(count: int) -> str:
    """Bytes as people read them.

    >>> size(900), size(2_500_000)
    ('900 B', '2.5 MB')
    """
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def times(count: int, what: str) -> str:
    """A number of things.

    >>> times(1, "task"), times(12_000, "task"), times(2, "process")
    ('1 task', '12,000 tasks', '2 processes')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}{'es' if what.endswith('s') else 's'}"


def quoted(word: str) -> str:
    """A word for a shell: quotes only where one would misread it, and nothing that steers a terminal.

    >>> quoted("book_flight#1"), quoted("~1/pay#1"), quoted("a b"), quoted("a\\nb")
    ('book_flight#1', "'~1/pay#1'", "'a b'", "$'a\\\\u000ab'")
    """
    if clean(word) != word:
        escaped = word.replace("\\", "\\\\").replace("'", "\\'")
        return "$'" + "".join(one if clean(one) == one else f"\\u{ord(one):04x}" for one in escaped) + "'"
    return word if re.fullmatch(r"[\w.:/@%+,-][\w.:/~#@%+=,-]*", word, re.A) else shlex.quote(word)
