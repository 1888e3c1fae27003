"""What `holdfast demo` tells people: each event as it appears in the log, and the whole log at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Raw

from holdfast import App, events as ev
from holdfast.cli.show import event_lines
from holdfast.cli.show.formatting import length, shown
from holdfast.cli.show.live import Replay, Replayed
from holdfast.cli.show.style import Style, cut
from holdfast.engine.reading import values
from holdfast.engine.reading.describe import describe
from holdfast.engine.reading.values import LoggedEvent

Say = Callable[[str], None]
WIDTH = 100
_TAB = " " * 5
_DESTINATIONS = {"charge_card": "the bank", "send_email": "the mail server"}


class Story:
    """Tells a task's events one after the other, and remembers what the demo is about."""

    def __init__(self, app: App, id: str, say: Say, style: Style) -> None:
        self._app, self._id, self._say, self.style = app, id, say, style
        self._replay = Replay(app, id)
        self.numbers: dict[str, int] = {}
        self.settled: dict[str, str] = {}
        self.seq = 0
        self.replayed = Replayed(0, 0)

    def tell_news(self) -> None:
        """Tell what happened since."""
        found = list(self._app.events(self._id, after=self.seq)) if self._app.head(self._id) else []
        for record in found:
            self._tell_replay(self._replay.take(record, found))
            self._tell(record)
            self.seq = record.seq

    def _tell(self, record: LoggedEvent) -> None:
        match record.event:
            case ev.StepStarted(key=key, name=name):
                self._say(f"{self._number(key):>3}  {name:<15} announced before it is made: it must not happen twice")
            case ev.StepCompleted(key=key, name=name):
                line = describe(record, self._app.fetch)
                took = length(line.took_us)
                self._say(cut(f"{self._number(key):>3}  {name:<15} {took:>8}   {shown(line.value)}", WIDTH))
            case ev.StepFailed(key=key, name=name, failure=failure):
                failed = f"{self._number(key):>3}  {name:<15} failed: {failure.type}: {failure.message}"
                self._say(self.style.paint(cut(failed, WIDTH), "bad"))
            case ev.StepDoubted(key=key):
                doubt = f"{self._number(key):>3}  {_name(key):<15} in doubt: {record.event.why}"
                self._say(self.style.paint(doubt, "warn"))
            case ev.StepSettled(key=key):
                self.settled[key] = record.event.by
                self._tell_settled(record.event)
            case ev.DecisionMade(question=question, why=why):
                self._say(f"{_TAB}decided: {question} {self._shown(record.event.choice)}, {why}")
            case _:
                pass

    def _tell_replay(self, replayed: Replayed | None) -> None:
        if replayed is not None:
            self.replayed, told = replayed, f"{replayed.steps} steps replayed in {length(replayed.took_us)}"
            self._say(f"{_TAB}{told}: their results came from the log, none was done again")

    def _tell_settled(self, event: ev.StepSettled) -> None:
        whom = _DESTINATIONS.get(_name(event.key), "the destination")
        if event.happened and isinstance(event.result, Raw):
            found = f"it happened, {self._shown(event.result)}. So it is not done again"
        else:
            found = "it did not happen. So it is done now"
        self._say(self.style.paint(f"{_TAB}asked {whom} ({event.by}): {found}", "good"))

    def _number(self, key: str) -> int:
        return self.numbers.setdefault(key, len(self.numbers) + 1)

    def _shown(self, value: Raw) -> str:
        return shown(values.unpack(value, self._app.fetch))


def timeline(app: App, id: str, ends: Mapping[int, str], look: Style) -> Iterator[str]:
    """A task's log, as `holdfast log` shows it; `ends` says what befell a process after its last event, by seq."""
    style = look._replace(width=min(look.width or WIDTH, WIDTH))
    began_us = next(app.events(id, limit=1)).at_us
    yield event_lines.heading(style)
    for record in app.events(id):
        yield from event_lines.lines_of(record, describe(record, app.fetch), style, began_us)
        if record.seq in ends:
            yield style.paint(f"{'':>15}  {ends[record.seq]}", "bad")


def _name(key: str) -> str:
    return key.partition("#")[0]
