"""What `holdfast demo` tells people: each event as it appears in the log, and the whole log at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
from msgspec import Raw

from holdfast import App, events as ev
from holdfast.cli.show.formatting import length, shown
from holdfast.engine.reading import values
from holdfast.engine.reading.steps import StepState
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
                took = _took(self._app.step(record.log, key))
                self._say(cut(f"{self._number(key):>3}  {name:<15} {took:>8}   {self._shown(record.event.result)}"))
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
    """A task's log, a line each; `ends` says what befell a process after its last event, by seq."""
    took = {step.after: _took(step) for step in app.steps(id)}
    began_us = app.get(id).created_at.timestamp() * 1_000_000
    yield f"{'seq':>4} {'seconds':>8}  {'event':<15} {'about':<17} {'took':>8}   value"
    for record in app.events(id):
        about, value = _told(record.event, app)
        prefix = f"{record.seq:>4} {(record.at_us - began_us) / 1_000_000:>8.3f}"
        yield cut(f"{prefix}  {record.kind:<15} {about:<17} {took.get(record.seq, ''):>8}   {value}".rstrip())
        if record.seq in ends:
            yield click.style(f"{'':>13}  {ends[record.seq]}", fg="red")


def _took(step: StepState) -> str:
    return length(step.raw.ended_us - step.raw.started_us) if step.raw.ended_us else ""


def _told(event: ev.Event, app: App) -> tuple[str, str]:
    """Return the subject of an event, and its value."""

    def plain(value: Any) -> str:
        return shown(values.unpack(value, app.fetch)) if isinstance(value, Raw) else ""

    match event:
        case ev.TaskCreated(agent=agent, input=input):
            return agent, " ".join(f"{name}={plain(raw)}" for name, raw in input.items())
        case ev.TaskClaimed(holder=holder):
            return f"process {holder.partition('-')[0]}", ""
        case ev.StepDoubted(key=key, why=why):
            return key, why
        case ev.StepSettled(key=key, by=by):
            return key, f"{by}: it happened, {plain(event.result)}" if event.happened else f"{by}: it did not happen"
        case ev.StepFailed(key=key) | ev.AttemptFailed(key=key):
            return key, event.failure.message
        case ev.DecisionMade(question=question, why=why):
            return question, f"{plain(event.choice)}, {why}"
        case ev.PlanSet(steps=steps):
            return "", ", ".join(steps)
        case ev.PlanStepDone(step=step):
            return step, ""
        case _:
            about = next((getattr(event, name) for name in ("key", "name", "stage") if hasattr(event, name)), "")
            value = next((getattr(event, name) for name in ("value", "result") if hasattr(event, name)), None)
            return about, plain(value)


def _name(key: str) -> str:
    return key.partition("#")[0]


def cut(line: str) -> str:
    """At most as wide as a page."""
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
