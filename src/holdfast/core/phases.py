"""Phases: which may follow which, and the named events that move them. The default machine, and those users declare.

A task's machine stands in its first event, so a reader of the log can judge a move; the default one needs no bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.core import limits, names
from holdfast.core.errors import InvalidTransition, InvalidValue

PHASES: dict[str, tuple[str, ...]] = {
    "idle": ("planning", "error"),
    "planning": ("executing", "error"),
    "executing": ("reflecting", "waiting_feedback", "done", "error"),
    "waiting_feedback": ("executing", "error"),
    "reflecting": ("planning", "executing", "done", "error"),
    "done": ("error",),
    "error": (),
}
"""The phases of an agent and where each may go."""

DONE, ERROR, FEEDBACK = "done", "error", "waiting_feedback"
"""The phases that follow from what becomes of a task: it is completed, it has failed, it asks a person."""

PLANNING = "planning"
"""The phase in which an agent begins with a user's request."""


class Moves(Struct, frozen=True, omit_defaults=True):
    """A machine as it stands in the log: where each phase may go, where it starts, what each event does.

    `events` says for each event where it leads from which phase.
    """

    moves: Mapping[str, Sequence[str]]
    start: str = ""
    events: Mapping[str, Mapping[str, str]] = {}


class Machine(Moves, frozen=True):
    """Phases of your own: where each may go, where it starts (default: the first one), what each event does.

    A table of `(phase, event)` to the next phase says all of it at once; its phases may be members of an Enum.

    >>> review = Machine(
    ...     {"draft": ["review"], "review": ["draft", "published"], "published": []},
    ...     events={"submit": {"draft": "review"}, "reject": {"review": "draft"}, "accept": {"review": "published"}},
    ... )
    >>> review.start
    'draft'
    >>> Machine({("draft", "submit"): "review", ("review", "accept"): "published"}).moves
    {'draft': ('review',), 'review': ('published',), 'published': ()}
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            moves: Mapping[str, Sequence[str]] | Mapping[tuple[Any, str], Any],
            start: str = "",
            events: Mapping[str, Mapping[str, str]] = {},
        ) -> None: ...

    def __post_init__(self) -> None:
        if _is_table(self.moves):
            _refuse_both(self.events)
            for name, value in _of_table(cast("Mapping[tuple[Any, str], Any]", self.moves)).items():
                force_setattr(self, name, value)
        moves = _checked_moves(self.moves)
        force_setattr(self, "moves", moves)
        start: Any = self.start
        force_setattr(self, "start", _plain(start, "start") if start else next(iter(moves)))
        if self.start not in moves:
            raise InvalidValue(f"start={self.start!r} is not a phase of this machine", hint=f"it has {list(moves)}")
        lost = [phase for phase in moves if phase not in _reachable(moves, self.start)]
        if lost:
            raise InvalidValue(
                f"the phases {lost} cannot be reached from {self.start!r}",
                hint="let some phase move there, or drop them",
            )
        force_setattr(self, "events", _checked_events(self.events, moves))


def following(machine: Moves | None, phase: str, wanted: str) -> str:
    """Return the phase that follows from what became of a task; empty if the machine has none such, or it is there."""
    return wanted if wanted != phase and wanted in (machine or DEFAULT).moves else ""


def moved(machine: Moves | None, phase: str, name: str, on: str) -> str:
    """The phase to move to: by its name, or by the event that leads there."""
    if bool(name) == bool(on):
        given = f"phase({name!r}, on={on!r})" if name else "phase()"
        raise InvalidValue(f"{given} is not a move", hint='write task.phase("planning") or task.phase(on="new_task")')
    return name or _led(machine or DEFAULT, phase, on)


def check_move(machine: Moves | None, phase: str, to: str, on: str) -> None:
    """Refuse a move that the machine does not know, naming those it does."""
    machine = machine or DEFAULT
    if to not in machine.moves.get(phase, ()):
        raise InvalidTransition(
            f"the phase cannot go from {phase!r} to {to!r}",
            hint=_ways(machine, phase),
            phase=phase,
            allowed=list(machine.moves.get(phase, ())),
        )
    if on and (led := _led(machine, phase, on)) != to:
        raise InvalidTransition(
            f"the event {on!r} moves the phase from {phase!r} to {led!r}, not to {to!r}", hint=_ways(machine, phase)
        )


def _led(machine: Moves, phase: str, on: str) -> str:
    """Return the phase that an event leads to from here."""
    if on not in machine.events:
        raise InvalidTransition(f"{on!r} is not an event of these phases", hint=f"they are {list(machine.events)}")
    to = machine.events[on].get(phase)
    if to is None:
        raise InvalidTransition(
            f"the event {on!r} does not move the phase from {phase!r}",
            hint=_ways(machine, phase),
            phase=phase,
            allowed=list(machine.moves.get(phase, ())),
        )
    return to


def _ways(machine: Moves, phase: str) -> str:
    """Describe the phases that a phase may go to, and the events that lead there."""
    allowed = list(machine.moves.get(phase, ()))
    if not allowed:
        return f"{phase!r} is final"
    events = [f"{name!r} (to {leads[phase]!r})" for name, leads in machine.events.items() if phase in leads]
    by = f"; events from here: {', '.join(events)}" if events else ""
    return f"from {phase!r} the phase can go to {allowed}{by}"


# What a machine must be


def _is_table(given: object) -> bool:
    """Tell whether a machine is given as a table of pairs: phase and event."""
    return isinstance(given, Mapping) and any(isinstance(key, tuple) for key in cast("Mapping[object, object]", given))


def _refuse_both(events: object) -> None:
    if events:
        raise InvalidValue(
            f"a table of (phase, event) has its events in it, and events={str(events)[:80]} is given too",
            hint="leave events= out",
        )


def _of_table(table: Mapping[tuple[Any, str], Any]) -> dict[str, Any]:
    """Turn a table of (phase, event) to the next phase into moves and events. What is only gone to is final."""
    moves: dict[str, list[str]] = {}
    events: dict[str, dict[str, str]] = {}
    for key, target in table.items():
        pair: Any = key
        if not isinstance(pair, tuple) or len(cast("tuple[Any, ...]", pair)) != 2:
            raise InvalidValue(
                f"{pair!r} is not a pair of phase and event", hint='write {("draft", "submit"): "review"} throughout'
            )
        phase, event = (_plain(one) for one in cast("tuple[Any, Any]", pair))
        to = _plain(target)
        events.setdefault(event, {})[phase] = to
        leads = moves.setdefault(phase, [])
        if to not in leads:
            leads.append(to)
    for to in [to for leads in moves.values() for to in leads]:
        moves.setdefault(to, [])
    return {"moves": moves, "events": events}


def _plain(name: Any, what: str = "phase") -> str:
    """Return the name of a phase: text, or that of a member of an Enum."""
    return names.short_name(getattr(name, "value", name), what)


def _checked_moves(given: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping) or not given:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{given!r} has no phases", hint='give a dict: Machine({"draft": ["done"], "done": []})')
    if len(given) > limits.MAX_PHASES:
        raise InvalidValue(f"{len(given)} phases are too many", hint=f"give at most {limits.MAX_PHASES}")
    for phase, targets in given.items():
        names.short_name(phase, "phase")
        if isinstance(targets, str) or not isinstance(targets, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                f"the moves of {phase!r} are {targets!r}", hint=f"give a list: {{{phase!r}: [{targets!r}]}}"
            )
        for index, target in enumerate(targets):
            if names.short_name(target, "phase") not in given:
                raise InvalidValue(
                    f"{phase!r} may go to {target!r}, which is not a phase of this machine",
                    hint=f"add it, {{{target!r}: []}} if it is final; there are {list(given)}",
                )
            if target in targets[:index]:
                raise InvalidValue(f"{phase!r} may go to {target!r} twice", hint="name each move once")
    return {phase: tuple(targets) for phase, targets in given.items()}


def _reachable(moves: Mapping[str, Sequence[str]], start: str) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        new = [target for target in moves[todo.pop()] if target not in found]
        found.update(new)
        todo += new
    return found


def _checked_events(
    given: Mapping[str, Mapping[str, str]], moves: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, str]]:
    if not isinstance(given, Mapping) or len(given) > limits.MAX_PHASES:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"events={str(given)[:80]} cannot be followed",
            hint=f'give at most {limits.MAX_PHASES}, each with its moves: {{"submit": {{"draft": "review"}}}}',
        )
    for event, leads in given.items():
        names.short_name(event, "event")
        if not isinstance(leads, Mapping) or not leads:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                f"the event {event!r} moves nothing",
                hint=f'say from where to where: {{{event!r}: {{"draft": "review"}}}}',
            )
        for phase, to in leads.items():
            if to not in moves.get(phase, ()):
                raise InvalidValue(
                    f"the event {event!r} moves the phase from {phase!r} to {to!r}, which this machine does not allow",
                    hint=f"{phase!r} may go to {list(moves[phase])}" if phase in moves else f"there are {list(moves)}",
                )
    return {event: dict(leads) for event, leads in given.items()}


DEFAULT = Machine(
    PHASES,
    start="idle",
    events={
        "new_task": {"idle": "planning"},
        "plan_ready": {"planning": "executing"},
        "step_complete": {"executing": "reflecting"},
        "needs_input": {"executing": "waiting_feedback"},
        "input_received": {"waiting_feedback": "executing"},
        "task_complete": {"reflecting": "done", "executing": "done"},
    },
)
"""What an agent without a machine of its own goes through."""
