"""How a task went, in time: a row of bars for each step, and a lane of who held the task.

Events say when something was recorded. Here they become spans: tries, pauses between them, waits, calls in doubt, and
the time in which a worker held the task. A worker that was killed writes nothing: its lane ends with the last event
that it wrote, and is shown as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast

from msgspec import Raw, Struct

from holdfast.core import codec, events as ev
from holdfast.core.codec import Fetch, LoggedEvent
from holdfast.core.errors import ValueDamaged
from holdfast.engine.reading.values import shown

BarKind = Literal["run", "done", "failed", "killed", "pause", "wait", "child", "doubt"]

SHOWN = 90
"""How many characters of arguments and results a row has."""

LARGE = 2_048
"""Results with more characters than this, as JSON, are shown by their beginning."""

DAMAGED = "(damaged)"

MOST_PIECES = 64
"""How many pieces a strip has at the most."""


class Bar(Struct, array_like=True):
    """A span of a row: what it was, from when, until when; without an end it is still so."""

    kind: BarKind
    start_us: int
    end_us: int | None = None


class StepRow(Struct, kw_only=True):
    """A step, a wait or an approval, and how it went."""

    key: str
    name: str
    turn: int = 0
    tool: str = ""
    effect: str = ""
    status: str = "running"
    given: str = ""
    came: str = ""
    child: str = ""
    attempts: int = 1
    tokens: int = 0
    cost: float | None = None
    first: int = 0
    last: int = 0
    bars: list[Bar] = []

    def open(self, *kinds: BarKind) -> Bar | None:
        """Return the last bar, if it is of such a kind and has no end yet."""
        bar = self.bars[-1] if self.bars else None
        return bar if bar is not None and bar.end_us is None and bar.kind in kinds else None


class Lane(Struct):
    """Who held the task, from when, until when, and how that ended: released, killed, lost, or not yet."""

    holder: str
    seq: int
    start_us: int
    end_us: int | None = None
    end: Literal["", "released", "killed", "lost"] = ""


_FREES = (ev.TaskReleased, ev.TaskSuspended, ev.TaskCompleted, ev.TaskFailed, ev.TaskCancelled)


class Waterfall:
    """Rows and lanes of one task, built from its events in order. `add` returns the row that an event changed."""

    def __init__(self, fetch: Fetch) -> None:
        self.rows: dict[str, StepRow] = {}
        self.lanes: list[Lane] = []
        self.stages: tuple[str, ...] = ()
        self.seq = 0
        self.start_us = 0
        self.at_us = 0
        self._fetch = fetch
        self._turn = 0

    def extend(self, records: Iterable[LoggedEvent]) -> list[StepRow]:
        """Add events; return the rows they changed, each once."""
        changed = {id(row): row for record in records for row in self.add(record)}
        return list(changed.values())

    def add(self, record: LoggedEvent) -> list[StepRow]:
        """Add the next event."""
        event, at_us = record.event, record.at_us
        self.start_us = self.start_us or at_us
        before_us, self.at_us, self.seq = self.at_us, at_us, record.seq
        if isinstance(event, ev.TaskClaimed):
            return self._claimed(event, record.seq, before_us, at_us)
        if isinstance(event, _FREES):
            self._freed(at_us)
        changed = self._of_task(event)
        row = self._row(event, record.seq)
        if row is None:
            return changed
        self._of_row(row, event, before_us, at_us)
        row.last = record.seq
        return [*changed, row]

    # Who held it

    def _claimed(self, event: ev.TaskClaimed, seq: int, before_us: int, at_us: int) -> list[StepRow]:
        """A claim over one that was not given back: its worker is dead, or was silent for too long."""
        changed: list[StepRow] = []
        if self.lanes and self.lanes[-1].end_us is None:
            self.lanes[-1].end_us = before_us
            self.lanes[-1].end = "killed" if event.taken in ("", "dead", "proven") else "lost"
            for row in self.rows.values():
                bar = row.open("run")
                if bar is not None:
                    bar.kind, bar.end_us = "killed", max(before_us, bar.start_us)
                    row.status = "interrupted"
                    changed.append(row)
        self.lanes.append(Lane(event.holder, seq, at_us))
        return changed

    def _freed(self, at_us: int) -> None:
        if self.lanes and self.lanes[-1].end_us is None:
            self.lanes[-1].end_us, self.lanes[-1].end = at_us, "released"

    # Rows

    def _of_task(self, event: ev.Event) -> list[StepRow]:
        match event:
            case ev.TaskCreated():
                self.stages = event.stages
            case ev.TurnStarted():
                self._turn = event.turn
            case ev.RolledBack():
                gone = [row for row in self.rows.values() if row.first > event.to]
                for row in gone:
                    row.status = "rolled back"
                return gone
            case _:
                pass
        return []

    def _row(self, event: ev.Event, seq: int) -> StepRow | None:
        """The row that an event is about. One that begins a step after a rollback begins a row of its own."""
        if not isinstance(event, _ABOUT_ROWS):
            return None
        key = event.key
        turn, _, rest = key.partition("/")
        address = key if turn.isdigit() and rest else f"{self._turn}/{key}" if self._turn else key
        row = self.rows.get(address)
        if row is not None and row.status == "rolled back":
            self.rows[f"{address}@{row.first}"] = self.rows.pop(address)
            row = None
        if row is None:
            name = getattr(event, "name", "") or rest.rpartition("#")[0] or key.rpartition("#")[0] or key
            row = self.rows[address] = StepRow(key=address, name=name, turn=self._turn, first=seq)
        row.tool = row.tool or getattr(event, "tool", "")
        row.effect = row.effect or (getattr(event, "effect", "") if row.tool else "")
        if not row.given and getattr(event, "input", None):
            row.given = self._arguments(getattr(event, "input", {}))
        return row

    def _of_row(self, row: StepRow, event: ev.Event, before_us: int, at_us: int) -> None:
        match event:
            case ev.StepStarted():
                _end(row, event.started_us or at_us, "pause", "wait")
                row.bars.append(Bar("run", event.started_us or at_us))
                row.status, row.attempts = "running", event.attempt
            case ev.AttemptFailed():
                self._tried(row, "failed", before_us, at_us)
                row.bars.append(Bar("pause", at_us, max(at_us, event.retry_us)))
                row.status, row.attempts = "retrying", event.attempt
                row.came = _cut(f"{event.failure.type}: {event.failure.message}")
                _spend(row, event.usage)
            case ev.StepCompleted():
                self._tried(row, "done", event.started_us or before_us, at_us)
                row.status, row.attempts, row.came = "completed", event.attempts, self._came(event.result)
                _spend(row, event.usage)
            case ev.StepFailed():
                self._tried(row, "failed", event.started_us or before_us, at_us)
                row.status, row.attempts = "failed", event.attempts
                row.came = _cut(f"{event.failure.type}: {event.failure.message}")
                _spend(row, event.usage)
            case ev.StepDoubted():
                if row.open("run"):
                    _end(row, at_us, "run")
                    row.bars[-1].kind = "failed" if event.failure is not None else "killed"
                since_us = row.bars[-1].end_us if row.bars and row.bars[-1].end_us else at_us
                row.bars.append(Bar("doubt", since_us))
                row.status = "in doubt"
            case ev.StepSettled():
                _end(row, at_us, "doubt", "run")
                row.status = "completed" if event.happened else "did not happen"
                row.came = self._came(event.result) if event.happened else "it did not happen"
            case ev.StepVoided():
                row.status = "voided"
            case _:
                self._of_wait(row, event, at_us)

    def _of_wait(self, row: StepRow, event: ev.Event, at_us: int) -> None:
        match event:
            case ev.WaitStarted():
                row.child = event.name if event.wait == "child" else ""
                row.bars.append(Bar("child" if row.child else "wait", at_us))
                row.status, row.effect = "waiting", event.wait
                row.given = self._text(event.prompt)
            case ev.WaitEnded():
                _end(row, at_us, "wait", "child")
                row.status = "expired" if event.expired else "failed" if event.failure is not None else "completed"
                row.came = self._came(event.value)
            case ev.ApprovalAsked():
                row.bars.append(Bar("wait", at_us))
                row.status = "approval requested"
            case ev.ApprovalGiven():
                _end(row, at_us, "wait")
                row.status = "approved"
            case ev.ApprovalRefused():
                _end(row, at_us, "wait")
                row.status = "expired" if event.expired else "rejected"
            case _:
                pass

    def _tried(self, row: StepRow, how: BarKind, start_us: int, at_us: int) -> None:
        """A try ended: the bar that is open, or one from the end of the last pause, or from when it began."""
        if row.open("run"):
            row.bars[-1].kind, row.bars[-1].end_us = how, at_us
            return
        _end(row, at_us, "doubt", "wait")
        last = row.bars[-1].end_us if row.bars else None
        row.bars.append(Bar(how, min(at_us, max(start_us, last or start_us)), at_us))

    # Values in short

    def _arguments(self, given: dict[str, Raw]) -> str:
        return _cut(", ".join(f"{name}={self._text(raw)}" for name, raw in given.items()))

    def _text(self, raw: Any) -> str:
        """A value as it is written in code."""
        value = self._value(raw)
        if isinstance(value, dict) and list(cast("dict[str, Any]", value)) == ["$messages"]:
            return "…"  # a window of the conversation, kept by its identity
        return value if value is DAMAGED else "" if value is None else _cut(codec.text(value))

    def _came(self, raw: Any) -> str:
        """A result as timelines show it: texts without quotes, of a reply what it says and which calls it asks for."""
        value = self._value(raw)
        if value is None or isinstance(value, str):
            return _cut(value or "")
        text = codec.text(value)
        return _cut(shown(value).removeprefix("assistant: ") if len(text) <= LARGE else text)

    def _value(self, raw: Any) -> Any:
        if not isinstance(raw, Raw):
            return None
        try:
            return codec.unpack(raw, self._fetch)
        except ValueDamaged:
            return DAMAGED


_ABOUT_ROWS = (
    *(ev.StepStarted, ev.AttemptFailed, ev.StepCompleted, ev.StepFailed, ev.StepDoubted, ev.StepSettled),
    *(ev.StepVoided, ev.WaitStarted, ev.WaitEnded, ev.ApprovalAsked, ev.ApprovalGiven, ev.ApprovalRefused),
)


def _end(row: StepRow, at_us: int, *kinds: BarKind) -> None:
    bar = row.open(*kinds)
    if bar is not None:
        bar.end_us = max(at_us, bar.start_us)


def _spend(row: StepRow, usage: ev.Usage | None) -> None:
    if usage is not None:
        row.tokens += usage.input_tokens + usage.output_tokens
        row.cost = usage.cost if row.cost is None else row.cost + (usage.cost or 0)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def strip(went: Waterfall, now_us: int) -> list[tuple[str, int]]:
    """How a task went, in a line: kinds and milliseconds, at most 64 of them. A kill takes no time.

    Branches run at the same time; here the first that begins is shown until it ends.
    """
    spans = sorted(
        ((bar.start_us, now_us if bar.end_us is None else bar.end_us, bar.kind) for bar in _bars(went)),
        key=lambda span: span[0],
    )
    kills = [lane.end_us for lane in went.lanes if lane.end in ("killed", "lost") and lane.end_us is not None]
    pieces: list[tuple[str, int]] = []
    until_us = 0
    for start_us, end_us, kind in spans:
        while kills and kills[0] <= start_us:
            kills.pop(0)
            pieces.append(("kill", 0))
        if end_us > until_us or start_us >= until_us:  # what took no time is there too, such as a pause that was over
            pieces.append((kind, max(1, (end_us - max(start_us, until_us)) // 1000)))
            until_us = max(until_us, end_us)
    pieces += [("kill", 0)] * len(kills)
    while len(pieces) > MOST_PIECES:
        pieces = _merged(pieces)
    return pieces


def _bars(went: Waterfall) -> Iterable[Bar]:
    return (bar for row in went.rows.values() for bar in row.bars)


def _merged(pieces: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Half as many: of two neighbours the longer one tells its kind. Kills stay as long as there is room."""
    found: list[tuple[str, int]] = []
    for index in range(0, len(pieces), 2):
        pair = pieces[index : index + 2]
        found.append((max(pair, key=lambda one: (one[0] == "kill", one[1]))[0], sum(ms for _, ms in pair)))
    return found
