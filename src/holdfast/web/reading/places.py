"""Screens beside tasks, as JSON: workers and queues, what was done and spent, the audit, people, threads, search."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from holdfast import App
from holdfast.core.errors import HoldfastError
from holdfast.engine.lists.query import row_json
from holdfast.engine.lists.spending import spent_by_day
from holdfast.engine.reading import values
from holdfast.engine.reading.audit import AuditRow, as_json
from holdfast.engine.reading.describe import process_name
from holdfast.engine.reading.serving import LiveWorker
from holdfast.engine.reading.steps import iso
from holdfast.engine.reading.values import Summary
from holdfast.web.reading.shown import short, value_of
from holdfast.web.requests.shapes import MOST_ROWS, Download, PageAnswer, PageCall
from holdfast.web.requests.site import Site

MINUTES = 60
RATES_SECONDS = 5.0
MOST_AT_ONCE = 500
MONEY_SECONDS = 20.0
MOST_PAID = 200
"""How many tasks are read for what was spent."""

MOST_READY = 500
"""How many tasks of a queue are looked at for the oldest."""

MOST_EXPORTED = 100_000
DAYS = 7


# Workers and queues


def workers(call: PageCall) -> PageAnswer:
    """Workers: alive, dead with tasks in hand, or seen here in the last hour and gone; and what waits in queues."""
    app = call.app
    alive = app.workers()
    found = [{"holder": one.holder, "busy": one.busy, **values.as_json(one.serving)} for one in alive]
    lost: dict[str, int] = {}
    since: dict[str, int] = {}
    for row in app.list(interrupted=True, limit=MOST_READY):
        holder = row.holder or ""
        lost[holder] = lost.get(holder, 0) + 1
        since[holder] = max(since.get(holder, 0), row.changed_us // 1000)
    dead = [{"holder": one, "tasks": lost[one], "since_ms": since[one], **_died(call.site, one)} for one in lost]
    gone = [one for one in call.site.gone(alive) if one["holder"] not in lost]
    told = {
        "workers": found,
        "dead": dead,
        "gone": gone,
        "queues": _queues(app, alive),
        "schedules": _schedules(app, alive),
    }
    return PageAnswer({**told, "now_ms": app.clock.now_us() // 1000})


def _died(site: Site, holder: str) -> dict[str, str]:
    return {"pid": process_name(holder), "machine": site.machine(holder)}


def queues(call: PageCall) -> PageAnswer:
    """What waits in each queue: ready, running, timed, since when the oldest waits; and whether a worker serves it."""
    app = call.app
    return PageAnswer({"queues": _queues(app, app.workers()), "now_ms": app.clock.now_us() // 1000})


def _queues(app: App, alive: Iterable[LiveWorker]) -> list[dict[str, Any]]:
    served = {queue for one in alive for queue in one.serving.queues}
    return [
        {
            **values.as_json(one),
            "oldest_ms": _oldest(app, one.queue) if one.ready else None,
            "served": one.queue in served,
        }
        for one in app.depths()
    ]


def _schedules(app: App, alive: Iterable[LiveWorker]) -> list[dict[str, Any]]:
    """The schedules that workers serve, the next one to begin first; workers may share one."""
    now_us = app.clock.now_us()
    found = {(one.namespace, one.name, one.when, one.zone): one for each in alive for one in each.serving.schedules}
    told = [{"zone": one.zone, "queue": one.queue, **values.as_json(one)} for one in found.values()]
    for one, row in zip(found.values(), told, strict=True):
        next_us = one.next_us(now_us)
        row["next_ms"] = None if next_us is None else next_us // 1000
    return sorted(told, key=lambda row: (row["next_ms"] is None, row["next_ms"] or 0, row["name"]))


def _oldest(app: App, queue: str) -> int | None:
    """Since when the oldest ready task waits, among the newest 500 of its queue."""
    now_us = app.clock.now_us()
    rows = app.list(status="pending", queue=queue, limit=MOST_READY)
    ready = [row.wake_us or row.changed_us for row in rows if row.wake_us is None or row.wake_us <= now_us]
    return min(ready) // 1000 if ready else None


# What was done, and spent


def rates(call: PageCall) -> PageAnswer:
    """How many tasks completed and failed in each of the last 60 minutes, in all and by queue; kept for 5 s.

    `?also=started` gives those that were created too. No first screen asks: it reads all of them.
    """
    found = call.site.kept("rates", RATES_SECONDS, lambda: _rates(call.app))
    if call.text("also") != "started":
        return PageAnswer(found)
    started = call.site.kept("started", RATES_SECONDS, lambda: _started(call.app, call.app.clock.now_us()))
    return PageAnswer({**found, "started": started})


def _rates(app: App) -> dict[str, Any]:
    now_us = app.clock.now_us()
    found: dict[str, list[int]] = {status: [0] * MINUTES for status in ("completed", "failed")}
    queues: dict[str, dict[str, list[int]]] = {}
    for status, minutes in found.items():
        for row in app.list(status=status, changed_since="60m", order="changed", limit=values.MAX_PAGE_SIZE):
            back = (now_us - row.changed_us) // 60_000_000
            if 0 <= back < MINUTES:
                own = queues.setdefault(row.queue, {name: [0] * MINUTES for name in found})
                for one in (minutes, own[status]):
                    one[MINUTES - 1 - back] += 1
    return {**found, "queues": queues, "as_of": iso(now_us)}


def _started(app: App, now_us: int) -> list[int]:
    """Count the tasks that were created in each minute. Lists are newest first, so it stops at the first older one."""
    minutes, after = [0] * MINUTES, None
    for _ in range(values.MAX_PAGE_SIZE // MOST_AT_ONCE):
        rows = app.list(limit=MOST_AT_ONCE, after=after)
        for row in rows:
            back = (now_us - row.created_us) // 60_000_000
            if back >= MINUTES:
                return minutes
            minutes[MINUTES - 1 - max(0, back)] += 1
        if len(rows) < MOST_AT_ONCE:
            break
        after = rows[-1].id
    return minutes


def money(call: PageCall) -> PageAnswer:
    """What was spent on each of the last seven days (UTC), by the newest 200 tasks that changed in them."""
    return PageAnswer(call.site.kept("money", MONEY_SECONDS, lambda: _money(call.site)))


def _money(site: Site) -> dict[str, Any]:
    app = site.app
    today = datetime.fromtimestamp(app.clock.now_us() / 1_000_000, UTC).date()
    days = {(today - timedelta(days=back)).isoformat(): 0.0 for back in reversed(range(DAYS))}
    rows = app.list(changed_since=f"{DAYS * 24}h", order="changed", limit=MOST_PAID)
    for row in rows:
        for day, cost in _spent(site, row).items():
            if day in days:
                days[day] += cost
    told = [[day, f"{cost:.6f}"] for day, cost in days.items()]
    return {"days": told, "today": told[-1][1], "tasks": len(rows), "more": len(rows) == MOST_PAID}


def _spent(site: Site, row: Summary) -> dict[str, float]:
    """What a task has spent by day; read again only if its row has changed."""
    try:
        return site.remembered(
            ("spent", row.id, row.changed_us),
            lambda: spent_by_day(one for one in site.app.events(row.id) if one.log.endswith(row.id)),
        )
    except HoldfastError:  # a log that can't be read must not hide what the others spent
        return {}


# Who did what


def audit(call: PageCall) -> PageAnswer:
    """Who did what, newest first: `tool`, `by`, `decision`, `task`, `since`, `until`, and `after` for the next page."""
    limit = call.number("limit", 50, least=1, most=MOST_ROWS)
    found = list(acts_of(call, limit))
    told = [act_json(one) for one in found]
    return PageAnswer({"acts": told, "next": found[-1].cursor if len(found) == limit else None})


def acts_of(call: PageCall, limit: int) -> Iterable[AuditRow]:
    """The acts that a request asks for, newest first."""
    asked: dict[str, Any] = {name: call.text(name) or None for name in ("task", "decision", "since", "until", "after")}
    return call.app.audit(tool=call.text("tool"), by=call.text("by"), **asked, limit=limit)


def audit_export(call: PageCall) -> Download:
    """The same acts as JSON Lines, to be saved; at most 100,000."""
    lines = (one.to_json().encode() + b"\n" for one in islice(acts_of(call, MOST_EXPORTED), MOST_EXPORTED))
    return Download(lines, "audit.jsonl", "application/octet-stream")


def act_json(row: AuditRow) -> dict[str, Any]:
    """An act, as a line of the audit shows it."""
    return {**as_json(row), "at_ms": row.at_us // 1000, "value": short(row.value)}


# People and threads


def users(call: PageCall) -> PageAnswer:
    """The users there are, by their ids; `after` is the last one seen."""
    limit = call.number("limit", 100, least=1, most=MOST_ROWS)
    found = call.app.users(after=call.text("after") or None, limit=limit)
    told = [{"id": one.id} for one in found]
    return PageAnswer({"users": told, "next": told[-1]["id"] if len(told) == limit else None})


def user(call: PageCall) -> PageAnswer:
    """A user: their state and facts, and their newest tasks."""
    id = call.at["id"]
    state, rows = call.app.user(id).get(), call.app.list(user=id, limit=100)
    return PageAnswer({"id": id, **values.as_json(state.to_dict()), "tasks": _rows(call.app, rows)})


def threads(call: PageCall) -> PageAnswer:
    """The threads there are, by their ids; `after` is the last one seen."""
    limit = call.number("limit", 100, least=1, most=MOST_ROWS)
    found = call.app.threads(after=call.text("after") or None, limit=limit)
    told = [{"id": one.id, "messages": len(one), "seq": one.seq} for one in found]
    return PageAnswer({"threads": told, "next": told[-1]["id"] if len(told) == limit else None})


def thread(call: PageCall) -> PageAnswer:
    """A thread: its metadata, its newest messages, and its tasks."""
    id = call.at["id"]
    found, rows = call.app.thread(id), call.app.list(thread=id, limit=100)
    messages = found.messages[-100:]
    told = [value_of(values.as_json(one), id, 0, "") for one in messages]
    about = {"id": id, "metadata": found.metadata, "messages": told, "count": len(found)}
    return PageAnswer({**about, "tasks": _rows(call.app, rows)})


def _rows(app: App, rows: Iterable[Summary]) -> list[dict[str, Any]]:
    return [row_json(row, interrupted=app.is_interrupted(row)) for row in rows]


def search(call: PageCall) -> PageAnswer:
    """What begins with a text: ids of tasks, agents and stages of the newest tasks, users, threads."""
    prefix = call.text("q")
    if not prefix:
        return PageAnswer({"tasks": [], "words": []})
    found = call.app.list(prefix=prefix, limit=10)
    words = call.site.kept("words", RATES_SECONDS, lambda: _words(call.app))
    fitting = [[kind, word] for kind, word in words if prefix.lower() in word.lower()][:8]
    tasks = [{"id": row.id, "agent": row.agent, "status": row.status} for row in found]
    return PageAnswer({"tasks": tasks, "words": fitting})


def words(call: PageCall) -> PageAnswer:
    """Values for filters, of the newest 500 tasks: agents, stages, users, threads, queues."""
    return PageAnswer({"words": call.site.kept("words", RATES_SECONDS, lambda: _words(call.app))})


def _words(app: App) -> list[tuple[str, str]]:
    rows = app.list(limit=values.MAX_PAGE_SIZE if values.MAX_PAGE_SIZE < 500 else 500)
    kinds = ("agent", "stage", "user", "thread", "queue")
    found = {(kind, getattr(row, kind)): None for row in rows for kind in kinds if getattr(row, kind)}
    return sorted(found)
