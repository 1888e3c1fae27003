"""Tasks of every namespace in one list, with their numbers: what a page of `--all-namespaces` shows above the others.

Each handler asks the same one of every namespace and puts the answers together. A row's id begins with its namespace.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace

from holdfast.core.errors import InvalidValue
from holdfast.engine.reading import values
from holdfast.web.reading import places, tasks as own
from holdfast.web.reading.inbox import MOST_INBOX
from holdfast.web.requests.filters import FIELDS
from holdfast.web.requests.shapes import MOST_ROWS, Handler, PageAnswer, PageCall
from holdfast.web.requests.site import Site

_NAMESPACE = re.compile(r"(?:^|\s)namespace:(\S*)")
UNNAMED = "-"
"""What stands for the namespace of tasks that were started without one."""


def named(namespace: str) -> str:
    return namespace or UNNAMED


def about(call: PageCall) -> PageAnswer:
    """What this page is; nothing is done here, but on the page of a namespace."""
    told = own.about(call).body
    return PageAnswer({**told, "spread": True, "agents": [], "rights": ["look"], "filters": f"{FIELDS} namespace:"})


def tasks(call: PageCall) -> PageAnswer:
    """Tasks of all namespaces, newest first, by a filter, which may name one of them."""
    limit = call.number("limit", 50, least=1, most=MOST_ROWS)
    asked = _NAMESPACE.search(call.text("q"))
    q = _NAMESPACE.sub("", call.text("q")).strip()
    after = _places(call.text("after"))
    found: dict[str, list[dict[str, Any]]] = {}
    for name, one in _each(call):
        if asked is None or asked[1] == named(name):
            query = {"q": [q], "limit": [str(limit)], "after": [after.get(named(name), "")]}
            found[name] = own.tasks(replace(one, query=query)).body["tasks"]
    sorted_rows = ([(row["created_at"], name, row) for row in rows] for name, rows in found.items())
    merged = heapq.merge(*sorted_rows, key=lambda one: one[0], reverse=True)
    page = list(islice(merged, limit))
    after |= {named(name): row["id"] for _, name, row in page}
    more = sum(map(len, found.values())) > len(page) or any(len(rows) == limit for rows in found.values())
    told = [{**row, "namespace": named(name), "local": row["id"], "id": _id(name, row["id"])} for _, name, row in page]
    return PageAnswer({"tasks": told, "next": values.text(after) if more else None})


def _places(text: str) -> dict[str, str]:
    """How far each namespace was read."""
    try:
        return values.load(text.encode(), dict[str, str]) if text else {}
    except ValueError:
        raise InvalidValue(f"after={text!r} is not a cursor", hint="give the `next` of the page before") from None


def _id(namespace: str, id: str) -> str:
    return f"{namespace}!{id}" if namespace else id


def counts(call: PageCall) -> PageAnswer:
    """How many tasks there are of each status in all namespaces, and in each; kept for a second."""
    return PageAnswer(call.site.kept("counts", own.COUNTS_SECONDS, lambda: counted(call.site)))


def counted(site: Site) -> dict[str, Any]:
    """Count tasks of every namespace."""
    all_of: Counter[str] = Counter()
    dead: list[str] = []
    each: list[dict[str, Any]] = []
    in_doubt = waiting = 0
    for one in site.spread():
        name = one.settings.namespace
        told = own.counted(one.app)
        inbox = sum(1 for _ in islice(one.app.inbox(), MOST_INBOX))
        all_of.update(told["by_status"])
        dead += [_id(name, id) for id in told["dead"]]
        in_doubt, waiting = in_doubt + told["in_doubt"], waiting + inbox
        each.append({"name": named(name), "tasks": told["tasks"], "inbox": inbox})
    told = {"by_status": dict(all_of), "in_doubt": in_doubt, "interrupted": len(dead), "dead": dead}
    return {**told, "tasks": all_of.total(), "inbox": waiting, "namespaces": each}


def strips(call: PageCall) -> PageAnswer:
    """How up to 50 tasks went, in a line each: `?id=` for each of them, with its namespace."""
    sites = dict(_each(call))
    found: dict[str, Any] = {}
    for id in call.query.get("id", [])[: own.MOST_STRIPS]:
        name, _, local = id.rpartition("!")
        if name in sites:
            answer = own.strips(replace(sites[name], query={"id": [local]})).body["strips"]
            found |= {_id(name, one): strip for one, strip in answer.items()}
    return PageAnswer({"strips": found})


def rates(call: PageCall) -> PageAnswer:
    """How many tasks completed and failed in each of the last 60 minutes, in all namespaces."""
    found = _answers(call, places.rates)
    sums = {name: [sum(minute) for minute in zip(*(one[name] for one in found), strict=True)] for name in _DONE}
    return PageAnswer({**sums, "queues": {}})


_DONE = ("completed", "failed")


def money(call: PageCall) -> PageAnswer:
    """What was spent on each of the last seven days, by the newest 200 tasks of each namespace."""
    days: dict[str, float] = {}
    found = _answers(call, places.money)
    for one in found:
        for day, cost in one["days"]:
            days[day] = days.get(day, 0.0) + float(cost)
    told = [[day, f"{cost:.6f}"] for day, cost in sorted(days.items())]
    today = told[-1][1] if told else "0.000000"
    return PageAnswer({"days": told, "today": today, "more": any(one["more"] for one in found)})


def words(call: PageCall) -> PageAnswer:
    """Values for filters: the namespaces, and those of their newest tasks."""
    named_ones = {("namespace", named(name)) for name, _ in _each(call)}
    found = {(kind, word) for one in _answers(call, places.words) for kind, word in one["words"]}
    return PageAnswer({"words": sorted(found | named_ones)})


def search(call: PageCall) -> PageAnswer:
    """Tasks of any namespace whose ids begin with a text."""
    found: list[dict[str, Any]] = []
    for name, one in _each(call):
        rows = places.search(one).body["tasks"]
        found += [{**row, "namespace": named(name), "local": row["id"], "id": _id(name, row["id"])} for row in rows]
    return PageAnswer({"tasks": found[:10], "words": []})


def _each(call: PageCall) -> Iterator[tuple[str, PageCall]]:
    """The request as each namespace is asked."""
    return ((one.settings.namespace, replace(call, site=one)) for one in call.site.spread())


def _answers(call: PageCall, handler: Callable[[PageCall], PageAnswer]) -> list[dict[str, Any]]:
    return [handler(one).body for _, one in _each(call)]


HANDLERS: dict[str, Handler] = {
    "/about": about,
    "/tasks": tasks,
    "/tasks/counts": counts,
    "/strips": strips,
    "/rates": rates,
    "/money": money,
    "/words": words,
    "/search": search,
}
"""What is answered for all namespaces together. Everything else belongs to the page of one."""
