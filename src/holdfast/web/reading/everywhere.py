"""Tasks, inbox, workers, audit of every namespace together: what a page of `--all-namespaces` shows above the others.

Each handler asks the same one of every namespace and puts the answers together. A row's id begins with its namespace.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from holdfast.core.errors import InvalidValue
from holdfast.engine.reading import values
from holdfast.engine.reading.audit import AuditRow
from holdfast.web.reading import inbox as own_inbox, places, tasks as own
from holdfast.web.reading.inbox import MOST_INBOX
from holdfast.web.requests.filters import FIELDS
from holdfast.web.requests.shapes import MOST_ROWS, Download, Handler, PageAnswer, PageCall
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
    nexts: dict[str, str | None] = {}
    looked_at = 0
    for name, one in _each(call) if asked is None else _one(call, asked[1]):
        query = {"q": [q], "limit": [str(limit)], "after": [after.get(named(name), "")]}
        answer = own.tasks(replace(one, query=query)).body
        found[name], nexts[name] = answer["tasks"], answer["next"]
        looked_at += answer["looked_at"]
    sorted_rows = ([(row["created_at"], name, row) for row in rows] for name, rows in found.items())
    merged = heapq.merge(*sorted_rows, key=lambda one: one[0], reverse=True)
    page = list(islice(merged, limit))
    shown = Counter(name for _, name, _ in page)
    after |= {named(name): row["id"] for _, name, row in page}
    # Where everything was shown, the next page begins after what was looked at, which may be further on.
    after |= {named(name): next for name, next in nexts.items() if next and shown[name] == len(found[name])}
    more = any(nexts.values()) or any(shown[name] < len(rows) for name, rows in found.items())
    told = [{**row, "namespace": named(name), "local": row["id"], "id": _id(name, row["id"])} for _, name, row in page]
    return PageAnswer({"tasks": told, "next": values.text(after) if more else None, "looked_at": looked_at})


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
    spread = site.spread()
    for one in spread.sites:
        name = one.settings.namespace
        told = own.counted(one.app)
        inbox = sum(1 for _ in islice(one.app.inbox(), MOST_INBOX))
        all_of.update(told["by_status"])
        dead += [_id(name, id) for id in told["dead"]]
        in_doubt, waiting = in_doubt + told["in_doubt"], waiting + inbox
        each.append({"name": named(name), "tasks": told["tasks"], "inbox": inbox})
    told = {"by_status": dict(all_of), "in_doubt": in_doubt, "interrupted": len(dead), "dead": dead}
    return {**told, "tasks": all_of.total(), "inbox": waiting, "namespaces": each, "left_out": spread.left_out}


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
    found = {name: places.rates(one).body for name, one in _each(call)}
    each = {
        name: [one[name] for one in found.values()] for name in _RATES if all(name in one for one in found.values())
    }
    sums = {status: [sum(minute) for minute in zip(*rates, strict=True)] for status, rates in each.items()}
    queues = {f"{name}/{queue}": rate for name, one in found.items() for queue, rate in one["queues"].items()}
    return PageAnswer({**sums, "queues": queues})


_RATES = ("completed", "failed", "started")


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


# People, workers, the audit


def inbox(call: PageCall) -> PageAnswer:
    """What tasks of all namespaces wait for that a person can give, oldest first. It is decided on their own pages."""
    found: list[dict[str, Any]] = []
    more = False
    for name, one in _each(call):
        answer = own_inbox.entries(one).body
        more |= answer["more"]
        found += [{**_placed(name, row), "commands": []} for row in answer["entries"]]
    found.sort(key=lambda row: row["since_ms"])
    more |= len(found) > MOST_INBOX
    return PageAnswer({"entries": found[:MOST_INBOX], "more": more, "now_ms": _now_ms(call)})


def _placed(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row about a task of a namespace: with the namespace, and the task as these lists call it."""
    return {**row, "namespace": named(name), "local": row["task"], "task": _id(name, row["task"])}


def _now_ms(call: PageCall) -> int:
    return call.app.clock.now_us() // 1000


def workers(call: PageCall) -> PageAnswer:
    """Workers of all namespaces, each once; those that died with tasks of any; what waits in the queues of all."""
    found = _answers(call, places.workers)
    alive = {one["holder"]: one for answer in found for one in answer["workers"]}
    schedules = {(one["namespace"], one["name"], one["when"]): one for answer in found for one in answer["schedules"]}
    dead: dict[str, dict[str, Any]] = {}
    for one in (row for answer in found for row in answer["dead"]):
        before = dead.get(one["holder"], {"tasks": 0, "since_ms": 0})
        both = {"tasks": before["tasks"] + one["tasks"], "since_ms": max(before["since_ms"], one["since_ms"])}
        dead[one["holder"]] = {**one, **both}
    gone = {one["holder"]: one for answer in found for one in answer["gone"]}
    lasting = [one for holder, one in gone.items() if holder not in alive and holder not in dead]
    told = {"workers": list(alive.values()), "dead": list(dead.values()), "schedules": list(schedules.values())}
    told["gone"] = sorted(lasting, key=lambda one: -one["seen_ms"])
    return PageAnswer({**told, **queues(call).body})


def queues(call: PageCall) -> PageAnswer:
    """What waits in the queues of all namespaces."""
    found = [
        row for name, one in _each(call) for row in places.queues(one).body["queues"] if row["namespace"] == name
    ]  # a page of tasks without a namespace counts the queues of the others too
    return PageAnswer({"queues": found, "now_ms": _now_ms(call)})


def audit(call: PageCall) -> PageAnswer:
    """Who did what in all namespaces, newest first; `namespace` names one of them, `after` leads to older acts."""
    limit = call.number("limit", 50, least=1, most=MOST_ROWS)
    after = _places(call.text("after"))
    page = list(islice(_acts(call, after, limit + 1), limit + 1))
    shown = page[:limit]
    after |= {named(name): row.cursor for name, row in shown}
    told = [_placed(name, places.act_json(row)) for name, row in shown]
    return PageAnswer({"acts": told, "next": values.text(after) if len(page) > limit else None})


def audit_export(call: PageCall) -> Download:
    """The same acts as JSON Lines, each with its namespace, to be saved; at most 100,000."""
    found = islice(_acts(call, {}, places.MOST_EXPORTED), places.MOST_EXPORTED)
    lines = (values.dump({"namespace": name, **values.as_json(row)}) + b"\n" for name, row in found)
    return Download(lines, "audit.jsonl", "application/octet-stream")


def _acts(call: PageCall, after: Mapping[str, str], limit: int) -> Iterable[tuple[str, AuditRow]]:
    """Acts of all namespaces, newest first, each behind the place up to which its namespace was read."""
    asked = call.text("namespace")
    sources = _one(call, asked) if asked else _each(call)
    streams = [
        _acts_in(name, replace(one, query={**one.query, "after": [after.get(named(name), "")]}), limit)
        for name, one in sources
    ]
    return heapq.merge(*streams, key=lambda found: found[1].at_us, reverse=True)


def _acts_in(name: str, call: PageCall, limit: int) -> Iterator[tuple[str, AuditRow]]:
    return ((name, row) for row in places.acts_of(call, limit))


def _each(call: PageCall) -> Iterator[tuple[str, PageCall]]:
    """The request as each namespace is asked."""
    return ((one.settings.namespace, replace(call, site=one)) for one in call.site.spread().sites)


def _one(call: PageCall, name: str) -> Iterator[tuple[str, PageCall]]:
    """The request as one namespace is asked, if it is there; it may be one beyond those that are shown together."""
    namespace = "" if name == UNNAMED else name
    site = call.site.site_of(namespace)
    return iter([] if site is None else [(namespace, replace(call, site=site))])


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
    "/inbox": inbox,
    "/workers": workers,
    "/queues": queues,
    "/audit": audit,
    "/audit/export": audit_export,
}
"""What is answered for all namespaces together. Everything else belongs to the page of one."""
