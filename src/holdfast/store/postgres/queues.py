"""Queues of a PostgreSQL store.

A claim is one transaction of two round trips: find tasks that no other claims, then write to their logs that they are
taken. Rows that another worker has locked are passed over, so any number of workers find different tasks. The same
locks keep everybody who appends out of those logs meanwhile.

A claim does not wait for the disk. One that the server loses as it goes down was never made: nothing that counts
is written after it without writing it too, and its worker learns with the first write that the task is not its
own. Taking a task from another process waits for the disk, so that never two claims in a row can be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.types.numeric import Int8

from holdfast.core.codec import Head, Stored
from holdfast.failpoints import failpoint
from holdfast.store import queues
from holdfast.store.columns import to_summary
from holdfast.store.postgres.liveness import Liveness
from holdfast.store.postgres.polling import PollingListener
from holdfast.store.postgres.rows import Seen, plan
from holdfast.store.postgres.server import queries
from holdfast.store.postgres.server.connecting import Link, is_lost, is_refusal, translated
from holdfast.store.postgres.server.connections import Connections, Question
from holdfast.store.postgres.server.hearing import PostgresWakeListener
from holdfast.store.postgres.server.queries import BEGIN, COMMIT
from holdfast.store.postgres.server.statements import Ints, Texts
from holdfast.store.queues import (
    EVER_US,
    Claim,
    ClaimRequest,
    Due,
    Loss,
    QueueDepth,
    Rate,
    ServedRow,
    Slot,
    Taken,
    WaitDepth,
)


class PostgresQueues:
    """Claims and counts, by index."""

    def __init__(self, links: Connections, liveness: Liveness, snapshots_kept: int) -> None:
        self._links = links
        self._liveness = liveness
        self._snapshots_kept = snapshots_kept

    def claim(self, wanted: ClaimRequest, claim: Claim) -> Taken:
        return queues.in_rounds(wanted, lambda rest: self._try(rest, claim))

    def _try(self, wanted: ClaimRequest, claim: Claim) -> tuple[Taken, bool]:
        """Those that were taken, and whether that is all there was to look at."""
        with self._links.writing() as link:
            try:
                found = self._claim(link, wanted, claim)
                self._links.end(link)
                return found
            except psycopg.Error as error:
                if is_refusal(error):
                    return {}, True  # another worker was quicker, and nothing was written
                if is_lost(error, link):
                    self._links.lost()
                raise translated(error, self._links.address) from error
            finally:
                self._links.undo(link)

    def _claim(self, link: Link, wanted: ClaimRequest, claim: Claim) -> tuple[Taken, bool]:
        running, tokens = self._begin(link, wanted)
        most = queues.allowed(wanted, running)
        reach = {"limit": most * (queues.SPARE if wanted.is_limited else 1)}
        starts = queues.may_start(wanted, tokens)
        due = self._due(link, wanted, queues.full_keys(wanted, running), **reach, starts=starts) if most else {}
        chosen = queues.chosen(due, wanted, most, running, tokens)
        taken = queues.groups(chosen, claim)
        if not taken:
            return {}, True
        seen = Seen()
        seen.heads = {one.summary.id: one.head for one, _ in taken}
        planned = plan([group for _, group in taken], seen)
        assert planned is not None, "one statement can take any number of tasks"
        outcomes, batch = planned
        won = [one for (one, _), outcome in zip(taken, outcomes, strict=True) if isinstance(outcome, tuple)]
        text, bindings = batch.statement(self._snapshots_kept)
        failpoint("commit.before")
        left = {"tokens": tokens - queues.spent(won), "now": Int8(wanted.now_us)}
        rate: list[Question] = [] if wanted.rate is None else [(queries.PUT_RATE, {**_place(wanted), **left})]
        lazy: list[Question] = [] if any(one.summary.status == "running" for one in won) else [(queries.LAZY, None)]
        short = {due[one]: one.summary.id for one in won if one.head.seq < queues.SHORT}
        *_, rows, _ = self._links.together(
            link, (text, bindings), *rate, *lazy, (queries.SHORT_LOGS, {"logs": Ints(short)}), (COMMIT, None)
        )
        failpoint("commit.after")
        found: Taken = {one.summary.id: [] for one in won}
        for log, *row in rows.fetchall():
            found[short[log]].append(Stored(*row))
        return {name: rows if _is_whole(rows) else [] for name, rows in found.items()}, len(chosen) in (most, len(due))

    def _begin(self, link: Link, wanted: ClaimRequest) -> tuple[dict[str | None, int], float]:
        """Begin; if the queue has limits, as the only one who counts."""
        if not wanted.is_limited:
            return {}, 0.0
        place = _place(wanted)
        *_, counts, rates = self._links.together(
            link,
            (BEGIN, None),
            self._lock_of(wanted),
            (queries.RUNNING_BY_KEY, {**place, **_served(wanted)}),
            (queries.RATE, place),
        )
        running: dict[str | None, int] = dict(counts.fetchall())
        tokens, at_us = rates.fetchone() or (None, 0)
        if wanted.rate is None:
            return running, 0.0
        return running, queues.refilled(wanted.rate, tokens, at_us, wanted.now_us)

    def _lock_of(self, wanted: ClaimRequest) -> Question:
        """Lock a queue: by its name, or by a row where the server's locks are not to be trusted."""
        address = self._links.address
        if address.by_lease:
            return queries.LOCK_QUEUE_ROW, _place(wanted)
        return queries.LOCK_QUEUE, {**_place(wanted), "schema": address.schema}

    def _due(self, link: Link, wanted: ClaimRequest, full: list[str], *, limit: int, starts: bool) -> dict[Due, int]:
        """Tasks to take and their logs, locked: those that were lost first, then by priority, then the oldest."""
        bindings: dict[str, Any] = {**_place(wanted), "full": Texts(full), "limit": Int8(limit), "starts": starts}
        bindings |= {"reach": Int8(limit + queues.REACH), "now": Int8(wanted.now_us), **_served(wanted)}
        begun: list[Question] = [] if wanted.is_limited else [(BEGIN, None)]
        rows = self._links.together(link, *begun, (queries.DUE, bindings))[-1].fetchall()
        rows.sort(key=lambda row: (row[0], -row[_PRIORITY], row[1]))
        return {Due(to_summary(tuple(row[2:-2])), Head(row[-2], row[-1])): row[1] for row in rows}

    def lost(self) -> dict[str, Loss]:
        return self._liveness.lost()

    def tenants(self, queues: Sequence[str], now_us: int, lost: Sequence[str] = ()) -> list[str]:
        asked = {"queues": Texts(queues), "now": Int8(now_us), "lost": Texts(lost)}
        return [row[0] for row in self._links.rows(queries.TENANTS, asked)]

    def next_wake(self, namespace: str | None, queues: Sequence[str], after_us: int = EVER_US) -> int | None:
        place = {"namespace": namespace or "", "queues": Texts(queues), "after": Int8(after_us)}
        return self._links.row(queries.NEXT_WAKE_OF_ALL if namespace is None else queries.NEXT_WAKE, place)[0]

    def depths(self, namespace: str | None = None) -> list[QueueDepth]:
        return [QueueDepth(*row) for row in self._links.rows(queries.DEPTHS, {"namespace": namespace}, prepare=False)]

    def waits(self, namespace: str | None = None) -> list[WaitDepth]:
        return [WaitDepth(*row) for row in self._links.rows(queries.WAITS, {"namespace": namespace}, prepare=False)]

    def ready(self, namespace: str, queue: str, most: int) -> int:
        place = {"namespace": namespace, "queue": queue, "most": Int8(most)}
        return self._links.row(queries.COUNT_READY, place)[0]

    def reserve(self, tool: str, rate: Rate, now_us: int) -> Slot:
        """Reserve by the server's clock: those of several machines may differ by more than the rate's time."""
        wanted = queues.places(tool, rate)
        place: dict[str, Any] = {"owner": wanted.owner, "last": wanted.last, "window": Int8(wanted.window_us)}
        place["ahead"] = Int8(wanted.ahead_us)
        count, wait_us = self._reserved((queries.RESERVE, place))
        if not count:  # none is there yet, or others are at all of them
            fill: Question = (queries.FILL_PLACES, {"owner": wanted.owner, "names": Texts(wanted.names)})
            _, wait_us = self._reserved(fill, (queries.RESERVE_NEXT, place))
        return wanted.slot(wait_us)

    def _reserved(self, *statements: Question) -> Any:
        with self._links.writing() as link:
            try:
                *_, found, _ = self._links.together(
                    link, (BEGIN, None), (queries.LAZY, None), *statements, (COMMIT, None)
                )
                return found.fetchone()
            except psycopg.Error as error:
                if is_lost(error, link):
                    self._links.lost()
                raise translated(error, self._links.address) from error
            finally:
                self._links.undo(link)

    def announce(self, serves: str) -> None:
        self._links.presence().serve(serves)

    def announced(self) -> list[ServedRow]:
        return self._liveness.announced()

    def listen(self, kind: str = "") -> queues.WakeListener:
        if self._links.address.by_poll:
            return PollingListener(self._links)
        return PostgresWakeListener(self._links.presence(), self._links.address.schema, self._notify, kind)

    def _notify(self, channel: str, payload: str) -> None:
        self._links.rows(queries.NOTIFY, {"channel": channel, "payload": payload})


_PRIORITY = 13


def _is_whole(rows: list[Stored]) -> bool:
    """Return whether rows are all there is of a log: a fork's past is another's, and a body may have been erased."""
    return bool(rows) and rows[0].seq == 1 and all(row.body is not None for row in rows)


def _place(wanted: ClaimRequest) -> dict[str, str]:
    return {"namespace": wanted.namespace, "queue": wanted.queue}


def _served(wanted: ClaimRequest) -> dict[str, Texts]:
    agents, versions = (Texts(pair[which] for pair in wanted.served) for which in (0, 1))
    return {"agents": agents, "versions": versions, "lost": Texts(wanted.lost)}
