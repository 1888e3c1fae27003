"""An independent auditor: it reads a store's tables by itself and imports nothing of the engine or its stores.

    python -m holdfast.testing.auditor holdfast.db --acks acks.jsonl
    python -m holdfast.testing.auditor postgresql://user@host/database

It prints what it finds, one finding a line, and ends with 1 if there is any. The file of acknowledgements holds JSON
lines, `{"log": …, "seq": …, "digest": …}`, each written when an append had returned: all of them must be there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from holdfast.testing.auditor.tables import Tables, is_server, tables_at

Place = str | os.PathLike[str]

TERMINAL = {"task_completed": "completed", "task_failed": "failed", "task_cancelled": "cancelled"}
FIRST = {"task_created", "task_forked"}
AWAKENING = {"task_reopened", "rolled_back"}
LATE = {"step_observed", "child_spent", "task_diverged", "budget_raised"}
"""What may come after an end: late answers, what a child still spends, a loss that is noticed, a raised budget."""

LINKED = {
    "user_patched": b'"patch"',
    "message_added": b"",
    "state_patched": b'"by"',
    "child_spent": b'"child"',
    "task_created": b'"agent"',
    **dict.fromkeys(("step_completed", "step_failed", "attempt_failed"), b'"usage"'),
}
"""Events that are written together with events of other logs, and what their bodies have if they are."""


def audit(path: Place, acks: Place | None = None) -> list[str]:
    """Everything wrong with the store at a path; nothing if all is well."""
    return _audit(path, acks).findings


def main(arguments: list[str] | None = None) -> int:
    """Audit from the command line; 0 if all is well, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.auditor", description="Audit a store.")
    parser.add_argument("store", help="its file, or postgresql://…")
    parser.add_argument("--acks", help="JSON lines of what was acknowledged")
    chosen = parser.parse_args(arguments)
    for path in filter(None, (chosen.store, chosen.acks)):
        if not is_server(path) and not Path(path).is_file():
            parser.error(f"there is no file {path!r}")
    done = _audit(chosen.store, chosen.acks)
    for finding in done.findings:
        print(finding)
    count = len(done.findings)
    outcome = "ok" if count == 0 else "1 finding" if count == 1 else f"{count} findings"
    print(f"audited {len(done.logs)} logs, {done.events} events: {outcome}")
    return 1 if done.findings else 0


@dataclass(frozen=True)
class _Event:
    """An event's place in the chain."""

    seq: int
    kind: str
    at: int
    body_hash: bytes
    digest: bytes

    def follows(self, previous: bytes) -> bool:
        """Return whether the digest is that of all that came before, the place, kind, time and body."""
        place = struct.pack(">qq", self.seq, self.at)
        text = previous + place + self.kind.encode() + b"\n" + self.body_hash
        return hashlib.sha256(text).digest() == self.digest


@dataclass(frozen=True)
class _Linked:
    """An event that has to do with other logs."""

    kind: str
    at: int
    fields: dict[str, Any]


@dataclass
class _Log:
    """A log as its rows tell it."""

    number: int
    name: str
    parent: int | None
    base: int
    head: int
    events: list[_Event] = field(default_factory=list[_Event])
    digests: dict[int, bytes] = field(default_factory=dict[int, bytes])
    linked: list[_Linked] = field(default_factory=lambda: list[_Linked]())
    erased: bool = False

    @property
    def is_task(self) -> bool:
        """Logs of people, threads and records begin with an @."""
        return not self.name.startswith("@")

    @property
    def is_records(self) -> bool:
        """A log whose beginning may be gone, and whose bodies are not JSON."""
        return self.name.rpartition("!")[2].startswith("@records/")

    def told(self, *kinds: str) -> Iterator[_Linked]:
        """Return the messages to other logs, or from them."""
        return (one for one in self.linked if one.kind in kinds)


@dataclass
class _Audit:
    """What has been read and what was wrong with it."""

    tables: Tables
    logs: dict[int, _Log] = field(default_factory=dict[int, _Log])
    events: int = 0
    findings: list[str] = field(default_factory=list[str])
    stones: dict[str, tuple[int, bytes]] = field(default_factory=lambda: dict[str, tuple[int, bytes]]())

    def rows(self, name: str) -> Iterator[Any]:
        return self.tables.rows(name)

    def find(self, finding: str) -> None:
        self.findings.append(finding)


def _audit(path: Place, acks: Place | None) -> _Audit:
    tables = tables_at(os.fspath(path))
    one = _Audit(tables)
    try:
        _audit_file(one)
        _audit_logs(one)
        _audit_events(one)
        _audit_heads(one)
        _audit_tasks(one)
        _audit_groups(one)
        _audit_snapshots(one)
        _audit_blobs(one)
        _audit_acks(one, acks)
    except (ValueError, TypeError, struct.error) as error:
        one.find(f"the store cannot be read: {error}")
    finally:
        tables.close()
    return one


def _audit_file(one: _Audit) -> None:
    for (found,) in one.rows("integrity"):
        if found != "ok":
            one.find(f"integrity: {found}")


def _audit_logs(one: _Audit) -> None:
    """One log a name, none of them removed, every parent there. Records continue at their tombstone."""
    one.stones = {name: (seq, digest) for name, seq, digest in one.rows("tombstones")}
    names: set[str] = set()
    for number, name, parent, base in one.rows("logs"):
        log = one.logs[number] = _Log(number, name, parent, base, head=base)
        gone = one.stones.get(name, (0, b""))[0]
        if name in names or (gone and not log.is_records):
            one.find(f"{name}: there is more than one log of this name, or it was removed")
        if log.is_records and base != gone:
            one.find(f"{name}: begins at {base}, but what came before is gone up to {gone}")
        names.add(name)
    for log in one.logs.values():
        if log.parent is None and log.base and not log.is_records:
            one.find(f"{log.name}: begins at {log.base}, but has no parent")
        if log.parent is not None and log.parent not in one.logs:
            one.find(f"{log.name}: its parent, log number {log.parent}, is missing")


def _audit_events(one: _Audit) -> None:
    """Every event belongs to a log, follows the one before and has its body; then the chains."""
    erased, blobs = set(one.rows("erasures")), set(one.rows("blobs"))
    for number, seq, kind, at, body, body_hash, digest in one.rows("events"):
        one.events += 1
        log = one.logs.get(number)
        if log is None:
            one.find(f"log number {number}: event {seq} belongs to no log")
            continue
        if seq != log.head + 1:
            one.find(f"{log.name}: event {seq} follows {log.head}")
        if body is None and (number, seq) not in erased:
            one.find(f"{log.name}: event {seq} has lost its body")
        if body is not None and hashlib.sha256(body).digest() != body_hash:
            one.find(f"{log.name}: event {seq} has not the body it was written with")
        for hash in _blobs_of_record(body) if log.is_records else _blobs_named(body):
            if (hash,) not in blobs:
                one.find(f"{log.name}: event {seq} refers to blob {hash.hex()[:12]}, which is missing")
        log.head, log.digests[seq] = seq, digest
        log.events.append(_Event(seq, kind.decode(), at, body_hash, digest))
        log.erased |= body is None
        if body is not None and not log.is_records and LINKED.get(kind.decode(), b"\0") in body:
            log.linked.append(_Linked(kind.decode(), at, json.loads(body)))
    for log in one.logs.values():
        _audit_chain(one, log)


def _blobs_named(body: bytes | None) -> Iterator[bytes]:
    """The blobs an event refers to: in a field of its own, or in one of its inputs."""
    fields = cast("dict[str, Any]", json.loads(body)) if body is not None and b'"$blob"' in body else {}
    for value in (*fields.values(), *cast("dict[str, Any]", fields.get("input", {})).values()):
        if isinstance(value, dict) and "$blob" in value:
            yield bytes.fromhex(cast("dict[str, Any]", value)["$blob"])


def _blobs_of_record(body: bytes | None) -> Iterator[bytes]:
    """The blobs a record refers to: in the line before its data."""
    header = cast("dict[str, Any]", json.loads(body.partition(b"\n")[0])) if body is not None else {}
    for value in cast("dict[str, dict[str, Any]]", header.get("blobs", {})).values():
        yield bytes.fromhex(value["hash"])


def _audit_chain(one: _Audit, log: _Log) -> None:
    if not log.events:
        one.find(f"{log.name}: has no events")
    previous = _first_previous(one, log)
    for event in log.events:
        if not event.follows(previous):
            one.find(f"{log.name}: the digest of event {event.seq} does not follow from what came before")
        previous = event.digest


def _first_previous(one: _Audit, log: _Log) -> bytes:
    """Return the start of a chain: from the name, or for a fork the digest at its base, in whichever log that lies.

    Records whose beginning is gone chain from their tombstone.
    """
    if log.is_records and log.base:
        return one.stones.get(log.name, (0, b""))[1]
    above, seen = one.logs.get(log.parent or 0), {log.number}
    while above is not None and above.number not in seen:
        if log.base > above.base:
            if log.base not in above.digests:
                one.find(f"{log.name}: its past ends before {log.base}")
            return above.digests.get(log.base, b"")
        seen.add(above.number)
        above = one.logs.get(above.parent or 0)
    return hashlib.sha256(b"holdfast log\n" + log.name.rpartition("!")[2].encode()).digest()


def _audit_heads(one: _Audit) -> None:
    """Check that each head that is stored beside the events is the last event."""
    for number, seq, digest in one.rows("heads"):
        log = one.logs[number]
        if (seq, digest) != (log.head, log.digests.get(log.head)):
            one.find(f"{log.name}: its row has the head {seq}, but its last event is {log.head}")


def _audit_tasks(one: _Audit) -> None:
    """Every task has its row, at a head it has had, with the end its events tell."""
    rows = {number: rest for number, *rest in one.rows("tasks")}
    for number in rows.keys() - one.logs.keys():
        one.find(f"log number {number}: a task without a log")
    for log in one.logs.values():
        ended = _end_told(one, log) if log.is_task else None
        if not log.is_task and log.number in rows:
            one.find(f"{log.name}: is not a task, but has a row in tasks")
            continue
        if log.number not in rows:
            if log.is_task and log.events and log.events[0].kind in FIRST:
                one.find(f"{log.name}: has no row in tasks")
            continue
        status, anchor_seq, anchor_digest = rows[log.number]
        if log.digests.get(anchor_seq) != anchor_digest:
            one.find(f"{log.name}: was at {anchor_seq} with another digest, and is at {log.head} now")
        if ended != (status if status in TERMINAL.values() else None):
            one.find(f"{log.name}: is {status} in tasks, but {ended or 'not ended'} by its events")


def _end_told(one: _Audit, log: _Log) -> str | None:
    """Return how a task ended, by its events. Only late observations may follow an end, unless it is undone."""
    ended: str | None = None
    for event in log.events:
        if event.kind in AWAKENING:
            ended = None
        elif ended is not None and event.kind not in LATE:
            one.find(f"{log.name}: event {event.seq}, {event.kind}, comes after the task was {ended}")
        ended = TERMINAL.get(event.kind, ended)
    return ended


def _audit_groups(one: _Audit) -> None:
    """Check that a group is in all of its logs, as often in one as in the other."""
    by_name = {log.name: log for log in one.logs.values()}
    for log in one.logs.values():
        created = _created(one, log)
        user = by_name.get(f"@user/{created.get('user')}")
        if log.is_task and user is not None:
            _audit_user(one, log, user)
        thread = by_name.get(f"@thread/{created.get('thread')}")
        if log.is_task and thread is not None and log.parent is None and not created.get("contract"):
            _audit_thread(one, log, thread)
        payers: list[str] = created.get("payers", []) if log.parent is None else []  # a fork has no payer
        for payer in filter(None, map(by_name.get, payers)):
            _audit_payer(one, log, payer)


def _created(one: _Audit, log: _Log) -> dict[str, Any]:
    """Return the first event of a task; a fork's is that of its origin."""
    seen: set[int] = set()
    above: _Log | None = log
    while above is not None and above.number not in seen:
        for first in above.told("task_created"):
            return first.fields
        seen.add(above.number)
        above = one.logs.get(above.parent or 0)
    return {}


def _audit_user(one: _Audit, log: _Log, user: _Log) -> None:
    """Check that a task's changes of its user's state are in the user's log, unless the task was copied without it."""
    if log.erased or user.erased or not user.events:
        return
    begun = user.events[0].at
    said = Counter(_shape(event.fields.get("patch")) for event in log.told("user_patched") if event.at >= begun)
    patches = (event.fields for event in user.told("state_patched"))
    done = Counter(_shape(one.get("patch")) for one in patches if one["by"].endswith(f" in task {log.name}"))
    if lost := (said - done).total():
        one.find(f"{log.name}: {lost} of its changes to its user are not in {user.name}")
    if more := (done - said).total():
        one.find(f"{user.name}: has {more} changes by {log.name}, which does not know of them")


def _audit_thread(one: _Audit, log: _Log, thread: _Log) -> None:
    """Check that a task's messages are in its thread, as often. A rollback removes none there."""
    if log.erased or thread.erased or not thread.events:
        return
    begun = thread.events[0].at
    count = sum(event.at >= begun for event in log.told("message_added"))
    told = sum(event.fields.get("task") == log.name for event in thread.told("message_added"))
    if told != count:
        one.find(f"{log.name}: has {count} messages, of which {told} are in {thread.name}")


def _audit_payer(one: _Audit, log: _Log, payer: _Log) -> None:
    """Check that a child's usage is recorded once in the log that pays for it."""
    if log.erased or payer.erased:
        return
    recorded = (event.fields.get("usage") for event in log.told("step_completed", "step_failed", "attempt_failed"))
    told = [event.fields for event in payer.told("child_spent") if event.fields["child"] == log.name]
    spent = Counter(_shape(usage) for usage in recorded if usage)
    paid = Counter(_shape(one["usage"]) for one in told if one.get("usage") and not one.get("lost"))
    if lost := (spent - paid).total():
        one.find(f"{log.name}: {lost} of its steps used up something that {payer.name} has no record of")
    if more := (paid - spent).total():
        one.find(f"{payer.name}: pays {more} times for what {log.name} has not used up")


def _shape(value: Any) -> str:
    """A value as a text to compare."""
    return json.dumps(value, sort_keys=True)


def _audit_snapshots(one: _Audit) -> None:
    for number, seq, digest in one.rows("snapshots"):
        log = one.logs.get(number)
        if log is None or log.digests.get(seq) != digest:
            one.find(f"{log.name if log else number}: the snapshot at {seq} is of no event that is there")


def _audit_blobs(one: _Audit) -> None:
    there = {hash for (hash,) in one.rows("blobs")}
    for hash, number in one.rows("blob_uses"):
        log = one.logs.get(number)
        if log is None:
            one.find(f"log number {number}: uses blob {hash.hex()[:12]}, but is not a log")
        elif hash not in there:
            one.find(f"{log.name}: uses blob {hash.hex()[:12]}, which is missing")


def _audit_acks(one: _Audit, acks: Place | None) -> None:
    """Check that everything acknowledged is there, unless its whole log was removed."""
    by_name = {log.name: log for log in one.logs.values()}
    removed = {name: seq for name, (seq, _) in one.stones.items()}
    for ack in _acks(acks):
        log = by_name.get(ack["log"])
        found = log.digests.get(ack["seq"]) if log else None
        if found is None and ack["seq"] <= removed.get(ack["log"], 0):
            continue
        if found is None:
            one.find(f"{ack['log']}: event {ack['seq']} was acknowledged and is not there")
        elif found.hex() != ack["digest"]:
            one.find(f"{ack['log']}: event {ack['seq']} was acknowledged with another digest")


def _acks(path: Place | None) -> Iterator[dict[str, Any]]:
    """The acknowledgements. A last line without its end was being written when its writer was killed."""
    whole = b"" if path is None else Path(path).read_bytes().rpartition(b"\n")[0]
    for line in whole.splitlines():
        yield json.loads(line)
