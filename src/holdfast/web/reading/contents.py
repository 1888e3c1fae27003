"""What a task holds, as JSON: its conversation, decisions, artifacts, failures, and large values to be saved."""

from __future__ import annotations

import base64
import binascii
import os
from itertools import islice
from typing import Any

from holdfast.core.errors import InvalidValue, TaskNotFound
from holdfast.core.events import ArtifactAdded, Failure
from holdfast.engine.lists.chat import ChatEntry, chat
from holdfast.engine.reading import values
from holdfast.engine.reading.describe import as_json as event_json, value_in
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.reading.values import LoggedEvent
from holdfast.web.reading.shown import brief, href_of, value_of
from holdfast.web.requests.shapes import MOST_ROWS, Download, PageAnswer, PageCall

MOST_FAILED = 50
"""How many tasks that failed one answer looks at for the same failure."""

TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"


def moment_of(call: PageCall, name: str = "upto") -> TaskState:
    """The task of a request, now or at the seq that a parameter names."""
    at = call.number(name, 0)
    return call.app.at(call.at["id"], at) if at else call.app.get(call.at["id"])


# The conversation


def messages(call: PageCall) -> PageAnswer:
    """The conversation of a task: messages in one form, calls with their results; `after` a seq, `limit` of them."""
    found = moment_of(call)
    after, limit = call.number("after", 0), call.number("limit", MOST_ROWS, least=1, most=MOST_ROWS)
    entries = [one for one in chat(found.events(), call.app.fetch) if one.seq > after]
    told = [_entry(call, one) for one in entries[:limit]]
    more = {"next": entries[limit - 1].seq if len(entries) > limit else None, "user": found.user}
    return PageAnswer({"messages": told, "seq": found.seq, **more})


def _entry(call: PageCall, entry: ChatEntry) -> dict[str, Any]:
    id, told = call.at["id"], values.as_json(entry)
    seq, _, field = entry.source.partition("/")
    told["at_ms"] = told.pop("at_us") // 1000
    told["cost"] = None if entry.cost is None else f"{entry.cost:.6f}"
    for part in told["parts"]:
        part["text"] = value_of(part["text"], id, int(seq or 0), field)
    for one in told["calls"]:
        place, _, pointer = one.pop("source").partition("/")
        one["brief"] = brief(one["result"])
        one["result"] = value_of(one["result"], id, int(place or 0), pointer)
        one["href"] = href_of(id, int(place or 0), pointer)
        one["arguments"] = value_of(one["arguments"], id, int(seq or 0), field)
    return told


# Decisions, and what was made


def decisions(call: PageCall) -> PageAnswer:
    """The decisions of a task: the choice, why, the options not taken, when and where."""
    found = moment_of(call)
    return PageAnswer({"decisions": found.decisions, "seq": found.seq})


def artifacts(call: PageCall) -> PageAnswer:
    """What a task made: type, summary, bytes, the step and seq it was made at, and where its data is."""
    found = moment_of(call)
    made = {one.event.artifact_id: one.seq for one in found.events() if isinstance(one.event, ArtifactAdded)}
    shown = ("id", "type", "summary", "bytes", "step")
    told = [
        {**{name: getattr(one, name) for name in shown}, "seq": made.get(one.id, 0)} for one in found.artifacts.values()
    ]
    return PageAnswer({"artifacts": told, "seq": found.seq})


def blob(call: PageCall) -> Download:
    """One value of an event, whole, to be saved: `pointer` is its place, such as `result` or `input/batch`."""
    record = event_at(call, call.at["task"])
    value = value_in(record, call.at["pointer"], call.app.fetch)
    if isinstance(value, str) and _is_binary(str(getattr(record.event, "type", ""))):
        try:
            return Download([base64.b64decode(value, validate=True)], "artifact", BYTES)
        except binascii.Error:
            pass  # it is text, whatever its type says
    text = value if isinstance(value, str) else values.text(value)
    return Download([text.encode("utf-8", "replace")], "value.txt", TEXT)


def _is_binary(kind: str) -> bool:
    """Whether data of a type is bytes, which a log holds in base64."""
    family, _, rest = kind.partition("/")
    plain = ("json", "xml", "javascript", "yaml")
    return family in ("image", "audio", "video", "font") or (
        family == "application" and not any(one in rest for one in plain)
    )


def event_at(call: PageCall, id: str) -> LoggedEvent:
    """The event that a request names; refuses a seq that is not there."""
    given = call.at["seq"]
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise InvalidValue(f"{given!r} is not a seq", hint="seqs are whole numbers from 1 on")
    seq = int(given)
    found = next(call.app.events(id, after=max(0, seq - 1), limit=1), None)
    if found is None or found.seq != seq:
        call.app.at(id, seq)  # which says that there is no such seq
        raise TaskNotFound(id)
    return found


def event(call: PageCall) -> PageAnswer:
    """Everything about one event."""
    found = event_at(call, call.at["id"])
    return PageAnswer({**event_json(found, call.app.fetch), "digest": found.digest.hex()}, etag=found.digest.hex())


def digests(call: PageCall) -> PageAnswer:
    """The digests of events after a seq, in short: `[seq, digest]`."""
    limit = call.number("limit", MOST_ROWS, least=1, most=MOST_ROWS)
    found = islice(call.app.events(call.at["id"], after=call.number("after", 0)), limit)
    return PageAnswer({"digests": [[one.seq, one.digest.hex()[:12]] for one in found]})


# Steps and failures


def step(call: PageCall) -> PageAnswer:
    """Everything about one step: arguments, result, each attempt and its failure."""
    id, found = call.at["id"], call.app.step(call.at["id"], call.at["key"])
    tries = [
        {"number": one.number, "seq": one.seq, "at_ms": int(one.at.timestamp() * 1000), **_failure(call, one.failure)}
        for one in found.all_attempts
    ]
    given = {name: value_of(value, id, found.after, f"input/{name}") for name, value in found.input.items()}
    told = {**found.to_dict(), "input": given, "result": value_of(found.result, id, found.after, "result")}
    told["failures"] = [_failure(call, one) for one in found.failures]
    told["failure"] = None if found.failure is None else _failure(call, found.failure)
    return PageAnswer({**told, "tries": tries})


def _failure(call: PageCall, failure: Failure | None) -> dict[str, Any]:
    """A failure with its frames, and what it came of. Paths are as short as they can be, unless --debug."""
    if failure is None:
        return {"type": "", "message": "", "frames": [], "causes": []}
    chain = [failure]
    while chain[-1].cause is not None:
        chain.append(chain[-1].cause)
    told = [
        {"type": one.type, "message": one.message, "frames": [_frame(call, line) for line in one.traceback]}
        for one in chain
    ]
    return {**told[0], "code": failure.code, "notes": list(failure.notes), "causes": told[1:]}


def _frame(call: PageCall, line: str) -> str:
    """A frame, with its path as seen from here, or without the folders that it lies in."""
    path, _, rest = line.partition(":")
    if call.site.settings.debug or not os.path.isabs(path):
        return line
    here = os.path.relpath(path)
    return f"{here if not here.startswith(os.pardir) else os.path.basename(path)}:{rest}"


def same_failure(call: PageCall) -> PageAnswer:
    """Other tasks of the agent that failed in the same way, newest first; `next` leads to older ones, 50 at a time."""
    found = call.app.get(call.at["id"])
    failure = found.failure
    if failure is None:
        return PageAnswer({"tasks": [], "looked_at": 0, "next": None})
    after, limit = call.text("after") or None, call.number("limit", MOST_FAILED, least=1, most=MOST_FAILED)
    rows = call.app.list(status="failed", agent=found.agent, include=("failure",), limit=limit, after=after)
    same = [row.id for row in rows if row.id != found.id and _same(getattr(row, "failure", None), failure)]
    return PageAnswer({"tasks": same, "looked_at": len(rows), "next": rows[-1].id if len(rows) == limit else None})


def _same(one: Failure | None, two: Failure) -> bool:
    return one is not None and (one.type, one.message, one.step) == (two.type, two.message, two.step)
