"""What the page shows, as JSON. Each handler reads the public face or the reading side, and writes nothing."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

from holdfast import App, __version__
from holdfast.core.errors import HoldfastError, TaskNotFound
from holdfast.core.errors.commands import in_commands
from holdfast.core.events import StatePatched, TaskForked
from holdfast.engine.lists.comparing import common_past, paired
from holdfast.engine.lists.deltas import KEYFRAME
from holdfast.engine.lists.query import row_json
from holdfast.engine.lists.waterfall import StepRow, Waterfall, strip
from holdfast.engine.reading import values
from holdfast.engine.reading.describe import describe
from holdfast.engine.reading.inbox import LABELS
from holdfast.engine.reading.steps import iso
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.reading.values import LoggedEvent
from holdfast.web.access.gate import RIGHTS
from holdfast.web.reading.inbox import entry
from holdfast.web.reading.shown import holder_json, money, row_of, short, value_of
from holdfast.web.requests.filters import FIELDS, filters_of, page_of
from holdfast.web.requests.shapes import MOST_EVENTS, MOST_ROWS, Download, PageAnswer, PageCall
from holdfast.web.requests.site import Site

MOMENT = ("status", "turn", "goal", "waiting", *KEYFRAME)
"""The sections that the page shows of a moment."""

HEADER = (
    "id",
    "agent",
    "status",
    "stage",
    "phase",
    "turn",
    "seq",
    "user",
    "thread",
    "parent",
    "goal",
    "failure",
    "budget",
)

_WAITS: dict[str, str] = {**LABELS}
COUNTS_SECONDS = 1.0
AGENTS_SECONDS = 5.0
MOST_INTERRUPTED = 500
MOST_STRIPS = 50
MOST_COMPARED = 2_000
MOST_LINEAGE = 20


def about(call: PageCall) -> PageAnswer:
    """What this page is: version, store, namespace, who acts, and what they may."""
    settings = call.site.settings
    told = {name: getattr(settings, name) for name in ("store", "namespace", "read_only", "loopback", "one_of_many")}
    known = call.site.known
    asks = sorted(name for name, one in known.tools.items() if one.reconcile is not None)
    told |= {"agents": sorted(known.agents), "reconciles": asks}
    told["demo"] = known.demo is not None and call.person.may("steer")
    more = {"by": call.person.id, "rights": [one for one in RIGHTS if call.person.may(one)], "filters": FIELDS}
    return PageAnswer({"version": __version__, **told, **more, "limits": {"rows": MOST_ROWS, "events": MOST_EVENTS}})


def agents(call: PageCall) -> PageAnswer:
    """The agents of the page's file: what each takes, its state if that is typed (JSON Schema), what it does."""
    told = [
        {
            "name": name,
            "input": one.input_schema,
            "state": one.state_schema,
            "stages": list(one.stages),
            "about": (one.__doc__ or "").strip(),
        }
        for name, one in sorted(call.site.known.agents.items())
    ]
    return PageAnswer({"agents": told})


# Many tasks


def tasks(call: PageCall) -> PageAnswer:
    """Tasks, newest first, by a filter; `after` is the `next` of the page before.

    `place` is where a stream begins that misses nothing of what changes from now on: `/stream?after=`.
    """
    limit = call.number("limit", 50, least=1, most=MOST_ROWS)
    after = call.text("after") or None
    place = (
        None if after else call.app.watch().cursor
    )  # read first: what changes meanwhile comes twice, and is not missed
    part = page_of(call.app, filters_of(call.text("q")), after, limit)
    rows = [row_json(row, interrupted=call.app.is_interrupted(row)) for row in part.rows]
    return PageAnswer({"tasks": rows, "next": part.next, "looked_at": part.looked_at, "place": place})


def counts(call: PageCall) -> PageAnswer:
    """How many tasks there are of each status; kept for a second. `?by=agent` counts them by agent and stage too."""
    found = call.site.kept("counts", COUNTS_SECONDS, lambda: counted(call.app))
    if call.text("by") != "agent":
        return PageAnswer(found)
    return PageAnswer({**found, **call.site.kept("counts by agent", AGENTS_SECONDS, lambda: _by_agent(call.app))})


def counted(app: App) -> dict[str, Any]:
    """Count tasks: kept numbers, and the running ones whose process is dead."""
    known = app.counts()
    running = known.by_status.get("running", 0)
    dead = [row.id for row in app.list(interrupted=True, limit=MOST_INTERRUPTED)] if running else []
    told = {"by_status": known.by_status, "in_doubt": known.in_doubt, "interrupted": len(dead)}
    return {**told, "dead": dead, "tasks": known.tasks, "as_of": iso(app.clock.now_us())}


def _by_agent(app: App) -> dict[str, Any]:
    """Count the newest tasks by agent, and by agent and stage. It reads their rows, so no first screen asks for it."""
    rows = app.list(limit=values.MAX_PAGE_SIZE)
    stages: dict[str, Counter[str]] = {}
    for row in rows:
        if row.stage:
            stages.setdefault(row.agent, Counter())[row.stage] += 1
    return {"by_agent": Counter(row.agent for row in rows), "by_stage": stages, "looked_at": len(rows)}


def strips(call: PageCall) -> PageAnswer:
    """How up to 50 tasks went, in a line each: `?id=` for each of them."""
    found = {id: _strip(call, id) for id in call.query.get("id", [])[:MOST_STRIPS]}
    return PageAnswer({"strips": {id: one for id, one in found.items() if one is not None}})


def _strip(call: PageCall, id: str) -> dict[str, Any] | None:
    try:
        return call.site.went(id, lambda went: _strip_of(call.app, call.app.get(id), went))
    except HoldfastError as error:  # one task that can't be read must not hide the others
        return None if isinstance(error, TaskNotFound) else {"pieces": [], "came": error.message, "damaged": True}


def _strip_of(app: App, task: TaskState, went: Waterfall) -> dict[str, Any]:
    used, limits = task.budget.used, task.budget.limits
    share = max((used[name] / most for name, most in limits.items() if most), default=None)
    took_ms = (went.at_us - went.start_us) // 1000
    told = {"pieces": strip(went, app.clock.now_us()), "stages": list(went.stages), "came": _came(task, went)}
    return {**told, "took_ms": took_ms, "cost": money(used.get("cost") or None), "share": share, "seq": went.seq}


def _came(task: TaskState, went: Waterfall) -> str:
    """What a list says beside a task: why it waits, what it does, or what came of it."""
    if task.status == "completed":
        return short(task.stored_result)
    if task.failure is not None and task.status == "failed":
        first = task.failure.cause or task.failure
        return short(f"{first.type}: {first.message}{f' in {task.failure.step}' if task.failure.step else ''}")
    waiting = task.waiting
    if waiting is not None:
        asked = next((one for one in waiting.on if one["kind"] in ("person", "approval", "doubt")), None)
        told = {} if asked is None else asked
        match told.get("kind"):
            case "approval":
                return short(f"approval requested: {told['tool'] or told['name']}{_called(told['arguments'])}")
            case "doubt":
                return short(f"{told['key']} is in doubt")
            case "person":
                return short(f"asks: {told['prompt'] or told['name']}")
            case _ if waiting.kind == "no_worker":
                return short(in_commands(waiting.why or "no worker is running").partition(";")[0])
            case _:
                told_kind = _WAITS.get(waiting.kind) or f"waits for {waiting.kind.replace('_', ' ')}"
                return short(f"{told_kind}{': ' + waiting.why if waiting.why else ''}")
    row = next(reversed(went.rows.values()), None)
    return "" if row is None or task.status != "running" else short(f"{row.name}, attempt {row.attempts}")


def _called(arguments: dict[str, Any]) -> str:
    return f"({', '.join(f'{name}={short(value)}' for name, value in arguments.items())})"


# One task


def task(call: PageCall) -> PageAnswer:
    """A task's header, now or at a seq: status, stage, position, worker, budget, lineage, what it waits for."""
    id, at = call.at["id"], call.number("at", 0)
    found = call.app.at(id, at) if at else call.app.get(id)
    body = call.site.went(id, lambda went: header(call.site, found, went, is_now=not at))
    lasting = {name: one for name, one in body.items() if name != "now_ms"}
    return PageAnswer(body, etag=f"{id}:{at or found.seq}:{values.fingerprint(lasting)}")


def header(site: Site, found: TaskState, went: Waterfall, *, is_now: bool) -> dict[str, Any]:
    """What stands above a task's timeline."""
    app = site.app
    forks = app.forks(found.id) if is_now else []
    told = found.to_dict(sections=HEADER)
    steps = [row for row in went.rows.values() if row.last <= found.seq or row.first <= found.seq]
    done = sum(row.status == "completed" and row.last <= found.seq for row in steps)
    waiting = found.waiting
    lane = went.lanes[-1] if went.lanes else None
    return {
        **told,
        "result": value_of(found.stored_result, found.id, found.seq, "result"),
        "is_now": is_now,
        "head": went.seq,
        "interrupted": is_now and found.interrupted,
        "cancelling": is_now and found.cancelling,
        "holder": holder_json(site, found.holder),
        "held_since": None if lane is None else lane.start_us // 1000,
        "stages": list(went.stages),
        "steps": {"known": len(steps), "committed": done},
        "deadline": None if found.deadline is None else iso(int(found.deadline.timestamp() * 1_000_000)),
        "created_at": iso(int(found.created_at.timestamp() * 1_000_000)),
        "children": [row.id for row in app.list(parent=found.id, limit=MOST_LINEAGE)] if is_now else [],
        "forks": {"count": len(forks), "newest": forks[-MOST_LINEAGE:]},
        "waiting": None if waiting is None else {"kind": waiting.kind, "why": waiting.why},
        "inbox": [entry(one) for one in app.inbox(found.id)] if is_now and waiting is not None else [],
        "digest": found.digest,
        "now_ms": app.clock.now_us() // 1000,
    }


def rows(call: PageCall) -> PageAnswer:
    """A task's timeline: a short array for each event."""
    after = call.number("after", 0)
    limit = call.number("limit", MOST_EVENTS, least=1, most=MOST_EVENTS)
    upto = call.number("upto", values.MAX_SEQ)
    events = islice(call.app.events(call.at["id"], after=after), limit)
    return PageAnswer({"rows": [row_of(call.app, one) for one in events if one.seq <= upto]})


def steps(call: PageCall) -> PageAnswer:
    """The waterfall: rows of steps with their bars, lanes of who held the task, and its stages."""
    upto = call.number("upto", 0) or None
    return PageAnswer(call.site.went(call.at["id"], lambda went: waterfall(call.site, went), upto))


def waterfall(site: Site, went: Waterfall) -> dict[str, Any]:
    """How a task went, as JSON; times in milliseconds."""
    told = {"steps": [step_row(row) for row in went.rows.values()], "lanes": lanes(site, went), "seq": went.seq}
    return {**told, "start_ms": went.start_us // 1000, "at_ms": went.at_us // 1000, "stages": list(went.stages)}


def lanes(site: Site, went: Waterfall) -> list[dict[str, Any]]:
    """Who held the task, as JSON."""
    return [
        {"holder": holder_json(site, lane.holder), "seq": lane.seq, "start": lane.start_us // 1000, "end": lane.end}
        | {"until": None if lane.end_us is None else lane.end_us // 1000}
        for lane in went.lanes
    ]


_ROW = (
    "key",
    "name",
    "turn",
    "tool",
    "effect",
    "status",
    "given",
    "came",
    "child",
    "attempts",
    "tokens",
    "first",
    "last",
)


def step_row(row: StepRow) -> dict[str, Any]:
    """A row of the waterfall, as JSON."""
    bars = [[bar.kind, bar.start_us // 1000, None if bar.end_us is None else bar.end_us // 1000] for bar in row.bars]
    return {**{name: getattr(row, name) for name in _ROW}, "cost": money(row.cost), "bars": bars}


def state(call: PageCall) -> PageAnswer:
    """What a task knew at a seq (a keyframe): state, facts, plan, questions, flags, notes, artifacts, checkpoints.

    `sections=state,facts` are some of them, or others of a task's document, such as budget.
    """
    id, at = call.at["id"], call.number("at", 0)
    wanted = tuple(filter(None, call.text("sections").split(","))) or MOMENT
    found = call.app.at(id, at) if at else call.app.get(id)
    doc = found.to_dict(sections=wanted)
    return PageAnswer({"seq": found.seq, "doc": doc}, etag=f"{id}:{found.seq}:{','.join(wanted)}")


def deltas(call: PageCall) -> PageAnswer:
    """What each event after a seq changed in those sections: `[seq, ops]`, ops are RFC 6902."""
    after, limit = call.number("after", 0), call.number("limit", 500, least=1, most=MOST_EVENTS)
    upto = min(call.app.head(call.at["id"]), after + limit)
    return PageAnswer({"deltas": deltas_of(call.app, call.at["id"], after, upto), "upto": upto})


def deltas_of(app: App, id: str, after: int, upto: int) -> list[Any]:
    """The deltas of the events after one seq up to another, as the page applies them."""
    if upto <= after:
        return []
    return [[one.seq, one.ops] for one in app.deltas(id, after=after, upto=upto, sections=MOMENT)]


def verify(call: PageCall) -> PageAnswer:
    """Walk a task's chain of digests; problems with their seq."""
    found = call.app.verify(call.at["id"])
    problems = [{"seq": one.seq, "why": one.why} for one in found.problems]
    return PageAnswer({"ok": found.ok, "events": found.events, "erased": found.erased, "problems": problems})


def export(call: PageCall) -> Download:
    """A task's log as JSON Lines, lossless, to be saved."""
    if not call.app.head(call.at["id"]):
        call.app.get(call.at["id"])  # which says why it is not there, before an answer has begun
    lines = (line.rstrip(b"\n") + b"\n" for line in call.app.export_lines(call.at["id"]))
    return Download(lines, "task.jsonl", "application/octet-stream")


def compare(call: PageCall) -> PageAnswer:
    """Two tasks: how much of their past is the same, and their later events in pairs, up to 2,000 of each."""
    app, ids = call.app, (call.text("a"), call.text("b"))
    logs = [list(islice(app.events(id), MOST_EVENTS)) for id in ids]
    shared = common_past(*logs)
    later = [log[shared : shared + MOST_COMPARED] for log in logs]
    pairs = [[None if one is None else row_of(app, one) for one in pair] for pair in paired(*later)]
    tasks = [{**_compared(call, id), "forked": _forked(app, log)} for id, log in zip(ids, logs, strict=True)]
    return PageAnswer(
        {
            "common": shared,
            "pairs": pairs,
            "tasks": tasks,
            "cut": any(len(log) > MOST_COMPARED + shared for log in logs),
        }
    )


def _forked(app: App, log: list[LoggedEvent]) -> dict[str, Any] | None:
    """Where a fork began, who made it, and what it was begun with; None of a task that is not one."""
    found = next((index for index in reversed(range(len(log))) if isinstance(log[index].event, TaskForked)), None)
    if found is None:
        return None
    told = {name: getattr(log[found].event, name) for name in ("parent", "at", "by", "effects")}
    patched = [one for one in log[found + 1 : found + 2] if isinstance(one.event, StatePatched)]
    return {**told, "patch": short(describe(patched[0], app.fetch).value) if patched else ""}


def _compared(call: PageCall, id: str) -> dict[str, Any]:
    found = call.app.get(id)
    told = call.site.went(id, lambda went: header(call.site, found, went, is_now=True))
    return {
        **told,
        "took_ms": call.site.went(id, lambda went: (went.at_us - went.start_us) // 1000),
        "doc": found.to_dict(sections=MOMENT),
    }
