"""crash_everywhere: run an agent once for every place where it could crash, and see that it survives each.

    report = crash_everywhere(shop, {"order": 17}, world=world, check=paid_once)
    print(report)

First the task is worked through without a crash, which counts the crash points: every failpoint it passes, on both
sides of whatever is written, and of every request to a `World`. Then, for each of them, it begins anew with an empty
store, crashes there, resumes in a new process (simulated, or a real one: `mode="kill"`) and is looked at.

Answers get lost without a crash, too. So every step and tool is also made to raise: once before its function is called,
and once after it had its effect.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from holdfast.core.errors import HoldfastError, InvalidValue, Suspended
from holdfast.engine.app import App
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.logs.addresses import is_server
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.system.clock import Clock
from holdfast.testing.crash import invariants, lives
from holdfast.testing.crash.invariants import ENDED, Evidence
from holdfast.testing.crash.lives import Crash, Life, LostAnswer
from holdfast.testing.crash.world import World

__all__ = ["Crash", "CrashFailed", "CrashReport", "LostAnswer", "Point", "crash_everywhere"]

MAX_ROUNDS = 25
"""How often `finish` is called before a task counts as one that never ends."""

SHOWN_FAILURES = 5
"""How many failures are described in full, and their stores kept."""


class Point(Struct, frozen=True):
    """A place to crash at: its number, its failpoint, and which hit of that failpoint it is. Number 0 means no crash.

    One that `raises` is where a step or tool raises instead.
    """

    number: int
    name: str
    hit: int
    of: int
    raises: bool = False

    @property
    def kind(self) -> str:
        """The kind of point."""
        return f"{self.name} raises" if self.raises else self.name

    def __str__(self) -> str:
        if self.number == 0:
            return "without a crash"
        if self.raises:
            when = "before it is called" if self.name == "act.before" else "after its effect"
            return f"point {self.number} of {self.of}: step or tool {self.hit} raises {when}"
        return f"crash point {self.number} of {self.of}: {self.name}, hit {self.hit}"


class CrashFinding(Struct, frozen=True):
    """A point that was not survived, and why."""

    point: Point
    problems: tuple[str, ...]
    timeline: tuple[str, ...]
    kept: str = ""

    def __str__(self) -> str:
        lines = [str(self.point), *(f"  - {problem}" for problem in self.problems)]
        lines += [f"  {line}" for line in self.timeline]
        return "\n".join([*lines, f"  store kept: {self.kept}"] if self.kept else lines)


class CrashReport(Struct, frozen=True):
    """What was tried and survived. `missed` points were not reached: the agent did not do the same again.

    Of the points, some crash the process, and in some a step or tool raises.
    """

    what: str
    mode: str
    store: str
    points: int
    tried: int
    survived: int
    missed: int
    by_name: dict[str, int]
    doubts: int
    in_doubt: int
    duplicates: int
    seconds: float

    def __str__(self) -> str:
        wide = max(map(len, self.by_name), default=0)
        return "\n".join(
            [
                f"{self.what}: {self.survived} of {self.tried} faults survived ({self.mode}, {self.store})",
                f"  {self.duplicates} duplicates; {self.doubts} calls were in doubt, {self.in_doubt} tasks still are",
                f"  {self.points} points, {self.tried} tried, {self.missed} not reached, {self.seconds:.1f} s",
                *(f"  {name:<{wide}}  {count:>5}" for name, count in sorted(self.by_name.items())),
            ]
        )


class CrashFailed(AssertionError):
    """A crash was not survived. `failures` has every point, the message the first five in full."""

    def __init__(self, headline: str, failures: Sequence[CrashFinding]) -> None:
        self.failures = list(failures)
        shown = [str(failure) for failure in self.failures[:SHOWN_FAILURES]]
        rest = [f"and at {failure.point}" for failure in self.failures[SHOWN_FAILURES:]]
        super().__init__("\n\n".join([headline, *shown, *(["\n".join(rest)] if rest else [])]))


class MovableClock:
    """The machine's clock, which can be moved ahead: long sleeps of a task cost no time."""

    def __init__(self) -> None:
        self._ahead_us = 0

    def now_us(self) -> int:
        return time.time_ns() // 1000 + self._ahead_us

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead_us += int(seconds * 1_000_000)


def crash_everywhere(
    agent: Agent | None = None,
    input: Mapping[str, Any] | None = None,
    *,
    check: Callable[[TaskState, Any], object] | None = None,
    world: World | None = None,
    finish: Callable[[App, TaskState], object] | None = None,
    setup: Callable[[App], object] | None = None,
    drive: Callable[[App], TaskState] | None = None,
    agents: Sequence[Agent] = (),
    id: str = "crash-test",
    store: str = "sqlite",
    mode: Literal["process", "kill"] = "process",
    same_result: bool | Callable[[TaskState], Any] = True,
    sample: int | None = None,
    seed: int = 0,
    crashes: int = 1,
    exceptions: bool = True,
    clock: Clock | None = None,
    directory: str | os.PathLike[str] | None = None,
    timeout: float = 60.0,
) -> CrashReport:
    """Crash an agent at every point, or at a `sample` of them, and check that it survives. Raises CrashFailed.

    `check(state, world)` is your own assertion about what is left in the end: it raises, or gives False.
    `finish(app, state)` is called when the task waits, to answer, approve, signal or settle; without it a task that
    waits has come to its end. `setup(app)` is called before each trial, with an empty store. `drive(app)` stands in for
    an agent where tasks are worked on in `with app.task(…)`. `same_result` may be a function that picks what must be
    the same with and without a crash. With `crashes=2` each trial crashes once more, at a random point of its recovery.

    With `exceptions`, every step and tool is also made to raise LostAnswer: once before its function, once after its
    effect. The agent may then fail, continue without it, or wait for a person to settle the call; but no `once` effect
    may happen twice. `check` is called if the agent did not get the exception: then it must end as it does without.
    """
    if (agent is None) == (drive is None):
        raise InvalidValue("there is nothing to crash, or too much", hint="give an agent, or drive=")
    _refuse_unknown(mode, store)
    script = _Script(agent, input, drive, finish, agents, id, clock or MovableClock())
    aside = Path(tempfile.mkdtemp(prefix="crash-", dir=directory))
    place = _place(store, aside)
    expects = _Expects(world, setup, check, same_result, finish is None)
    trials = _Trials(script, expects, place, None if mode == "process" else timeout)
    try:
        return trials.everywhere(sample, seed, crashes, exceptions)
    finally:
        place.end()
        if not any(aside.glob("point-*")):
            shutil.rmtree(aside)


def _refuse_unknown(mode: str, store: str) -> None:
    known = store in ("sqlite", "memory:") or is_server(store)
    if not known or mode not in ("process", "kill") or (mode, store) == ("kill", "memory:"):
        raise InvalidValue(
            f"mode={mode!r} on store={store!r} cannot be",
            hint="'process' or 'kill' on 'sqlite' or 'postgresql://…', 'process' on 'memory:'",
        )


def _place(store: str, aside: Path) -> lives.TestPlace:
    """Return where the stores of the trials are."""
    if is_server(store):
        return lives.PostgresPlace(store)
    return lives.MemoryPlace() if store == "memory:" else lives.SqlitePlace(aside)


class _Script:
    """What every process does: open the store, work on the task, help it over its waits."""

    def __init__(
        self,
        agent: Agent | None,
        input: Mapping[str, Any] | None,
        drive: Callable[[App], TaskState] | None,
        finish: Callable[[App, TaskState], object] | None,
        agents: Sequence[Agent],
        id: str,
        clock: Clock,
    ) -> None:
        self.name = agent.name if agent is not None else getattr(drive, "__name__", "drive")
        self.id = id
        self._agent, self._input, self._drive, self._finish = agent, input, drive, finish
        self._agents, self._clock = agents, clock

    def open(self, place: lives.TestPlace) -> App:
        """Open the store as a new process would."""
        return App(place.open(), self._clock, agents=self._agents, key_space="crash-everywhere")

    def work(self, app: App) -> None:
        """Work until the task ends, or waits for something that can't be given here."""
        ended: tuple[str, ...] = ()
        for _ in range(MAX_ROUNDS):
            state = self._go_on(app)
            if state.status in ENDED or not self._help(app, state):
                return
            ended = invariants.outcome(state)
        raise TimeoutError(f"the task did not end in {MAX_ROUNDS} rounds; each time it was {' · '.join(ended)} again")

    def _go_on(self, app: App) -> TaskState:
        try:
            if self._drive is not None:
                self._drive(app)
            elif self._agent is not None:
                app.run(self._agent, self._input, id=self.id)
        except Suspended:
            assert self._drive is not None, "only a with block lets a wait out"
        return app.get(self.id)

    def _help(self, app: App, state: TaskState) -> bool:
        """Give a task what it waits for; False if that can't be done."""
        kind = "" if state.waiting is None else state.waiting.kind
        if kind == "timer" and state.waiting is not None and state.waiting.wake_at is not None:
            advance = getattr(self._clock, "advance", None)
            if advance is not None:
                advance(state.waiting.wake_at.timestamp() - self._clock.now_us() / 1_000_000)
                return True
        if kind == "child":
            children = [row for row in app.list() if row.parent == state.id and row.status not in ENDED]
            return any(row.status != "waiting" or self._help(app, app.get(row.id)) for row in children)
        if kind and self._finish is not None:
            self._finish(app, state)
        return not kind or self._finish is not None


class _Expects(Struct, frozen=True):
    """What is prepared before each crash, and asked after it."""

    world: World | None
    setup: Callable[[App], object] | None
    check: Callable[[TaskState, Any], object] | None
    same_result: bool | Callable[[TaskState], Any]
    doubt_is_an_end: bool

    def result(self, state: TaskState) -> Any:
        if not callable(self.same_result):
            return state.result
        try:
            return self.same_result(state)
        except Exception as error:  # noqa: BLE001 — a task that failed may have nothing that could be picked
            return f"nothing: {lives.told(error)}"

    def problems(self, app: App, id: str, left: Evidence, now: Evidence, whole: Evidence | None) -> Iterator[str]:
        """Everything that is wrong in the end."""
        yield from invariants.at_rest(app, id, left, now)
        yield from invariants.same_effects(now, whole or now)
        in_doubt = now.outcome == ("waiting", "doubt")
        if whole is not None and self.same_result is not False and not (in_doubt and self.doubt_is_an_end):
            yield from invariants.same_end(now, whole)
        elif not now.outcome:
            yield "the task is missing"
        if self.check is not None and now.outcome:
            try:
                if self.check(app.get(id), self.world) is False:
                    yield "check gave False"
            except Exception as error:  # noqa: BLE001 — whatever a user's check raises is what it found
                yield f"check: {lives.told(error)}"

    def after_raising(self, app: App, id: str, left: Evidence, now: Evidence, whole: Evidence) -> Iterator[str]:
        """Everything that is wrong after a step or tool has raised. The task may have ended in another way."""
        in_doubt = now.outcome == ("waiting", "doubt")
        if not invariants.was_told(now, LostAnswer.__name__) and not in_doubt:
            yield from self.problems(app, id, left, now, whole)
            return
        yield from invariants.at_rest(app, id, left, now)
        yield from invariants.same_effects(now, whole)
        yield from invariants.no_more_effects(now, whole)
        if now.outcome and now.outcome[0] not in (*ENDED, "waiting"):  # one that comes after it may be missing
            yield f"the task is {' · '.join(now.outcome)} after a step or tool raised"


class _Trials:
    """The trials of one agent: one without a crash, then one a point."""

    def __init__(self, script: _Script, expects: _Expects, place: lives.TestPlace, timeout: float | None) -> None:
        self._script, self._expects, self._place, self._timeout = script, expects, place, timeout
        self._mode = "process" if timeout is None else "kill"
        self._whole: Evidence | None = None
        self._failures: list[CrashFinding] = []
        self._survived: list[Evidence] = []
        self._missed = 0

    def everywhere(self, sample: int | None, seed: int, crashes: int, exceptions: bool) -> CrashReport:
        """Try without a crash, then at every point that was passed."""
        began = time.monotonic()
        where = f"({self._mode}, {self._place.kind})"
        points = _points(self._try(Point(0, "", 0, 0), ()), exceptions)
        if self._failures or not points:
            raise CrashFailed(f"{self._script.name} does not end well even without a crash {where}", self._failures)
        (self._whole,) = self._survived
        self._survived.clear()
        chosen = points if sample is None else _sample(points, sample, seed)
        for point in chosen:
            if point.raises:
                self._try_raising(point)
                continue
            more = random.Random(f"{seed}/{point.number}").choices(points, k=crashes - 1)
            self._try(point, (point, *more))
        if self._failures:
            lost = f"{len(self._failures)} of {len(chosen)} faults of {self._script.name} were not survived {where}"
            raise CrashFailed(lost, self._failures)
        return self._report(points, chosen, time.monotonic() - began)

    def _report(self, points: Sequence[Point], chosen: Sequence[Point], seconds: float) -> CrashReport:
        return CrashReport(
            what=self._script.name,
            mode=self._mode,
            store=self._place.kind,
            points=len(points),
            tried=len(chosen),
            survived=len(self._survived) - self._missed,
            missed=self._missed,
            by_name=dict(Counter(point.kind for point in chosen)),
            doubts=sum(one.doubts for one in self._survived),
            in_doubt=sum(one.outcome == ("waiting", "doubt") for one in self._survived),
            duplicates=sum(map(invariants.repeated, self._survived)),
            seconds=seconds,
        )

    def _try(self, point: Point, crashes: Sequence[Point]) -> tuple[str, ...]:
        """Begin anew, crash there, resume, and look; return the failpoints passed in the last life."""
        self._prepare()
        problems: list[str] = []
        left: Evidence | None = None
        for count, crash_at in enumerate(crashes):
            life = self._live((crash_at.name, crash_at.hit))
            self._missed += count == 0 and not life.crashed
            problems += [f"before the crash: {life.error}"] if life.error else []
            left = self._look(problems, None)
            problems += invariants.after_crash(left, self._whole or left, self._script.id)
        last = self._live(None)
        problems += [last.error] if last.error else []
        now = self._look(problems, left or Evidence())
        problems += [f"the auditor: {finding}" for finding in self._place.audit()]
        if problems:
            self._fail(point, problems, invariants.timeline(now, left))
        else:
            self._survived.append(now)
        return last.hits

    def _try_raising(self, point: Point) -> None:
        """Begin anew, let a step or tool raise, resume, and look: it may fail or wait, but nothing is done twice."""
        self._prepare()
        life = self._live(None, (point.name, point.hit))
        self._missed += not life.raised
        problems: list[str] = []
        left = self._look(problems, None)
        last = self._live(None)
        problems += [one.error for one in (life, last) if one.stuck]  # other errors: the program got them, and gave up
        now = self._look(problems, left, raised=True)
        problems += [f"the auditor: {finding}" for finding in self._place.audit()]
        if problems:
            self._fail(point, problems, invariants.timeline(now, None))
        else:
            self._survived.append(now)

    def _fail(self, point: Point, problems: Sequence[str], timeline: Iterable[str]) -> None:
        kept = self._place.keep(f"point-{point.number}") if len(self._failures) < SHOWN_FAILURES else ""
        self._failures.append(CrashFinding(point, tuple(problems), tuple(timeline), kept))

    def _prepare(self) -> None:
        self._place.clear()
        if self._expects.world is not None:
            self._expects.world.reset()
        if self._expects.setup is not None:
            with self._script.open(self._place) as app:
                self._expects.setup(app)

    def _live(self, crash_at: lives.Spot | None, raise_at: lives.Spot | None = None) -> Life:
        def open() -> App:
            return self._script.open(self._place)

        if self._timeout is None:
            return lives.simulated(open, self._script.work, crash_at, raise_at)
        return lives.forked(open, self._script.work, crash_at, self._timeout, raise_at)

    def _look(self, problems: list[str], left: Evidence | None, *, raised: bool = False) -> Evidence:
        """See what there is and, when all has come to rest, whether all holds that must; `left` was there before."""
        id, expects = self._script.id, self._expects
        try:
            with self._script.open(self._place) as app:
                now = invariants.gather(app, id, expects.world, None if left is None else expects.result)
                if left is not None and raised and self._whole is not None:
                    problems += expects.after_raising(app, id, left, now, self._whole)
                elif left is not None:
                    problems += expects.problems(app, id, left, now, self._whole)
                return now
        except HoldfastError as error:
            problems.append(f"the store cannot be read: {lives.told(error)}")
            return Evidence()


def _points(hits: Sequence[str], exceptions: bool) -> list[Point]:
    """Every hit of every failpoint, numbered in the order they were passed; then those where steps and tools raise."""
    counts: Counter[str] = Counter()
    spots: list[tuple[str, int]] = []
    for name in hits:
        counts[name] += 1
        spots.append((name, counts[name]))
    raising = [spot for spot in spots if exceptions and spot[0].startswith("act.")]
    total = len(spots) + len(raising)
    points = [Point(number, *spot, total) for number, spot in enumerate(spots, start=1)]
    return points + [Point(number, *spot, total, raises=True) for number, spot in enumerate(raising, len(spots) + 1)]


def _sample(points: Sequence[Point], size: int, seed: int) -> list[Point]:
    """A random part of the points, of as many failpoints as there is room for."""
    shuffled = random.Random(seed).sample(points, len(points))
    ranks: Counter[str] = Counter()
    ranked: list[tuple[int, Point]] = []
    for point in shuffled:
        ranks[point.kind] += 1
        ranked.append((ranks[point.kind], point))
    ranked.sort(key=lambda pair: pair[0])
    return sorted((point for _, point in ranked[:size]), key=lambda point: point.number)
