"""`expect(state)`: what a test says about a task, in a line each. What is not so fails with an account of what was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Self, cast

from holdfast.core import events as ev
from holdfast.core.errors import InvalidValue
from holdfast.core.events import Failure
from holdfast.engine.definitions.signature import name_of
from holdfast.engine.reading.steps import StepState
from holdfast.engine.reading.task_state import TaskState


class _Anything:
    """Stands for whatever there is, where None would be a value."""

    def __repr__(self) -> str:
        return "anything"


ANYTHING: Any = _Anything()


def expect(state: TaskState) -> Expect:
    """Say what should be true of a task as it was read: `expect(done).completed().called(pay, times=1)`."""
    if not isinstance(state, TaskState):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{state!r} is not a task's state", hint="give what app.run or app.get gives")
    return Expect(state)


class Expect:
    """What a test expects of a task. Each raises AssertionError if it is not so, and gives itself if it is."""

    def __init__(self, task: TaskState) -> None:
        self.task = task

    def __repr__(self) -> str:
        return f"<expect {self.task!r}>"

    # How it ended, or where it is

    def completed(self, result: Any = ANYTHING) -> Self:
        """It came to its end, with this result."""
        __tracebackhide__ = True
        self._status("completed")
        if result is not ANYTHING and self.task.result != result:
            self._fail(f"to be completed with {result!r}", f"its result is {self.task.result!r}")
        return self

    def failed(self, reason: type[BaseException] | str = "") -> Self:
        """It failed, with this error among its reasons or this text in one of them."""
        __tracebackhide__ = True
        self._status("failed")
        reasons = list(_reasons(self.task.failure))
        wanted = reason if isinstance(reason, str) else reason.__qualname__
        fits = any(wanted in one for one in reasons) if isinstance(reason, str) else _is_among(wanted, reasons)
        if not fits:
            self._fail(f"to have failed with {wanted}", f"it failed with {_listed(reasons)}")
        return self

    def cancelled(self) -> Self:
        """It was cancelled."""
        __tracebackhide__ = True
        return self._status("cancelled")

    def waiting(self, kind: str = "", *, on: str = "") -> Self:
        """It waits: for a `person`, a `signal`, a `timer` …, on what has this key or name."""
        __tracebackhide__ = True
        self._status("waiting")
        waiting = self.task.waiting
        assert waiting is not None
        if kind and waiting.kind != kind:
            self._fail(f"to wait for {kind}", f"it waits for {waiting.kind}")
        found = [(one["key"], one["name"], one.get("tool")) for one in waiting.on]
        if on and not any(on in names for names in found):
            self._fail(f"to wait on {on!r}", f"it waits on {_listed(names[0] for names in found)}")
        return self

    def stage(self, name: str) -> Self:
        """It is at this stage."""
        __tracebackhide__ = True
        if self.task.stage != name:
            self._fail(f"to be at the stage {name!r}", f"its stages were {_listed(self._stages())}")
        return self

    def stages(self, *names: str) -> Self:
        """It went through exactly these stages, in this order."""
        __tracebackhide__ = True
        if list(names) != self._stages():
            self._fail(f"to go through the stages {_listed(names)}", f"it went through {_listed(self._stages())}")
        return self

    def phases(self, *names: str) -> Self:
        """It went through exactly these phases, in this order."""
        __tracebackhide__ = True
        was = [one.event.phase for one in self.task.events() if isinstance(one.event, ev.PhaseSet)]
        if list(names) != was:
            self._fail(f"to go through the phases {_listed(names)}", f"it went through {_listed(was)}")
        return self

    def turns(self, number: int) -> Self:
        """It took so many turns."""
        __tracebackhide__ = True
        if self.task.turn != number:
            self._fail(f"to take {_times(number, 'turn')}", f"it took {_times(self.task.turn, 'turn')}")
        return self

    # What it knows

    def state(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Self:
        """These names have these values in its state; others may be there too."""
        __tracebackhide__ = True
        self._holds("state", dict(self.task.state), {**(values or {}), **named})
        return self

    def fact(self, key: str, value: Any = ANYTHING, *, source: str | None = None) -> Self:
        """It knows this fact, with this value, from this source."""
        __tracebackhide__ = True
        facts = self.task.facts
        self._holds("facts", {name: fact.value for name, fact in facts.items()}, {key: value})
        if source is not None and facts[key].source != source:
            self._fail(f"to know {key!r} from {source!r}", f"it is from {facts[key].source!r}")
        return self

    def flag(self, name: str) -> Self:
        """This flag is raised."""
        __tracebackhide__ = True
        if name not in self.task.flags:
            self._fail(f"to have raised {name!r}", f"its flags are {_listed(self.task.flags)}")
        return self

    def decided(self, question: str, choice: Any = ANYTHING, *, why: str | None = None) -> Self:
        """It decided this question: for that choice, for that reason."""
        __tracebackhide__ = True
        made = self.task.decisions
        wanted = {"question": question, "choice": choice, "why": ANYTHING if why is None else why}
        if not any(_has(one, wanted) for one in made):
            because = "" if why is None else f" because {why!r}"
            shown = [f"{one['question']!r}: {one['choice']!r} because {one['why']!r}" for one in made]
            self._fail(f"to decide {question!r}: {choice!r}{because}", *_account("it decided", shown))
        return self

    def messages(self, *expected: str | Mapping[str, Any]) -> Self:
        """Its conversation is exactly this: a role, or part of a message, for each."""
        __tracebackhide__ = True
        said = self.task.messages
        wanted = [{"role": one} if isinstance(one, str) else dict(one) for one in expected]
        pairs = zip(said, wanted, strict=False)
        if len(said) != len(wanted) or not all(_has(message, part) for message, part in pairs):
            shown = [_short(message) for message in said]
            self._fail(f"to have had the messages {_listed(expected)}", *_account("it had", shown))
        return self

    # What it did

    def called(
        self,
        tool: Callable[..., Any] | str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        times: int | None = None,
        **named: Any,
    ) -> Self:
        """It called this tool with these arguments (others may be there too): so many times, or at all."""
        __tracebackhide__ = True
        name, given = _name(tool), {**(arguments or {}), **named}
        calls = self._calls(name)
        fitting = [call for call in calls if _has(call.input, given)]
        if (times is None and not fitting) or (times is not None and len(fitting) != times):
            how = f" with {_arguments(given)}" if given else ""
            often = "" if times is None else f" {_times(times, 'time')}"
            self._fail(f"to have called {name}{often}{how}", *self._account_of(name, calls))
        return self

    def not_called(self, tool: Callable[..., Any] | str) -> Self:
        """It never called this tool."""
        __tracebackhide__ = True
        name = _name(tool)
        if calls := self._calls(name):
            self._fail(f"not to have called {name}", *self._account_of(name, calls))
        return self

    def order(self, *done: Callable[..., Any] | str) -> Self:
        """These steps and calls were recorded in this order, over all turns; others may stand between them.

        A step is given by its name, its key (`draft#2`), or the function or tool itself.
        """
        __tracebackhide__ = True
        recorded = self.task.all_steps()
        left = iter(recorded)
        for one in done:
            name = _name(one)
            if not any(name in (step.name, step.key, f"{step.turn}/{step.key}") for step in left):
                shown = [_shown(step) for step in recorded]
                wanted = _listed(_name(every) for every in done)
                self._fail(f"to have done {wanted} in this order ({name!r} is missing)", *_account("it did", shown))
        return self

    # Behind them

    def _status(self, wanted: str) -> Self:
        __tracebackhide__ = True
        if self.task.status != wanted:
            self._fail(f"to be {wanted}", f"it is {self.task.status}")
        return self

    def _stages(self) -> list[str]:
        was: list[str] = []
        for one in self.task.events():
            if isinstance(one.event, ev.StageSet) and one.event.stage not in was[-1:]:
                was.append(one.event.stage)
        return was

    def _holds(self, what: str, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        __tracebackhide__ = True
        for name, value in wanted.items():
            if name not in there or (value is not ANYTHING and there[name] != value):
                has = f"it is {there[name]!r}" if name in there else f"there is no {name!r}"
                self._fail(f"to have {name!r} as {value!r} in its {what}", f"{has}; its {what}: {_short(dict(there))}")

    def _calls(self, name: str) -> list[StepState]:
        """The calls of a tool that were made here: not those refused, settled as undone, or answered by another's."""
        elsewhere = self._answered_elsewhere()
        steps = [step for step in self.task.all_steps() if step.tool == name]
        made = [step for step in steps if step.attempts and step.status != "void"]
        return [step for step in made if step.after not in elsewhere]

    def _answered_elsewhere(self) -> set[int]:
        outcomes = [one for one in self.task.events() if isinstance(one.event, ev.StepCompleted | ev.StepFailed)]
        return {one.seq for one in outcomes if getattr(one.event, "source", "") not in ("", "mock")}

    def _account_of(self, name: str, calls: Sequence[StepState]) -> list[str]:
        if calls:
            return _account(f"it called {name} {_times(len(calls), 'time')}", [_shown(call) for call in calls])
        tools = {step.tool: None for step in self.task.all_steps() if step.tool}
        return [f"it did not; it called {_listed(tools)}"]

    def _fail(self, wanted: str, *was: str) -> NoReturn:
        __tracebackhide__ = True
        task = self.task
        lines = [f"expected task {task.id!r} {wanted}", *was]
        where = f" at stage {task.stage!r}" if task.stage else ""
        waiting = f" for {task.waiting.kind}" if task.waiting is not None else ""
        reason = f": {next(_reasons(task.failure))}" if task.failure is not None and task.status == "failed" else ""
        lines.append(f"the task is {task.status}{waiting}{where}, seq {task.seq}{reason}")
        raise AssertionError("\n".join(lines))


def _name(given: Callable[..., Any] | str) -> str:
    if isinstance(given, str):
        return given
    name = getattr(given, "name", None)
    return name if isinstance(name, str) else name_of(given)


def _has(whole: Any, part: Any) -> bool:
    """Return whether every value of a mapping is there; anything else must be the same."""
    if not isinstance(whole, Mapping) or not isinstance(part, Mapping):
        return bool(whole == part)
    there = cast("Mapping[str, Any]", whole)
    wanted = cast("Mapping[str, Any]", part).items()
    return all(name in there and (value is ANYTHING or there[name] == value) for name, value in wanted)


def _reasons(failure: Failure | None) -> Iterator[str]:
    """A failure and what it comes from, as text."""
    if failure is not None:
        yield f"{failure.type}: {failure.message}"
        yield from _reasons(failure.cause)
        for one in failure.group:
            yield from _reasons(one)


def _is_among(type: str, reasons: Sequence[str]) -> bool:
    """Return whether an error of that type is a reason, or is what a failed step raised."""
    return any(one.startswith(f"{type}: ") or f": {type}: " in one for one in reasons)


def _shown(step: StepState) -> str:
    turn = f"{step.turn}/" if step.turn else ""
    outcome = f"{step.failure.type}: {step.failure.message}" if step.failure is not None else _short(step.result)
    arguments = _arguments(step.input)
    return f"{turn}{step.key}({arguments}) {step.status}{f': {outcome}' if step.status != 'running' else ''}"


def _arguments(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in given.items())


def _account(what: str, lines: Sequence[str]) -> list[str]:
    return [f"{what}:", *(f"  {line}" for line in lines)] if lines else [f"{what} nothing"]


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(name if isinstance(name, str) else repr(name) for name in names) or "none"


def _times(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _short(value: Any, length: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}…"
