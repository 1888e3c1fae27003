"""Texts of errors and waits, with commands in place of the Python that they suggest: for a shell, or the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_COMMANDS: Sequence[tuple[str, str]] = (
    (r"app\.(approve|reject)\(id, '([^']+)'\)", r"holdfast \1 ID '\2'"),
    (r"app\.signal\(id, '([^']+)', value\)", r"holdfast signal ID '\1' VALUE"),
    (r"app\.settle\(id, '([^']+)', happened=…\)", "holdfast inbox"),
    (r"app\.raise_budget\('([^']+)', Budget\((\w+)=…\)\)", r"holdfast budget \1 \2=MORE"),
    (r"app\.resume\(id, agent, anyway=True\)", "holdfast resume ID FILE --anyway"),
    (r"app\.resume\('([^']+)', agent, deadline=\"10m\"\)", r"holdfast resume \1 FILE --deadline 10m"),
    (
        r"give it: app\.resume\(id, agent\), or open\(…, agents=\[…\]\)",
        "name the file it is in: holdfast resume ID FILE",
    ),
    (r"app\.resume\(id, agent\)", "holdfast resume ID FILE"),
    (r"app\.fork\(id, at=…\)", "holdfast fork ID --at SEQ"),
    (r", or app\.worker\(\[…\]\)\.run\(\)", ""),
    (r"app\.list\(\)", "holdfast list"),
    (r'write seconds, a timedelta, or text like "1h30m"', "write numbers with their units: 90s, 1h30m, 2d"),
    (r"app\.steps\(id\)", "holdfast log ID"),
    (r"app\.export\(id, path\)", "holdfast export ID FILE"),
    (r"app\.run\(…, wait=\"1m\"\)", "holdfast resume ID FILE --wait 1m"),
    (r"app\.run\(…, user=…\)", "add --user NAME"),
    (r"\bapp\.(answer|approve|cancel|reject|resume|settle|signal)\b(?!\()", r"holdfast \1"),
    (r"app\.copy_to\('sqlite:///copy\.db'\)", "holdfast copy copy.db"),
)


def in_commands(text: str, id: Any = None, options: str = "") -> str:
    """Return an error's text, with commands in place of the Python that it suggests.

    >>> in_commands("app.resume(id, agent) tries again", "trip-1", "--store a.db")
    'holdfast resume --store a.db trip-1 FILE tries again'
    """
    for python, command in _COMMANDS:
        text = re.sub(python, command, text)
    text = _PARAMETERS.sub(lambda found: f"--{found[1].replace('_', '-')} ", text)
    if isinstance(id, str) and _PLAIN_ID.fullmatch(id):
        text = re.sub(r"\bID\b", id, text)
    return _ON_STORES.sub(lambda found: f"{found[0]} {options}", text) if options and "--store" not in text else text


_PARAMETERS = re.compile(
    r"(?<![\w.(-])(at|deadline|effects|hold|keep|older_than|snapshots_older_than|steps|to|versions|wait)=(?=[\w'\"…])"
)
"""Parameters of App's methods that are options here."""

_ON_STORES = re.compile(
    r"\bholdfast (answer|approve|audit|budget|cancel|doctor|fork|gc|inbox|list|log|reject|resume|rollback|run|settle"
    r"|show|signal|stats|verify|worker)\b(?=[ ]|$)"
)
"""Commands that look for a task, or work on one: they need to know in which store."""

_PLAIN_ID = re.compile(r"[\w.:/~#+=,-]+")
