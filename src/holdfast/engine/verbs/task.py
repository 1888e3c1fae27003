"""Task and AsyncTask: the verbs of an agent, one line each. What a verb does is a flow; how it is driven differs."""

from __future__ import annotations

import threading
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast, overload

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.core import codec, events as ev, limits, names
from holdfast.core.codec import moment
from holdfast.core.context.state_template import render as render_template
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import Cancelled, InvalidValue, Stopped, UnnamedThread
from holdfast.core.events import Usage
from holdfast.core.flows import step as flows, waits, writers
from holdfast.core.flows.requests import Branch, Condition, StepRequest, Subflow
from holdfast.core.phases import DEFAULT, PLANNING, moved
from holdfast.core.retries import Retry
from holdfast.core.state import budget
from holdfast.core.state.fold_knowledge import kept_done
from holdfast.core.state.patch import Patch, changes_of
from holdfast.core.state.shapes import State
from holdfast.core.wording import verb_of
from holdfast.engine.definitions.agent import Agent, is_agent
from holdfast.engine.definitions.json_schema import AnswerType
from holdfast.engine.definitions.signature import Parameters, parameters_of
from holdfast.engine.definitions.step import Step
from holdfast.engine.definitions.tool import Tool, is_tool, undo_name
from holdfast.engine.definitions.types import R, TextStream
from holdfast.engine.drivers import parallel
from holdfast.engine.drivers.driver import drive, drive_in_thread, suspend_for_threads
from holdfast.engine.execution import mocks
from holdfast.engine.execution.execution import Execution
from holdfast.engine.execution.step_request import as_usage, call_request, step_request
from holdfast.engine.streams.draining import streamed
from holdfast.engine.system.unwinding import STOPPED, Refusals
from holdfast.engine.verbs.bag import Verbs, bag_of, fitting
from holdfast.engine.verbs.task_tools import TaskTool

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

    from holdfast.core.context.slices import ContextSlice
    from holdfast.core.messages import Form, Message
    from holdfast.core.messages.tokens import Counter
    from holdfast.engine.conversations.conversation import Conversation
    from holdfast.engine.verbs.current import CurrentState
    from holdfast.engine.verbs.user import TaskThread, TaskUser

    class MapOptions(TypedDict, total=False):
        """What `task.map` takes besides a function and items."""

        limit: int
        name: str | None
        retry: Retry | int | None
        retry_on: Sequence[type[BaseException]]
        timeout: Duration | None


pack = codec.pack


class Task:
    """What a `def` agent works with.

    Waiting verbs are durable when they return; immediate ones with the next waiting verb.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.refusals = Refusals()
        self._user: TaskUser | None = None
        self._thread: TaskThread | None = None
        self.state = bag_of(self._verbs)

    # Waiting verbs

    @overload
    def step(
        self,
        fn: Callable[..., Awaitable[R]],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        estimate: Usage | int | None = None,
        **kwargs: Any,
    ) -> R: ...
    @overload
    def step(
        self,
        fn: Callable[..., R],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        estimate: Usage | int | None = None,
        **kwargs: Any,
    ) -> R: ...
    def step(
        self,
        fn: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        estimate: Usage | int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Do this once, ever; the same value on every replay. Only errors in `retry_on`, if given, are tried again.

        `key` is the step's key, taken as given, whatever branch does it. Default: branch, name and occurrence.

        `estimate` is what it may use up, in tokens: it is announced then, and should its worker be lost before it is
        recorded, that stands in the books as unknown spend.
        """
        lent = self._execution.lent
        request, parameters = step_request(
            self._execution.agent,
            fn,
            args if lent is None else lent.ordinary(args),
            kwargs if lent is None else lent.ordinary(kwargs),
            name=name,
            key=key,
            retry=retry,
            retry_on=retry_on,
            timeout=timeout,
            estimate=None if estimate is None else self._execution.priced(as_usage(estimate)),
        )
        return self._drive("step", parameters.result, flows.step, request, name=key or name, is_key=key is not None)

    @overload
    def stream(
        self,
        fn: Callable[..., TextStream],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        estimate: Usage | int | None = None,
        **kwargs: Any,
    ) -> str: ...
    @overload
    def stream(
        self,
        fn: Callable[..., Generator[Any, Any, R]],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        estimate: Usage | int | None = None,
        **kwargs: Any,
    ) -> R: ...
    @overload
    def stream(
        self,
        fn: Callable[..., Iterable[str]],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        estimate: Usage | int | None = None,
        **kwargs: Any,
    ) -> str: ...
    @overload
    def stream(
        self,
        fn: Callable[..., Iterable[Any] | AsyncIterable[Any] | Awaitable[AsyncIterable[Any]]],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        estimate: Usage | int | None = None,
        **kwargs: Any,
    ) -> Any: ...
    def stream(
        self,
        fn: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        estimate: Usage | int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Do a step whose function yields: watchers get each chunk while it runs (`app.follow(id, chunks=True)`).

        The step's result is what a generator returns; without that, its chunks: texts joined, anything else as a list.
        Chunks are not recorded. An attempt that fails or is cut off begins anew, and watchers see that its chunks
        are void. `fn` may also return an iterator, or be async. The other parameters are those of `step`.
        """
        request, parameters = self._step_request(
            fn,
            args,
            kwargs,
            name=name,
            key=key,
            retry=retry,
            retry_on=retry_on,
            timeout=timeout,
            estimate=None if estimate is None else self._execution.priced(as_usage(estimate)),
        )
        request = streamed(request, parameters)
        return self._drive("stream", request.result, flows.step, request, name=key or name, is_key=key is not None)

    @overload
    def call(
        self, tool: Tool[..., Coroutine[Any, Any, R]], /, *unnamed: Any, key: str | None = None, **arguments: Any
    ) -> R: ...
    @overload
    def call(self, tool: Tool[..., R], /, *unnamed: Any, key: str | None = None, **arguments: Any) -> R: ...
    def call(self, tool: Tool, /, *unnamed: Any, key: str | None = None, **arguments: Any) -> Any:
        """Call a tool, as its declared effect asks. Its arguments are given by name.

        `key` is the call's key, taken as given, whatever branch makes the call. Default: branch, tool and occurrence.
        If the tool has a parameter `key`, `key=` is that argument; give its arguments as one mapping to set both.
        """
        if len(unnamed) == 1 and isinstance(unnamed[0], Mapping) and not arguments:
            arguments = dict(cast("Mapping[str, Any]", unnamed[0]))
        elif unnamed:
            raise InvalidValue(f"{tool!r} was given {len(unnamed)} arguments without a name", hint="name each of them")
        elif key is not None and isinstance(tool, Tool) and tool.takes("key"):  # pyright: ignore[reportUnnecessaryIsInstance]
            arguments, key = {**arguments, "key": key}, None
        request = self._call_request(tool, arguments)
        if key is not None:
            request = replace(request, key=names.given_key(key))
        return self._drive("call", tool.parameters.result, flows.step, request, name=key, is_key=key is not None)

    def plain_call(self, tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the durable call when an agent's body calls a tool like a function. Write `tool(…)`, not this."""
        self._refuse_elsewhere(tool, "call")
        return self.call(tool, tool.parameters.bind(args, kwargs))

    def plain_step(self, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do the step when an agent's body calls its function. Write `draft(…)`, not this."""
        self._refuse_elsewhere(step, "step")
        request, parameters = self._step_request(step, args, kwargs)
        return self._drive("step", parameters.result, flows.step, request)

    def is_of(self, logs: object, id: str) -> bool:
        """Return whether this is the task of that id."""
        return self._execution.log.name == id and self._execution.logs is logs

    def _refuse_elsewhere(self, called: Tool | Step, verb: str) -> None:
        if threading.get_ident() != self._execution.thread:
            raise in_other_thread(called, verb)

    def call_tools(self, reply: Mapping[str, Any], tools: Sequence[Tool] | Mapping[str, Tool]) -> list[dict[str, Any]]:
        """Make every tool call of a model's reply, in parallel. What each gives, also an error, becomes a message.

        Gives those messages, in the order of the calls.
        """
        from holdfast.engine.verbs import tool_calls  # only agents that talk need it

        def work_of(tool: Tool, arguments: Mapping[str, Any]) -> parallel.Work:
            if isinstance(tool, TaskTool):
                return tool_calls.answered_by_task(tool, arguments, self.current, self._execution.agent)
            return self._call_request(tool, arguments)

        calls = tool_calls.of_reply(reply, tools, work_of)
        tool_calls.refuse_unsaid(calls, self.messages.calls().open)
        requests = [call.request for call in calls if call.request is not None]

        def say(outcomes: Sequence[Any]) -> list[dict[str, Any]]:
            return tool_calls.say_results(self, calls, outcomes)

        return self._together("call_tools", requests, say)

    @overload
    def map(self, fn: Agent[..., R], items: Sequence[Any], **options: Unpack[MapOptions]) -> list[R]: ...
    @overload
    def map(
        self, fn: Tool[..., Coroutine[Any, Any, R]], items: Sequence[Any], **options: Unpack[MapOptions]
    ) -> list[R]: ...
    @overload
    def map(self, fn: Tool[..., R], items: Sequence[Any], **options: Unpack[MapOptions]) -> list[R]: ...
    @overload
    def map(self, fn: Callable[..., Awaitable[R]], items: Sequence[Any], **options: Unpack[MapOptions]) -> list[R]: ...
    @overload
    def map(self, fn: Callable[..., R], items: Sequence[Any], **options: Unpack[MapOptions]) -> list[R]: ...
    def map(
        self,
        fn: Callable[..., Any] | Tool | Agent,
        items: Sequence[Any],
        *,
        limit: int = limits.MAP_LIMIT,
        name: str | None = None,
        retry: Retry | int | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
    ) -> Any:
        """A step per item, `limit` of them at once; results in the order of the items.

        With a tool it is a call per item, with an agent a child task; an item is then a dict of arguments.
        """
        if limit < 1:
            raise InvalidValue(f"limit={limit} lets nothing happen", hint="give 1 or more")
        _named(name, "")
        parameters = fn.parameters if isinstance(fn, Tool | Agent | Step) else parameters_of(fn, name)
        options: dict[str, Any] = {"name": name, "retry": retry, "retry_on": retry_on, "timeout": timeout}
        if not isinstance(items, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"items={items!r} is not a list", hint="give one item a call: task.map(fn, [1, 2])")
        works = [self._work_of(fn, item, options) for item in items]

        def typed(outcomes: Sequence[Any]) -> list[Any]:
            return parallel.results(outcomes, parameters)

        return self._together("map", works, typed, limit)

    @overload
    def ask(
        self, question: str, *, answer: type[R], name: str | None = None, timeout: Duration | None = None
    ) -> R | None: ...
    @overload
    def ask(
        self, question: str, *, answer: Any = None, name: str | None = None, timeout: Duration | None = None
    ) -> Any: ...
    def ask(
        self, question: str, *, answer: Any = None, name: str | None = None, timeout: Duration | None = None
    ) -> Any:
        """Ask a person and wait for the answer; None if no answer came in time.

        `answer`: the type of the answer, such as `bool` or `Literal["window", "aisle"]`. People get a form of it, and
        other answers are refused. Default: any JSON.
        """
        asked, prompt = _named(name, "ask"), pack(question)
        wanted = AnswerType(answer)
        return self._drive(
            "ask", wanted.read, waits.wait, asked, "person", prompt, _seconds(timeout), wanted.schema, name=name
        )

    def approve(self, question: str, *, name: str | None = None, timeout: Duration | None = None) -> bool:
        """Ask a person to agree. False if they refuse, or do not answer in time."""
        asked = _named(name, "approve")
        return self._drive("approve", None, waits.approve, asked, pack(question), _seconds(timeout), name=name)

    def wait(self, signal: str, *, timeout: Duration | None = None) -> Any:
        """Wait for a signal; gives its value, or None if it did not come in time."""
        names.short_name(signal, "signal's name")
        return self._drive("wait", None, waits.wait, signal, "signal", None, _seconds(timeout), name=signal)

    def sleep(self, length: Duration) -> None:
        """Let time pass, also across restarts."""
        return self._drive("sleep", None, waits.wait, "sleep", "timer", None, seconds(length))

    def spawn(self, agent: Agent[..., R], input: Mapping[str, Any] | None = None, *, name: str | None = None) -> R:
        """Give work to a child task with a log of its own, and wait for its result."""
        given = self._child_input(agent, input or {})
        child = _named(name, agent.name)
        return self._drive("spawn", agent.parameters.result, waits.spawn, child, agent, given, name=name)

    def summarise(
        self,
        model: Callable[[list[dict[str, Any]]], Any],
        *,
        max_tokens: int,
        keep_last: int | None = None,
        keep_turns: int | None = None,
        pinned: Collection[int] = (),
        reserve: int = 0,
        counter: Counter | None = None,
        name: str = "summary",
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Return a window of at most so many tokens, with a summary in place of what doesn't fit.

        `model` is a function of messages that gives a text or a message. If nothing new has to be summarised it is not
        asked. A summary is a step, made once; the messages stay in the log. The other options are those of
        `task.messages.window`, and of `task.step`.
        """
        from holdfast.engine.conversations.conversation import WindowLimits
        from holdfast.engine.verbs.summaries import Summariser

        limits = WindowLimits(max_tokens, keep_last, keep_turns, tuple(pinned), reserve, counter)
        summariser = Summariser(model, limits, name=name, retry=retry, timeout=timeout)
        cut: dict[str, Any] = {"max_tokens": max_tokens, "reserve": reserve, "pinned": pinned}
        cut |= {"keep_last": keep_last, "keep_turns": keep_turns}

        def windowed(_: Any) -> Any:
            return self.messages.window(**cut, counter=counter, strategy="summarise")

        return self._drive("summarise", windowed, summariser.flow)

    def race(self, *branches: Any) -> Any:
        """In an async agent: let verbs race, cancel all but the first to end, and give `(index, its value)`.

        The winner is recorded, so that it is the same on every replay, whatever else the branches wait for.
        """
        raise _needs_a_loop("race")

    def select(self, *tasks: Any) -> Any:
        """In an async agent: give the index of the first of these asyncio tasks to end; the others keep running.

        The winner is recorded, so that it is the same on every replay, whatever else the tasks wait for.
        """
        raise _needs_a_loop("select")

    def checkpoint(self, label: str) -> None:
        """Everything before this is durable when it returns; `app.rollback(id, to=label)` comes back here."""
        names.short_name(label, "checkpoint's label")
        return self._drive("checkpoint", None, waits.checkpoint, label)

    # Immediate verbs

    def stage(self, name: str) -> None:
        """Say how far the work is."""
        self._say(ev.StageSet(stage=name))

    def phase(self, name: str = "", *, on: str = "") -> None:
        """Move to another phase of the agent's life: by its name, or by the event that leads there from here."""
        seen = self._seen
        self._say(ev.PhaseSet(phase=moved(seen.phases, seen.own_phase, name, on), on=on))

    def goal(self, text: str) -> None:
        """Say what the task is to reach, in place of what it was started with."""
        self._say(ev.GoalSet(goal=names.encodable(text, "goal")))

    def decide(
        self, question: str, choice: Any, *, why: str = "", options: Sequence[Any] | Mapping[str, str] = ()
    ) -> None:
        """Record a choice, its reason and the options not taken, and after which step it was made.

        `options` with the reasons against them: `{"DY641": "arrives at 23:10"}`. They are kept as
        `[{"option": "DY641", "why": "arrives at 23:10"}]`.
        """
        if isinstance(options, Mapping):
            options = [{"option": option, "why": against} for option, against in options.items()]
        if isinstance(options, str | bytes) or not isinstance(options, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"options={options!r} is not a list", hint='give what was not chosen: ["train", "bus"]')
        left = pack(list(options)) if options else UNSET
        step = self._here("decide").after_step
        self._say(ev.DecisionMade(question=question, choice=pack(choice), why=why, options=left, step=step))

    def fact(self, key: str, value: Any, *, source: str = "") -> None:
        """Record something learned, and from where."""
        self._say(ev.FactLearned(key=key, value=pack(value, f"fact {key!r}"), source=source))

    def plan(self, steps: Sequence[str]) -> None:
        """Replace the plan. Steps that it names again, and that are done, stay done."""
        if isinstance(steps, str | bytes) or not isinstance(steps, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{steps!r} is not a plan", hint='give its steps as texts: ["look", "write"]')
        for one in steps:
            names.text(one, "step of a plan")
        self._say(ev.PlanSet(steps=tuple(steps), done=kept_done(self._seen, steps)))

    def done(self, plan_step: str) -> None:
        """Tick off a step of the plan."""
        self._say(ev.PlanStepDone(step=plan_step))

    def question(self, text: str) -> None:
        """Note an open question."""
        self._say(ev.QuestionOpened(question=text))

    def artifact(self, data: Any, *, type: str = "text", summary: str = "", step: str = "") -> str:
        """Keep an artifact and return its id. Default of `step`: the last one."""
        raw, type = pack(data, "artifact"), names.encodable(type, "type of an artifact")
        artifact_id = f"{type}-{codec.fingerprint([type, bytes(raw).decode()])[:12]}"
        last = self._here("artifact").last
        made_by = step or (last[0] if last is not None else "")
        added: dict[str, Any] = {"type": type, "data": raw, "summary": summary, "bytes": len(raw), "step": made_by}
        event = ev.ArtifactAdded(artifact_id=artifact_id, **added)
        self._say(event)
        return artifact_id

    def note(self, key: str, value: Any) -> None:
        """Keep a working note."""
        self._say(ev.NoteSet(key=key, value=pack(value, f"note {key!r}")))

    def flag(self, name: str) -> None:
        """Raise a flag."""
        self._say(ev.FlagRaised(flag=name))

    def message(self, message: Mapping[str, Any] | Message, *, form: Form = "chat") -> None:
        """Add a message to the conversation: in a provider's form, or typed. What no provider takes is refused."""
        from holdfast.core.messages import stored  # only agents that talk need it

        known = self.messages.calls() if stored.has_calls(message, form) else None
        for one in stored.admitted(message, form, known):
            self._add_message(pack(one, "message"))

    def _add_message(self, raw: Raw) -> None:
        branch, now_us = self._here("message"), self._execution.logs.clock.now_us()
        last = branch.last
        step = None if last is None else self._execution.state.steps_of(branch.turn).get(last[0])
        if last is not None and step is not None and step.done and not step.deferred and bytes(last[1]) == bytes(raw):
            self._say(ev.MessageAdded(step=last[0], said_us=now_us))  # stored once, with the step it came from
        else:
            self._say(ev.MessageAdded(message=raw, said_us=now_us))

    def compensate(self, undo: Callable[..., Any] | Tool, **arguments: Any) -> None:
        """Should the task fail or be cancelled, this is called, last things first."""
        name = undo_name(undo)
        self._execution.undoers.setdefault(name, undo)
        _refuse_secrets(name, undo.redact if isinstance(undo, Tool) else (), arguments)
        parameters_of(undo.fn if isinstance(undo, Tool) else undo).check(arguments)
        input = {key: pack(value, f"{name}({key})") for key, value in arguments.items()}
        self._say(ev.CompensationAdded(name=name, input=input))

    def patch(self, patch: Patch, *, why: str = "") -> None:
        """Change several things at once, all or nothing: a StatePatch, or the same as a dict or JSON text.

        If a field is not what the patch requires when it is written, the next waiting verb raises PatchConflict.
        """
        changes = changes_of(patch)
        done = kept_done(self._seen, changes.replace_plan)
        said = ev.StatePatched(patch=changes, by=self._execution.agent.name, why=why, plan_done=done)
        condition = Condition({}, codec.JSON_NULL) if said.patch.require else None
        self._say(fitting(self._execution, self._seen, said), condition)

    def begin(self, text: str) -> None:
        """Begin with what a user says: it is the first message and the goal, and the phase is planning.

        A goal that was given otherwise, and a phase that the agent has moved on to, stay as they are.
        """
        self.message({"role": "user", "content": names.encodable(text, "what the user says")})
        if not self.current.goal:
            self.goal(text)
        seen = self._seen
        if seen.own_phase == (seen.phases or DEFAULT).start and PLANNING in (seen.phases or DEFAULT).moves:
            self.phase(PLANNING)

    def reply(self, text: str) -> str:
        """Add the assistant's message, and give it back, to be returned: `return task.reply("It is done.")`."""
        self.message({"role": "assistant", "content": names.encodable(text, "reply")})
        return text

    def render(self, template: str) -> str:
        """Fill in a template such as `Hello {state.name}`; a name that is not there is UnknownName."""

        also = None
        if self._execution.state.summary.user is not None:
            from holdfast.engine.verbs.user import user_root  # few tasks have one

            also = {"user": user_root(self.user, template)}
        return render_template(template, self._seen, self._execution.value, self.state.all, also)

    def log(self, text: str, /, **fields: Any) -> None:
        """Write a line to the log, with values for programs to read: `task.log("paid", order=17)`. Silent on replay."""
        given = {name: pack(value, f"log({name})") for name, value in fields.items()}
        self._say(ev.LogWritten(text=names.encodable(text, "text of a log line"), fields=given))

    # What the task is

    @property
    def id(self) -> str:
        """The task's id."""
        return self._execution.log.name

    @property
    def turn(self) -> int:
        """Which pass of a loop this is, from 1; 0 outside a loop."""
        return self._execution.root.turn

    @property
    def attempt(self) -> int:
        """How often the task was begun or resumed, this time included."""
        return self._execution.state.attempts

    @property
    def input(self) -> dict[str, Any]:
        """The input of the task."""
        return {name: self._execution.value(raw) for name, raw in self._execution.state.input.items()}

    @property
    def user(self) -> TaskUser:
        """Whose task it is; their state is seen as it was when the turn began, with what was changed here since."""
        from holdfast.engine.verbs.user import TaskUser  # few tasks have one

        id = self._execution.state.summary.user
        if id is None:
            raise InvalidValue(f"task {self.id!r} has no user", hint="start it with one: app.run(…, user=…)")
        if self._user is None:
            self._user = TaskUser(id, self._verbs)
        return self._user

    @property
    def thread(self) -> TaskThread:
        """The conversation it takes part in: `task.thread.state` is shared by all tasks of the thread."""
        from holdfast.engine.verbs.user import TaskThread  # few tasks have one

        id = self._execution.state.summary.thread
        if id is None:
            raise InvalidValue(f"task {self.id!r} has no thread", hint="start it with one: app.run(…, thread=…)")
        if self._thread is None:
            self._thread = TaskThread(id, self._verbs)
        return self._thread

    @property
    def current(self) -> CurrentState:
        """The task's own state, as this branch sees it: `task.current.facts["service"].value`.

        It is the same on every replay, and has the shape of what `app.get(id)` gives.
        """
        from holdfast.engine.verbs.current import CurrentState

        return CurrentState(self._execution, self._here, lambda: self.messages)

    @property
    def deadline(self) -> datetime | None:
        """When the task must be done."""
        deadline_us = self._execution.state.summary.deadline_us
        return None if deadline_us is None else moment(deadline_us)

    @property
    def messages(self) -> Conversation:
        """The conversation, as far as this branch sees it; `.window(max_tokens=…)` gives what fits."""
        return self._execution.messages(self._here("messages"))

    def context(
        self,
        step: str,
        *,
        max_bytes: int | None = None,
        max_tokens: int | None = None,
        counter: Counter | None = None,
    ) -> ContextSlice:
        """Return the context of a step within a limit: goal, step, open questions; then artifacts and facts.

        Without a limit, it is the budget's `artifact_bytes`.
        """
        from holdfast.core.context.task_slice import context_of
        from holdfast.engine.system.token_counter import installed

        seen = self._seen
        given = {"max_bytes": max_bytes, "max_tokens": max_tokens}
        found = context_of(seen, step, self._execution.value, **given, counter=counter or installed())
        if found.pressed and budget.FLAG not in seen.flags:
            self._say(ev.FlagRaised(flag=budget.FLAG))
        return found.slice

    def now(self) -> datetime:
        """The time of the last event this branch sees; the same on every replay."""
        return moment(self._seen.updated_us)

    def uuid(self) -> UUID:
        """Return a random id that is the same on every replay."""
        from uuid import UUID

        return UUID(int=self._chance("uuid").getrandbits(128), version=4)

    def random(self) -> float:
        """A number from 0 to 1 that is the same on every replay."""
        return self._chance("random").random()

    def _chance(self, what: str) -> Random:
        from random import Random  # few agents draw lots, and it takes a while to import

        branch = self._here(what)
        return Random(f"{self._execution.state.seed} {branch.turn} {branch.key(f'({what})')}")

    # Behind the verbs

    def _here(self, verb: str = "it") -> Branch:
        return self._execution.branch_here(verb)

    @property
    def _seen(self) -> State:
        return self._execution.see(self._here("reading the state"))

    @property
    def _verbs(self) -> Verbs:
        return Verbs(self._execution, self._here, self._say, self._drive)

    def _say(self, event: ev.Event, condition: Condition | None = None) -> None:
        try:
            self._execution.record_immediate(self._here(verb_of(event, said=True)), event, condition)
        except STOPPED as stopped:
            self.refusals.refused(stopped)
            raise

    def _step_request(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any
    ) -> tuple[StepRequest, Parameters]:
        execution = self._execution
        if execution.lent is not None:
            args, kwargs = execution.lent.ordinary(args), execution.lent.ordinary(kwargs)
        return step_request(execution.agent, fn, args, kwargs, **options)

    def _call_request(self, tool: Tool, arguments: Mapping[str, Any]) -> StepRequest:
        if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{tool!r} is not a tool", hint="declare it with @tool, or use task.step")
        if isinstance(tool, TaskTool):
            raise tool.refused()
        execution = self._execution
        if execution.lent is not None:
            arguments = execution.lent.ordinary(arguments)
        is_old = not execution.state.key_space
        request = call_request(execution.agent, tool, arguments, is_old=is_old, secret_key=execution.logs.secret_key)
        request = mocks.mocked(request, execution.mocks, execution.state.mock)
        execution.secrets.update(request.secrets)
        if request.effect in ev.ANNOUNCED:
            execution.services.tools[tool.name] = tool
        if request.undo:
            self._execution.undoers.setdefault(request.undo, tool.compensate)
        return request

    def _child_input(self, agent: Agent, input: Mapping[str, Any]) -> ev.Fields:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{agent!r} is not an agent", hint="declare it with @agent, or use task.step")
        agent.parameters.check(input)
        return agent.parameters.packed(input)

    def _work_of(self, fn: Any, item: Any, options: dict[str, Any]) -> parallel.Work:
        if is_tool(fn) or is_agent(fn):
            _refuse_no_mapping(fn, item)
        if is_tool(fn):
            return self._call_request(fn, item)
        if is_agent(fn):
            given = self._child_input(fn, item)
            name = options["name"] or fn.name
            return parallel.NamedFlow(name, lambda execution, branch: waits.spawn(execution, branch, name, fn, given))
        return self._step_request(fn, (item,), {}, **options)[0]

    def _drive(
        self,
        verb: str,
        finish: Any,
        flow: Callable[..., Subflow],
        *args: Any,
        name: str | None = None,
        is_key: bool = False,
    ) -> Any:
        execution = self._execution
        with self.refusals:
            execution.refuse_inside_a_step(verb)
            branch = execution.branch_here(verb, name, is_key=is_key)
            try:
                if branch is execution.root:
                    if execution.thread_waits:
                        suspend_for_threads(execution)
                    if branch.unsettled is not None:
                        drive(writers.settle(execution, branch), execution)
                    value = execution.value(drive(flow(execution, branch, *args), execution))
                else:
                    value = execution.value(drive_in_thread(flow(execution, branch, *args), execution))
            except (Cancelled, Stopped) as over:
                execution.over = over  # even if the agent catches it
                raise
        return value if finish is None else finish(value)

    def _together(self, verb: str, works: Sequence[parallel.Work], finish: Any, limit: int = limits.MAP_LIMIT) -> Any:
        execution = self._execution
        with self.refusals:
            execution.refuse_inside_a_step(verb)
            branch = execution.branch_here(verb)
            if branch.unsettled is not None:
                drive(writers.settle(execution, branch), execution)
            parts = parallel.parts(execution, branch, works)
            outcomes = parallel.in_threads(execution, parts, limit)
            value = parallel.join_results(branch, parts, outcomes, execution.value)
        return finish(value)


def _needs_a_loop(verb: str) -> InvalidValue:
    return InvalidValue(
        f"task.{verb} needs an async agent", hint="write async def; or wait with a time limit: task.wait(…, timeout=…)"
    )


def in_other_thread(called: Tool | Step, verb: str) -> UnnamedThread:
    hint = f"write: task.{verb}({called.name}, …, key=…), with a key of its own"
    return UnnamedThread(f"{called.name}()", "", hint=hint)


def _refuse_secrets(name: str, redact: Collection[str], arguments: Mapping[str, Any]) -> None:
    """Refuse to record secrets: what undoes may be called by another process, which finds in the log what was given."""
    for given, value in arguments.items():
        if given in redact or isinstance(value, codec.Secret):
            raise InvalidValue(
                f"compensate({name}, {given}=…) would have to keep a secret in the log",
                hint=f"leave {given!r} out, and let {name} read it where it runs",
            )


def _refuse_no_mapping(fn: Tool | Agent, item: object) -> None:
    if not isinstance(item, Mapping):
        raise InvalidValue(f"{item!r} is not a dict of arguments for {fn!r}", hint='give {"name": value} for each')


def _named(name: str | None, usual: str) -> str:
    return usual if name is None else names.short_name(name, "name")


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else seconds(timeout, "timeout")
