"""From events of this process to spans: one fold for each task, caught up from the store where something is missing.

Each span is given out by one process: that of the life in which it ended. What ends between two lives, such as a wait
that a person ends, is given out by the life that follows. So a replay gives out nothing, and no span comes twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from holdfast.core import events as ev, limits
from holdfast.core.errors import TaskCollected, TaskNotFound
from holdfast.core.names import NAMESPACE_END
from holdfast.core.traces.attributes import Reader
from holdfast.core.traces.fold import TraceFold
from holdfast.core.traces.span import Span
from holdfast.engine.logs.committer import PlacedEvent
from holdfast.engine.logs.log import decoded
from holdfast.engine.logs.logs import Logs

_ENDINGS = (ev.TaskCompleted, ev.TaskFailed, ev.TaskCancelled)


def begin_fold(logs: Logs, log: str, *, content: bool = False) -> TraceFold:
    """Begin the fold of a task's log. A fork's own events begin where it left its parent."""
    tenant, _, task = log.rpartition(NAMESPACE_END)
    after = logs.segments(log)[-1].after
    reader = Reader(logs.blob) if content else None
    return TraceFold(logs.identity.id, task, tenant=tenant or logs.namespace, after=after, reader=reader)


def placed_events(logs: Logs, log: str, after: int, upto: int | None = None) -> Iterator[PlacedEvent]:
    """The events of a log as the fold takes them."""
    for name, row in logs.rows(log, after=after, upto=upto):
        yield PlacedEvent(row.seq, row.at_us, decoded(name, row))


class Traced:
    """One task: its fold, whether this process has the life under way, and spans that wait for the next life."""

    __slots__ = ("fold", "is_ours", "waiting")

    def __init__(self, fold: TraceFold) -> None:
        self.fold = fold
        self.is_ours = False
        self.waiting: list[Span] = []


class Tracer:
    """The folds of the tasks that this process writes to. Used by one thread."""

    def __init__(self, logs: Logs, *, content: bool = False) -> None:
        self._logs, self._content = logs, content
        self._holder = logs.store.holder()
        self._known: OrderedDict[str, Traced] = OrderedDict()

    def trace_id(self, log: str) -> bytes:
        """The trace of a task; empty if it was removed meanwhile."""
        found = self._known.get(log)
        return b"" if found is None else found.fold.ids.trace_id

    def take(self, log: str, events: Sequence[PlacedEvent]) -> list[Span]:
        """Take events that this process has written; return the spans that are its to give out."""
        try:
            task = self._task(log)
            if events[0].seq > task.fold.seq + 1:
                missed = placed_events(self._logs, log, task.fold.seq, events[0].seq - 1)
                return self._folded(task, missed, ours=False) + self._folded(task, events, ours=True)
            return self._folded(task, events, ours=True)
        except (TaskNotFound, TaskCollected):
            self._known.pop(log, None)
            return []  # it was removed meanwhile

    def catch_up(self, log: str) -> list[Span]:
        """Read everything that is new in a log."""
        try:
            task = self._task(log)
            return self._folded(task, placed_events(self._logs, log, task.fold.seq), ours=True)
        except (TaskNotFound, TaskCollected):
            self._known.pop(log, None)
            return []

    def _task(self, log: str) -> Traced:
        found = self._known.get(log)
        if found is None:
            found = self._known[log] = Traced(begin_fold(self._logs, log, content=self._content))
            if len(self._known) > limits.TELEMETRY_TASKS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(log)
        return found

    def _folded(self, task: Traced, events: Iterable[PlacedEvent], *, ours: bool) -> list[Span]:
        fold = task.fold
        found: list[Span] = []
        for one in events:
            if one.seq <= fold.seq:
                continue
            event = one.event
            if type(event) is ev.TaskClaimed:
                spans = fold.add(one.seq, one.at_us, event)
                task.is_ours = event.holder == self._holder
                found += [*task.waiting, *spans] if task.is_ours else ()
                task.waiting = []
                continue
            in_life = fold.life_seq
            spans = fold.add(one.seq, one.at_us, event)
            if not spans:
                continue
            if in_life:
                found += spans if task.is_ours else ()
            elif ours and isinstance(event, _ENDINGS):
                found += [*task.waiting, *spans]  # ended between lives, by this process: no life follows
                task.waiting = []
            else:
                task.waiting = [*task.waiting, *spans][-limits.OTLP_BATCH :]
        return found
