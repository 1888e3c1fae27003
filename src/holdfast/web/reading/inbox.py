"""What tasks wait for that a person can give, and what is known of a call before it is decided."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from itertools import islice
from typing import Any, cast

from holdfast.core.errors import StepNotFound
from holdfast.engine.lists.origins import origins
from holdfast.engine.lists.waterfall import Lane, StepRow, Waterfall
from holdfast.engine.reading import values
from holdfast.engine.reading.inbox import InboxItem, as_json, remedies
from holdfast.web.reading.shown import holder_json
from holdfast.web.requests.shapes import MOST_EVENTS, PageAnswer, PageCall
from holdfast.web.requests.site import Site

MOST_INBOX = 200
PACED_STEPS = 3
MOST_EXACT = 2**53


def entries(call: PageCall) -> PageAnswer:
    """What tasks wait for that a person can give, oldest first."""
    found = list(islice(call.app.inbox(order="oldest"), MOST_INBOX))
    told = [entry(one) for one in sorted(found, key=lambda one: one.since_us)]
    return PageAnswer({"entries": told, "more": len(found) == MOST_INBOX, "now_ms": call.app.clock.now_us() // 1000})


def entry(item: InboxItem) -> dict[str, Any]:
    """An entry of the inbox, with the commands that do the same."""
    words = [("holdfast", one.verb, *map(quoted, one.words), one.given("")) for one in remedies(item)]
    commands = [" ".join(filter(None, one)) for one in words]
    until = None if item.until_us is None else item.until_us // 1000
    return {
        **as_json(item, "owner", "used", "of", "ahead", "answer"),
        "since_ms": item.since_us // 1000,
        "until_ms": until,
        "expires_ms": None if item.expires_us is None else item.expires_us // 1000,
        "commands": commands,
        "exact": {name: values.text(one) for name, one in item.arguments.items() if is_rounded(one)},
    }


def quoted(word: str) -> str:
    """A word as it is typed in a shell; most ids and keys stay as they are.

    >>> quoted("refund#1"), quoted("a b"), quoted("~1/pay#1")
    ('refund#1', "'a b'", "'~1/pay#1'")
    """
    return word if re.fullmatch(r"[\w.:/@%+,-][\w.:/~#@%+=,-]*", word, re.A) else shlex.quote(word)


def is_rounded(value: Any) -> bool:
    """Return whether a browser would show other digits: it reads every number as a float."""
    match value:
        case bool():
            return False
        case int():
            return abs(value) > MOST_EXACT
        case float():
            return value.is_integer()
        case dict():
            return any(map(is_rounded, cast("dict[str, Any]", value).values()))
        case list():
            return any(map(is_rounded, cast("list[Any]", value)))
        case _:
            return False


def known(call: PageCall) -> PageAnswer:
    """What is known of what a person is asked: who wrote arguments, who announced the call, earlier calls, the pace."""
    task, key = call.at["task"], call.at["call"]
    told: dict[str, Any] = {"origins": {}, "announced": None, "earlier": None, "idempotency_key": "", "pace": None}
    told["asked"] = []
    asked = next((one for one in call.app.inbox(task) if one.key == key), None)
    if asked is None:
        return PageAnswer(told)
    owner = asked.owner or task
    if asked.kind == "budget":
        return PageAnswer({**told, "pace": call.site.went(owner, lambda went: _pace(went, asked.key))})
    if not asked.tool:
        return PageAnswer(told)
    found = origins(list(islice(call.app.events(owner), MOST_EVENTS)), asked.key, asked.arguments, call.app.fetch)
    told |= call.site.went(owner, lambda went: _around(call.site, went, asked))
    named = ""
    with suppress(StepNotFound):  # one that is not approved yet has not begun
        named = call.app.step(owner, asked.key).idempotency_key or ""
    answers = values.as_json(call.site.answers(owner, asked.key))
    return PageAnswer({**told, "origins": values.as_json(found), "idempotency_key": named, "asked": answers})


def _pace(went: Waterfall, limit: str) -> dict[str, Any] | None:
    """What the last steps used of a budget that only some of them use: money or tokens."""
    rows = list(went.rows.values())
    used = [amount for amount in (row.cost if limit == "cost" else row.tokens for row in rows) if amount]
    last = used[-PACED_STEPS:] if limit in ("cost", "tokens") else []
    done = sum(row.status == "completed" for row in rows)
    return {"steps": len(last), "each": sum(last) / len(last), "done": done} if last else None


def _around(site: Site, went: Waterfall, asked: InboxItem) -> dict[str, Any]:
    """Who announced a call and how its worker ended, and what other calls of the tool came to in this task."""
    rows = went.rows.values()
    own = next((row for row in reversed(rows) if f"/{row.key.partition('@')[0]}".endswith(f"/{asked.key}")), None)
    same = [row for row in rows if row.tool == asked.tool and row is not own and row.status == "completed"]
    last = {"seq": same[-1].last, "came": same[-1].came} if same else None
    lane = None if own is None else next((one for one in reversed(went.lanes) if one.seq <= own.first), None)
    told = None if own is None or lane is None else {"seq": own.first, **_announced(site, own, lane)}
    return {"announced": told, "earlier": {"count": len(same), "last": last}}


def _announced(site: Site, own: StepRow, lane: Lane) -> dict[str, Any]:
    died = lane.end in ("killed", "lost") and lane.end_us is not None
    ended_ms = (lane.end_us or 0) // 1000 if died else None
    at_ms = min((bar.start_us for bar in own.bars), default=0) // 1000
    return {"at_ms": at_ms or None, "holder": holder_json(site, lane.holder), "end": lane.end, "ended_ms": ended_ms}
