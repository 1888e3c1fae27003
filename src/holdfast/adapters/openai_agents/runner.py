"""DurableRunner: runs of an agent as tasks."""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from agents import Agent as SdkAgent, FunctionTool, Handoff, Model, RunConfig, Runner, TResponseInputItem
from pydantic_core import to_jsonable_python

from holdfast import Agent, App, AsyncTask, InvalidValue, TaskState
from holdfast.adapters.names import step_key
from holdfast.adapters.openai_agents.effects import RUN, durable_tool
from holdfast.adapters.openai_agents.model import RecordedModel, RecordedProvider
from holdfast.adapters.openai_agents.session import HoldfastSession
from holdfast.adapters.run import FrameworkRun
from holdfast.core.events import Effect

MAX_TURNS = 10


class DurableRunner:
    """Run an agent of the OpenAI Agents SDK as a task: kill the process, run it again with the same id, and it goes on.

    Model requests are steps, tool calls are durable calls. `effects` says what tools do to the world, by name;
    `@effect` says it at the tool. The agent, its tools and the agents it hands off to are copied, never changed.
    `context` is what runs get that are given none; it is never recorded. Calls of tools whose risk is in
    `required_for_risk_levels` wait for a person's approval; so do tools with `needs_approval`. Tracing is off, unless
    `run_config` says otherwise.
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
        self._app = app
        self._starting = _Copies(effects or {}).of(agent)
        self._config = _recorded(run_config or RunConfig(tracing_disabled=True))
        self._max_turns = max_turns
        self._context = context
        self._given: dict[str, tuple[Any, HoldfastSession | None]] = {}
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

    async def resume(self, id: str, *, context: Any = None) -> TaskState[Any]:
        """Resume a task that was interrupted, waits or failed."""
        with self._with(id, context, None):
            return await self._app.aresume(id, self.agent)

    @contextmanager
    def _with(self, id: str, context: Any, session: HoldfastSession | None) -> Generator[None, None, None]:
        self._given[id] = (self._context if context is None else context, session)
        try:
            yield
        finally:
            self._given.pop(id, None)

    async def _work(self, task: AsyncTask, input: Any, session: str | None = None) -> Any:
        context, given = self._given.get(task.id, (self._context, None))
        kept = given if given is not None or session is None else HoldfastSession(self._app, session)
        said: list[Any] = [] if kept is None else await task.step(kept.get_items, name="session", key="session:read")
        new: list[Any] = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        done = await self._turns(task, [*said, *new], context)
        if kept is not None:
            added: list[Any] = to_jsonable_python(done.to_input_list())[len(said) :]
            await task.step(_adder(kept, added, task.id), name="session", key="session:add")
        return to_jsonable_python(done.final_output)

    async def _turns(self, task: AsyncTask, input: list[Any], context: Any) -> Any:
        """Run the agent, and ask people where it needs them, until it is done."""
        given: Any = input
        token = RUN.set(FrameworkRun(task))
        try:
            while True:
                done = await Runner.run(
                    self._starting, given, context=context, max_turns=self._max_turns, run_config=self._config
                )
                if not done.interruptions:
                    return done
                given = done.to_state()
                for item in given.get_interruptions():
                    question = f"approve {item.name}({item.arguments})?"
                    agreed = await task.approve(question, name=step_key("approve", str(item.call_id)))
                    given.approve(item) if agreed else given.reject(item)
        finally:
            RUN.reset(token)


def _adder(session: HoldfastSession, items: list[Any], run: str) -> Any:
    def add() -> int:
        session.add_once(items, run)
        return len(items)

    return add


def _input(input: str | list[TResponseInputItem], session: HoldfastSession | None) -> dict[str, Any]:
    given: dict[str, Any] = {"input": input}
    return given if session is None else {**given, "session": session.session_id}


def _recorded(config: RunConfig) -> RunConfig:
    """A copy of a configuration whose models are recorded."""
    model = RecordedModel(config.model) if isinstance(config.model, Model) else config.model
    return replace(config, model=model, model_provider=RecordedProvider(config.model_provider))


class _Copies:
    """Copies of agents whose models and tools are recorded; each agent once, since they can hand off in circles."""

    def __init__(self, effects: Mapping[str, Effect]) -> None:
        self._effects = effects
        self._made: dict[int, SdkAgent[Any]] = {}

    def of(self, agent: SdkAgent[Any]) -> SdkAgent[Any]:
        """The copy of an agent."""
        if id(agent) in self._made:
            return self._made[id(agent)]
        model = RecordedModel(agent.model) if isinstance(agent.model, Model) else agent.model
        tools = [durable_tool(one, self._effects) if isinstance(one, FunctionTool) else one for one in agent.tools]
        made = self._made[id(agent)] = agent.clone(model=model, tools=tools, handoffs=[])
        made.handoffs = [self._handoff(one) for one in agent.handoffs]
        return made

    def _handoff(self, one: SdkAgent[Any] | Handoff[Any, Any]) -> SdkAgent[Any] | Handoff[Any, Any]:
        if isinstance(one, SdkAgent):
            return self.of(one)
        made = copy.copy(one)

        async def invoke(context: Any, arguments: str) -> Any:
            target = await one.on_invoke_handoff(context, arguments)
            return self.of(cast("SdkAgent[Any]", target)) if isinstance(target, SdkAgent) else target

        made.on_invoke_handoff = invoke
        return made
