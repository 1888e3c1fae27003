"""What `holdfast demo` tells people: each event as it appears in the log, and the whole log at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import click
from msgspec import Raw

from holdfast import App, events as ev
from holdfast.cli.show import event_lines
from holdfast.cli.show.formatting import length, shown
from holdfast.cli.show.style import out_look
from holdfast.engine.reading import values
from holdfast.engine.reading.describe import describe
from holdfast.engine.reading.values import LoggedEvent

Say = Callable[[str], None]
WIDTH = 100
_TAB = " " * 5
_DESTINATIONS = {"charge_card": "the bank", "send_email": "the mail server"}


class Story:
    """Tells a task's events one after the other, and remembers what the demo is about."""

    def __init__(self, app: App, say: Say) -> None:
        self._app = app
        self._say = say
        self._done: set[str] = set()
        self._replaying_since_us = 0
        self.numbers: dict[str, int] = {}
        self.settled: dict[str, str] = {}
        self.seq = 0
        self.replayed = 0
        self.replay_us = 0

    def tell(self, record: LoggedEvent) -> None:
        """Tell what happened."""
        self.seq = record.seq
        if self._replaying_since_us:
            self._tell_replay(record.at_us)
        match record.event:
            case ev.TaskClaimed():
                self._replaying_since_us = record.at_us if self._done else 0
            case ev.StepStarted(key=key, name=name):
                self._say(f"{self._number(key):>3}  {name:<15} announced before it is made: it must not happen twice")
            case ev.StepCompleted(key=key, name=name):
                line = describe(record, self._app.fetch)
                took = length(line.took_us)
                self._say(cut(f"{self._number(key):>3}  {name:<15} {took:>8}   {shown(line.value)}"))
                self._done.add(key)
            case ev.StepFailed(key=key, name=name, failure=failure):
                failed = f"{self._number(key):>3}  {name:<15} failed: {failure.type}: {failure.message}"
                self._say(click.style(cut(failed), fg="red"))
            case ev.StepDoubted(key=key):
                doubt = f"{self._number(key):>3}  {_name(key):<15} in doubt: {record.event.why}"
                self._say(click.style(doubt, fg="yellow"))
            case ev.StepSettled(key=key):
                self._done.add(key)
                self.settled[key] = record.event.by
                self._tell_settled(record.event)
            case ev.DecisionMade(question=question, why=why):
                self._say(f"{_TAB}decided: {question} {self._shown(record.event.choice)}, {why}")
            case _:
                pass

    def _tell_replay(self, at_us: int) -> None:
        self.replayed, self.replay_us = len(self._done), at_us - self._replaying_since_us
        self._replaying_since_us = 0
        took = length(self.replay_us)
        self._say(
            f"{_TAB}{self.replayed} steps replayed in {took}: their results came from the log, none was done again"
        )

    def _tell_settled(self, event: ev.StepSettled) -> None:
        whom = _DESTINATIONS.get(_name(event.key), "the destination")
        if event.happened and isinstance(event.result, Raw):
            found = f"it happened, {self._shown(event.result)}. So it is not done again"
        else:
            found = "it did not happen. So it is done now"
        self._say(click.style(f"{_TAB}asked {whom} ({event.by}): {found}", fg="green"))

    def _number(self, key: str) -> int:
        return self.numbers.setdefault(key, len(self.numbers) + 1)

    def _shown(self, value: Raw) -> str:
        return shown(values.unpack(value, self._app.fetch))


def timeline(app: App, id: str, ends: Mapping[int, str]) -> Iterator[str]:
    """A task's log, as `holdfast log` shows it; `ends` says what befell a process after its last event, by seq."""
    look = out_look()
    style = look._replace(width=min(look.width or WIDTH, WIDTH))
    began_us = next(app.events(id, limit=1)).at_us
    yield event_lines.heading(style)
    for record in app.events(id):
        yield from event_lines.lines_of(record, describe(record, app.fetch), style, began_us)
        if record.seq in ends:
            yield click.style(f"{'':>15}  {ends[record.seq]}", fg="red")


def _name(key: str) -> str:
    return key.partition("#")[0]


def cut(line: str) -> str:
    """At most as wide as a page."""
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
