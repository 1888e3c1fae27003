"""Steps of any turn, and messages, as people read them; steps are found by key, by turn or by unique key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeVar, cast

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.core import codec, events as ev, names
from holdfast.core.codec import Stored, Summary, moment
from holdfast.core.codec.read_only import ReadOnlyDict, outside, read_only, refused
from holdfast.core.errors import HoldfastError, StepNotFound, TaskCollected, TaskNotFound
from holdfast.core.state import shapes
from holdfast.core.state.fold import address, evolve
from holdfast.core.state.shapes import State, Step
from holdfast.engine.logs.log import DAMAGED, decoded
from holdfast.engine.logs.logs import Logs
from holdfast.engine.views.attempts import StepAttempt, attempts_of, turn_of

T = TypeVar("T")


def iso(at_us: int) -> str:
    """A time as people and programs both read it.

    >>> iso(1_700_000_000_000_000)
    '2023-11-14T22:13:20.000000Z'
    """
    return moment(at_us).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Values(Mapping[str, T], Generic[T]):
    """A read-only mapping whose values are decoded when they are looked at."""

    def __init__(self, raw: Mapping[str, Any], show: Callable[[Any], T]) -> None:
        self._raw = raw
        self._show = show

    def __getitem__(self, key: str) -> T:
        return self._show(self._raw[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return repr(dict(self))


class StateValues(Values[Any]):
    """The state of a task of which something is damaged: each value is read when it is looked at."""

    def __init__(self, id: str, bag: Mapping[str, Any], show: Callable[[Any], Any]) -> None:
        super().__init__(bag, show)
        self._verbs = outside(id)

    def __getitem__(self, key: str) -> Any:
        return read_only(super().__getitem__(key), (self._verbs, key))


class StateDict(ReadOnlyDict):
    """The state of a task, as it is read from outside. What would be changed here, and lost, is refused."""

    __slots__ = ()

    def __init__(self, id: str, bag: Mapping[str, Any]) -> None:
        verbs: Any = outside(id)
        super().__init__({name: read_only(value, (verbs, name)) for name, value in bag.items()})
        object.__setattr__(self, "place", verbs)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise refused((self.place, name), "set", value)

    def _refuse(self, *given: Any, **named: Any) -> NoReturn:
        raise refused((self.place, next(iter(self), "field")), "update")

    pop = popitem = clear = __ior__ = _refuse
    update = setdefault = _refuse


def state_values(id: str, bag: Mapping[str, Any], show: Callable[[Any], Any]) -> Mapping[str, Any]:
    """Return the state of a task: a dict, of which JSON can be made. One that is damaged in part is read in parts."""
    try:
        return StateDict(id, {name: show(raw) for name, raw in bag.items()})
    except DAMAGED:
        return StateValues(id, bag, show)


class StepState:
    """A step and what became of it."""

    def __init__(self, step: shapes.Step, logs: Logs, turn: int, id: str = "", upto: int | None = None) -> None:
        """`turn` is the one it is seen from. `id` is its task, seen up to the seq `upto`."""
        self.raw = step
        self._logs = logs
        self._id, self._upto = id, upto
        head = step.key.split("/", 1)[0]
        self.turn = int(head) if head.isascii() and head.isdigit() else turn
        self.key, self.name, self.status = step.key, step.name, step.status
        self.attempts, self.tool, self.effect = step.attempts, step.tool, step.effect
        self.failure, self.failures = step.failure, step.failures
        self.idempotency_key = step.idempotency_key
        self.maybe_done = step.maybe_done
        """Whether it failed and may have happened all the same."""

    @property
    def input(self) -> Mapping[str, Any]:
        """The arguments, by name."""
        return Values(self.raw.input, lambda raw: codec.unpack(raw, self._logs.blob))

    @property
    def result(self) -> Any:
        """The returned value; None if there is none yet."""
        return codec.unpack(self.raw.result, self._logs.blob)

    @property
    def started_at(self) -> datetime:
        """When it began."""
        return moment(self.raw.started_us)

    @property
    def ended_at(self) -> datetime | None:
        """When its outcome was known."""
        return moment(self.raw.ended_us) if self.raw.ended_us else None

    @property
    def duration_ms(self) -> float | None:
        """The time it took, all attempts and the waits between them; None until its outcome is known."""
        return (self.raw.ended_us - self.raw.started_us) / 1000 if self.raw.ended_us else None

    @property
    def succeeded(self) -> bool:
        """Whether it has a result."""
        return self.status == "completed"

    @property
    def retry_at(self) -> datetime | None:
        """When the next attempt is due; None if none is."""
        return moment(self.raw.retry_us) if self.status == "retrying" else None

    @property
    def all_attempts(self) -> list[StepAttempt]:
        """Every attempt that came to an end, also before the task was resumed; `attempts` counts since then."""
        return attempts_of(self._logs, self._id, self.turn, self._own_key, self._upto)

    @property
    def before(self) -> int:
        """The seq just before it: `app.at(id, step.before)` is what was known then. 0 means nothing."""
        return self.raw.first_seq - 1

    @property
    def after(self) -> int:
        """The seq of its outcome: `app.at(id, step.after)` is what was known then."""
        return self.raw.last_seq

    def __repr__(self) -> str:
        return f"<step {f'{self.turn}/' if self.turn else ''}{self._own_key} {self.status}>"

    @property
    def _own_key(self) -> str:
        """Its key without the turn, which one of an earlier turn that is still open has before it."""
        head, _, rest = self.key.partition("/")
        return rest if head.isascii() and head.isdigit() else self.key

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **{name: getattr(self, name) for name in ("key", "name", "status", "attempts", "tool", "effect")},
            "input": dict(self.input),
            "result": self.result,
            "failure": codec.as_json(self.failure),
            "started_at": iso(self.raw.started_us),
            "ended_at": iso(self.raw.ended_us) if self.raw.ended_us else None,
            **{name: getattr(self, name) for name in ("turn", "before", "after", "idempotency_key", "maybe_done")},
            "failures": codec.as_json(self.failures),
            "retry_at": iso(self.raw.retry_us) if self.status == "retrying" else None,
        }

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return codec.dump(self.to_dict()).decode()


def steps(logs: Logs, id: str, turn: int | None = None, upto: int | None = None) -> list[StepState]:
    """The steps of one turn, or of all of them in order. Costs what the turn weighs, not what the log does."""
    starts = [(0, 0), *((turn_of(id, row), row.seq) for row in logs.rows_of_kind(id, "turn_started", upto=upto))]
    if turn is not None and names.whole(turn, "turn") > starts[-1][0]:
        raise StepNotFound(id, f"{turn}/…")
    ends = [seq - 1 for _, seq in starts[1:]] + [upto]
    return [
        StepState(step, logs, number, id, upto)
        for (number, start), end in zip(starts, ends, strict=True)
        if turn in (None, number)
        for step in _steps_between(logs, id, number, start, end, upto)
    ]


def step_by_key(logs: Logs, id: str, key: str) -> StepState:
    """One step by its key: the last `draft#1` there is, or `3/draft#1`, that of turn 3."""
    head, _, rest = names.text(key, "key of a step").partition("/")
    in_turn = int(head) if head.isascii() and head.isdigit() and rest else None
    for step in reversed(steps(logs, id, in_turn)):
        if step.key == (key if in_turn is None else rest):
            return step
    raise StepNotFound(id, key)


def raw_step(logs: Logs, id: str, key: str) -> Step:
    """One step by its key, with its values as they are stored."""
    return step_by_key(logs, id, key).raw


def calls_after(logs: Logs, id: str, seq: int) -> list[Step]:
    """Calls of tools whose last word came after a seq, in every turn since."""
    state = logs.load(id, upto=seq).state
    found: dict[str, Step] = {}
    for log, row in logs.rows(id, after=seq):
        event = decoded(log, row)
        state = evolve(state, log, row.seq, row.at_us, event)
        step = state.steps.get(getattr(event, "key", ""))
        if step is not None and step.tool:
            found[step.idempotency_key or f"{state.turn}/{step.key}"] = step
    return list(found.values())


_MAKING_STEPS = (
    *("step_started", "step_completed", "step_failed", "attempt_failed", "wait_started", "checkpoint_made"),
    *("approval_asked", "approval_given", "approval_refused", "state_updated", "user_patched"),
)


_CHANGING_STEPS = ("step_doubted", "step_settled", "step_voided", "step_observed", "wait_ended", "task_reopened")


def _steps_between(
    logs: Logs, id: str, turn: int, after: int, upto: int | None, last: int | None = None
) -> Iterable[Step]:
    """Fold only what concerns the steps of one turn; what it left open may have ended in a later one."""
    state = State(summary=Summary(id=id, agent=""))
    for log, row in logs.live_rows(id, after=after, upto=upto):
        if row.kind in _MAKING_STEPS or row.kind in _CHANGING_STEPS:
            event = decoded(log, row)
            if not getattr(event, "key", "").split("/", 1)[0].isdigit():
                evolve(state, log, row.seq, row.at_us, event)
    left = {address(turn, key): key for key, step in state.steps.items() if step.open} | {
        key: key for key in state.waits
    }
    if upto is not None and left:
        for log, row in logs.live_rows(id, after=upto, upto=last):
            event = decoded(log, row)
            key = left.get(getattr(event, "key", ""))
            if key is not None:
                evolve(state, log, row.seq, row.at_us, replace(cast("Any", event), key=key))
    return state.steps.values()


def step_of(logs: Logs, id: str, key: str) -> Step | None:
    """A step of any task, by the key it has seen from outside."""
    try:
        return raw_step(logs, id, key)
    except StepNotFound:
        return None


def current_outcome(logs: Logs, id: str, key: str) -> Step | None:
    """Return the final outcome of a call: one that failed and may have happened may have been settled since."""
    step = step_of(logs, id, key)
    if step is None or not step.maybe_done:
        return step
    state = logs.load(id).state
    settled = state.maybe_done.get(address(state.turn, key) if state.turn else key)
    if settled is not None and settled.status == "completed":
        return settled
    later = (one.raw for one in steps(logs, id) if one.idempotency_key == step.idempotency_key)
    return next((one for one in later if one.status == "completed"), step)


def is_in_doubt(logs: Logs, id: str, key: str) -> bool:
    """Return whether a call of a task is in doubt. One that can't be read may be; one that is gone is not."""
    try:
        step = step_of(logs, id, key)
    except (TaskNotFound, TaskCollected):
        return False
    except HoldfastError:
        return True
    return step is not None and step.status == "doubt"


def kept_step(logs: Logs, id: str, unique: str) -> Step | None:
    """A call that a rollback voided, by its unique key: the world has seen it."""
    return next((one for one in logs.load(id).state.kept.values() if one.unique == unique), None)


# Messages


def message_added(logs: Logs, id: str, seq: int, event: ev.MessageAdded) -> Any:
    """The message that an event added. One made from a step's result is looked up there."""
    raw = _result_before(logs, id, seq, event.step) if event.message is UNSET else event.message
    return codec.unpack(raw, logs.blob)


def message_values(logs: Logs, id: str, upto: int) -> list[tuple[int, Raw]]:
    """The messages of a log, encoded, with their seqs. One made from a step's result is looked up there."""
    return [(row.seq, raw) for row, _, raw in _messages(logs, id, upto)]


def messages(logs: Logs, id: str, upto: int) -> list[Any]:
    """Return the messages of a log as people read them, each with its time and seq."""
    read = ((row, event, codec.unpack(raw, logs.blob)) for row, event, raw in _messages(logs, id, upto))
    return [_timed(value, row.seq, event.said_us or row.at_us) for row, event, value in read]


def _timed(value: Any, seq: int, at_us: int) -> Any:
    return LoggedMessage(value, seq, at_us) if isinstance(value, dict) else value  # pyright: ignore[reportUnknownArgumentType]


def _messages(logs: Logs, id: str, upto: int) -> Iterator[tuple[Stored, ev.MessageAdded, Raw]]:
    for row in logs.rows_of_kind(id, "message_added", upto=upto):
        event = decoded(id, row)
        if isinstance(event, ev.MessageAdded):
            stored = event.message
            yield row, event, _result_before(logs, id, row.seq, event.step) if stored is UNSET else stored


class LoggedMessage(dict[str, Any]):
    """A message as it was given, which also knows when it came: `.at`, and `.seq`, its place in the log."""

    __slots__ = ("at", "seq")

    def __init__(self, message: Mapping[str, Any], seq: int, at_us: int) -> None:
        super().__init__(message)
        self.seq = seq
        self.at = moment(at_us)

    def __reduce_ex__(self, protocol: Any, /) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self),)  # how copy, deepcopy and pickle make another: an ordinary one


def _result_before(logs: Logs, id: str, seq: int, key: str) -> Raw:
    """The result of the step that a message was made of. It stands shortly before the message, so look backwards."""
    width, upto = 16, seq - 1
    while upto > 0:
        after = max(0, upto - width)
        for _, row in reversed(list(logs.live_rows(id, after=after, upto=upto))):
            event = decoded(id, row) if row.kind in ("step_completed", "step_settled", "wait_ended") else None
            if event is not None and getattr(event, "key", "") == key:
                result = event.value if isinstance(event, ev.WaitEnded) else getattr(event, "result", UNSET)
                return result if isinstance(result, Raw) else codec.JSON_NULL
        width, upto = width * 4, after
    return codec.JSON_NULL
