"""DurableRunner: runs of an agent as tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from agents import (
    Agent as SdkAgent,
    AgentsException,
    Model,
    RawResponsesStreamEvent,
    RunConfig,
    Runner,
    StreamEvent,
    TResponseInputItem,
)
from agents.result import RunResult, RunResultStreaming
from pydantic_core import to_jsonable_python

from holdfast import Agent, App, AsyncTask, InvalidValue, StepFailed, TaskState
from holdfast.adapters.checks import refuse_unless_mapping
from holdfast.adapters.names import step_key
from holdfast.adapters.openai_agents.copies import AgentCopies
from holdfast.adapters.openai_agents.effects import RUN
from holdfast.adapters.openai_agents.model import RecordedModel, RecordedProvider, completed
from holdfast.adapters.openai_agents.session import HoldfastSession
from holdfast.adapters.openai_agents.streams import DurableStream, Emit
from holdfast.adapters.run import FrameworkRun
from holdfast.core.events import Effect

MAX_TURNS = 10


class _Given(NamedTuple):
    """What a run is given that is not recorded."""

    context: Any
    session: HoldfastSession | None = None
    emit: Emit | None = None


class DurableRunner:
    """Run an agent of the OpenAI Agents SDK as a task: run it again with the same id after a crash, and it resumes.

    Model requests are steps, tool calls are durable calls. The agent, its tools and the agents it hands off to are
    copied, never changed.

    `effects`: what tools do to the world, by name; `@effect` declares it at the tool. `context`: for runs that are
    given none; it is never recorded. `required_for_risk_levels`: calls of tools with these risks wait for a person's
    approval; so do tools with `needs_approval`. `run_config`: the SDK's. Default: one with tracing disabled.
    """

    def __init__(
        self,
        agent: SdkAgent[Any],
        app: App,
        *,
        effects: Mapping[str, Effect] | None = None,
        run_config: RunConfig | None = None,
        max_turns: int = MAX_TURNS,
        context: Any = None,
        required_for_risk_levels: Sequence[str] = (),
    ) -> None:
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give DurableRunner(agent, holdfast.open(…))")
        if not isinstance(agent, SdkAgent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{agent!r} is not an agent of the SDK", hint='give Agent(name="shop", …)')
        if run_config is not None and not isinstance(run_config, RunConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"run_config={run_config!r} is not a RunConfig", hint="give RunConfig(…)")
        if type(max_turns) is not int or max_turns < 1:
            raise InvalidValue(f"max_turns={max_turns!r} is not a number of turns", hint="give an int, 1 or more")
        refuse_unless_mapping(effects, "effects", '{"charge": "once"}')
        self._app = app
        self._copies = AgentCopies(effects or {})
        self._starting = self._copies.of(agent)
        self._config = _recorded(run_config or RunConfig(tracing_disabled=True))
        self._max_turns = max_turns
        self._context = context
        self._given: dict[str, _Given] = {}
        self.agent = Agent(self._work, name=agent.name, required_for_risk_levels=required_for_risk_levels)
        """The Holdfast agent, which workers can serve: `app.worker([runner.agent])`."""

    async def run(
        self,
        input: str | list[TResponseInputItem],
        *,
        id: str,
        session: HoldfastSession | None = None,
        context: Any = None,
    ) -> TaskState[Any]:
        """Start the task of that id, or resume it, until it ends or waits. Its `result` is the output, as JSON."""
        with self._with(id, context, session):
            return await self._app.arun(self.agent, _input(input, session), id=id)

    def run_sync(
        self,
        input: str | list[TResponseInputItem],
        *,
        id: str,
        session: HoldfastSession | None = None,
        context: Any = None,
    ) -> TaskState[Any]:
        """`run`, without an event loop."""
        with self._with(id, context, session):
            return self._app.run(self.agent, _input(input, session), id=id)

    def run_streamed(
        self,
        input: str | list[TResponseInputItem],
        *,
        id: str,
        session: HoldfastSession | None = None,
        context: Any = None,
    ) -> DurableStream:
        """`run`, whose events are read while it works: `async for event in runner.run_streamed(…).stream_events()`.

        A model request that is recorded already gives its last event only, `response.completed`. So does a task that
        is completed, for each of its requests. Other processes can watch with `app.follow(id, chunks=True)`.
        """
        recorded = _input(input, session)

        async def start(emit: Emit) -> TaskState[Any]:
            given = 0

            def show(event: StreamEvent) -> None:
                nonlocal given
                given += 1
                emit(self._copies.shown(event))

            with self._with(id, context, session, show):
                state = await self._app.arun(self.agent, recorded, id=id)
            if not given:  # it had nothing left to do, so the agent was not run
                for event in await asyncio.to_thread(self._last_events, id):
                    emit(event)
            return state

        return DurableStream(start)

    def _last_events(self, id: str) -> list[StreamEvent]:
        """The events that end the model requests of a task."""
        steps = [one for one in self._app.steps(id) if one.name == "model" and one.status == "completed"]
        return [RawResponsesStreamEvent(data=completed(one.result)) for one in steps]

    async def resume(self, id: str, *, context: Any = None) -> TaskState[Any]:
        """Resume a task that was interrupted, waits or failed."""
        with self._with(id, context, None):
            return await self._app.aresume(id, self.agent)

    @contextmanager
    def _with(
        self, id: str, context: Any, session: HoldfastSession | None, emit: Emit | None = None
    ) -> Generator[None, None, None]:
        """Keep what is not recorded where the run of that id finds it."""
        given = self._given[id] = _Given(self._context if context is None else context, session, emit)
        try:
            yield
        finally:
            if self._given.get(id) is given:  # and not what a second run of the same id brought
                del self._given[id]

    async def _work(self, task: AsyncTask, input: Any, session: str | None = None) -> Any:
        given = self._given.get(task.id) or _Given(self._context)
        kept = given.session
        if kept is None and session is not None:
            kept = HoldfastSession(self._app, session)
        found: Any = {"items": [], "seq": 0}
        if kept is not None:
            found = await task.step(kept.read, name="session", key="session:read")
        new: list[Any] = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        done = await self._turns(task, [*found["items"], *new], given)
        if kept is not None:
            added: list[Any] = to_jsonable_python(done.to_input_list())[len(found["items"]) :]
            add = partial(kept.add_once, added, task.id, found["seq"])
            await task.step(add, name="session", key="session:add")
        return to_jsonable_python(done.final_output)

    async def _turns(self, task: AsyncTask, input: list[Any], given: _Given) -> Any:
        """Run the agent, and ask people where it needs them, until it is done."""
        what: Any = input
        token = RUN.set(FrameworkRun(task))
        try:
            while True:
                try:
                    done = await self._run(what, given)
                except AgentsException as error:
                    failed = _failed_step(error)
                    if failed is None:
                        raise
                    raise failed from failed.__cause__  # not caught, then, and made again when the task is resumed
                if not done.interruptions:
                    return done
                what = done.to_state()
                for item in what.get_interruptions():
                    question = f"approve {item.name}({item.arguments})?"
                    agreed = await task.approve(question, name=step_key("approve", str(item.call_id)))
                    what.approve(item) if agreed else what.reject(item)
        finally:
            RUN.reset(token)

    async def _run(self, what: Any, given: _Given) -> RunResult | RunResultStreaming:
        """Let the SDK run the agent, and pass its events on if there is a reader."""
        options: Any = {"context": given.context, "max_turns": self._max_turns, "run_config": self._config}
        if given.emit is None:
            return await Runner.run(self._starting, what, **options)
        done = Runner.run_streamed(self._starting, what, **options)
        async for event in done.stream_events():
            given.emit(event)
        return done


def _failed_step(error: BaseException) -> StepFailed | None:
    """The failed step that an error of the SDK comes from, if it comes from one."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, StepFailed):
        at = at.__cause__
    return at


def _input(input: str | list[TResponseInputItem], session: HoldfastSession | None) -> dict[str, Any]:
    if not isinstance(input, str | list):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{input!r} is not an input of an agent", hint="give a text, or a list of input items")
    if session is not None and not isinstance(session, HoldfastSession):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"session={session!r} is not a HoldfastSession", hint="give session=HoldfastSession(app, thread_id)"
        )
    given: dict[str, Any] = {"input": input}
    return given if session is None else {**given, "session": session.session_id}


def _recorded(config: RunConfig) -> RunConfig:
    """A copy of a configuration whose models are recorded."""
    model = RecordedModel(config.model) if isinstance(config.model, Model) else config.model
    return replace(config, model=model, model_provider=RecordedProvider(config.model_provider))
