"""Watching a task at work: a line for what is done, and one live line with time, attempt, tokens, cost and budget.

A thread of its own reads the log; the agent never waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from holdfast import App
from holdfast.cli.show import event_lines
from holdfast.cli.show.formatting import length, spent, times
from holdfast.cli.show.screen import Screen
from holdfast.cli.show.style import Style, clean
from holdfast.core import events as ev
from holdfast.core.errors import HoldfastError
from holdfast.engine.reading.describe import describe
from holdfast.engine.reading.values import LoggedEvent

LOOK_EVERY_SECONDS = 0.1
LINES_EVERY_SECONDS = 1.0
"""How often one looks, at a terminal or for a program, and where lines are only read later."""

SHARE = 20
"""One rests so many times as long as a look took: a long log is looked at less often, and the agent is not slowed."""

HEARTBEAT_SECONDS = 30.0
MOST_LINES = 20
"""How many lines a look prints at the most, off a terminal and on one."""

MOST_WIDE = 1_000
"""How long a line of progress is off a terminal: the log shows the rest."""

_QUIET = ("claimed", "created", "released", "waits", "asks", "approval?", "waits for", "sleeps", "completed", "failed")
"""Given by the command, in its own words."""


class Live:
    """Shows what happens to one task until it is left."""

    def __init__(
        self,
        app: App,
        id: str,
        screen: Screen,
        tell: Callable[[LoggedEvent], object] | None = None,
        log: str = "the log",
    ) -> None:
        """`tell` gets every event instead of showing it; `log` is what shows all of them."""
        self._app, self._id, self._screen, self._tell, self._log = app, id, screen, tell, log
        self.seen = 0
        self._seq = self._app.head(self._id)
        self._replay = Replay(app, id)
        self._began = self._spoke = time.monotonic()
        self._running: dict[str, tuple[float, int]] = {}
        self._tokens, self._cost = 0, 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="holdfast-live", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look(last=True)
        self._screen.close()

    def _watch(self) -> None:
        often = LOOK_EVERY_SECONDS if self._tell is not None or self._screen.style.terminal else LINES_EVERY_SECONDS
        took = 0.0
        while not self._over.wait(max(often, SHARE * took)):
            began = time.monotonic()
            try:
                self._look()
                took = time.monotonic() - began
            except (HoldfastError, OSError, ValueError):  # the task's own thread, or the last look, meets it too
                return

    def _look(self, *, last: bool = False) -> None:
        if not self._app.head(self._id):
            return
        found = list(self._app.events(self._id, after=self._seq))
        printed = 0
        self.seen += len(found)
        for record in found:
            self._seq = record.seq
            if self._tell is not None:
                self._tell(record)
                continue
            printed += self._one(record, found, quiet=printed >= MOST_LINES)
        if printed > MOST_LINES:
            self._screen.line(f"… {printed - MOST_LINES} more lines; {self._log} shows them")
        if self._tell is None and not last:
            self._show_status(bool(printed))

    def _one(self, record: LoggedEvent, found: Sequence[LoggedEvent], *, quiet: bool) -> int:
        """Show an event of those found; gives how many lines that took, or would have."""
        style = self._screen.style
        replayed = self._replay.take(record, found)
        if replayed is not None:
            text = f"replayed {times(replayed.steps, 'step')} in {length(replayed.took_us)}"
            self._screen.line(style.paint(text, "dim"))
        self._note(record)
        line = describe(record, self._app.fetch)
        if line.dull or line.verb in _QUIET or (line.verb in ("started", "announced") and style.terminal):
            return 0
        if not quiet:
            time_of = self._screen.clock(record.at)
            wide = style._replace(width=style.width or MOST_WIDE)
            self._screen.line(time_of + event_lines.one(line, wide, len(time_of)))
        return 1

    def _note(self, record: LoggedEvent) -> None:
        """Keep what the live line tells: which steps are under way, what was spent."""
        event: Any = record.event
        match event:
            case ev.StepStarted():
                self._begin(event.key, event.attempt, time.monotonic())
            case ev.WaitStarted():
                self._running[event.key] = (time.monotonic(), 1)
            case ev.StepCompleted() | ev.StepFailed() | ev.AttemptFailed():
                self._running.pop(event.key, None)
            case ev.StepSettled() | ev.StepDoubted() | ev.WaitEnded():
                self._running.pop(event.key, None)
            case _:
                pass
        usage: ev.Usage | None = getattr(event, "usage", None)
        if usage is not None:
            self._tokens += usage.input_tokens + usage.output_tokens
            self._cost += usage.cost or 0.0

    def _begin(self, key: str, attempt: int, since: float) -> None:
        """A step is under way. One that announces itself late began when it was first seen."""
        if self._running.get(key, (0.0, 0))[1] != attempt:
            self._running[key] = (since, attempt)

    def _show_status(self, printed: bool) -> None:
        now = time.monotonic()
        if printed:
            self._spoke = now
        if self._screen.style.terminal:
            self._screen.status(self._status(now))
        elif now - self._spoke >= HEARTBEAT_SECONDS:
            self._spoke = now
            self._screen.line(f"{self._screen.clock()}{self._status(now)}")

    def _status(self, now: float) -> str:
        """The live line: how long, what is under way, what was spent, what is left."""
        style, app = self._screen.style, self._app
        for step in app.under_way(self._id):
            self._begin(step.key, step.attempt, now - (app.clock.now_us() - step.started_us) / 1_000_000)
        parts = [length(int((now - self._began) * 1_000_000))]
        for key, (since, attempt) in list(self._running.items())[:3]:
            tried = f" attempt {attempt}" if attempt > 1 else ""
            parts.append(f"{clean(key)}{tried} {length(int((now - since) * 1_000_000))}")
        parts += [used] if (used := spent(self._tokens, self._cost)) else []
        state = self._app.get(self._id)
        parts += [f"turn {state.turn}"] if state.turn else []
        parts += [bar(name, state.budget.used[name], most, style) for name, most in state.budget.limits.items()]
        if state.deadline is not None:
            left = state.deadline.timestamp() - time.time()
            parts.append(f"deadline in {length(int(left * 1_000_000))}" if left > 0 else "past its deadline")
        return style.paint("working ", "head") + " · ".join(parts)


def bar(name: str, used: float, most: float, style: Style, wide: int = 10) -> str:
    """Draw how much of a limit is used.

    >>> bar("tokens", 4_000, 10_000, Style())
    'tokens 4,000 of 10,000 (40%)'
    >>> bar("tokens", 4_000, 10_000, Style(terminal=True))
    'tokens ████░░░░░░ 40%'
    """
    share = min(1.0, used / most) if most else 1.0
    if not style.terminal:
        return f"{name} {used:,.6g} of {most:,.6g} ({share:.0%})"
    full = round(share * wide)
    tone = "bad" if share >= 1 else "warn" if share >= 0.8 else "good"
    return f"{name} {style.paint('█' * full + '░' * (wide - full), tone)} {share:.0%}"


class Replayed(NamedTuple):
    """How many recorded steps a replay went through, and how long that took."""

    steps: int
    took_us: int


class Replay:
    """Notices that recorded steps were replayed, and how long that took: from the claim to the first new thing."""

    def __init__(self, app: App, id: str) -> None:
        self._app, self._id = app, id
        self._steps, self._since_us = 0, 0

    def take(self, record: LoggedEvent, found: Sequence[LoggedEvent]) -> Replayed | None:
        """Take an event of those found; gives something when it is the first new thing after a replay.

        Immediate events are written with the step after it; their times show when something began.
        """
        if isinstance(record.event, ev.TaskClaimed):
            state = self._app.at(self._id, record.seq)
            self._steps = sum(step.status in ("completed", "failed") for step in state.steps.values())
            self._since_us = record.at_us if self._steps else 0
            return None
        if not self._since_us:
            return None
        until_us = min(getattr(one.event, "started_us", 0) or one.at_us for one in found if one.seq >= record.seq)
        took_us, self._since_us = max(0, until_us - self._since_us), 0
        return Replayed(self._steps, took_us)
