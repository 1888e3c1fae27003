"""Pydantic AI agents as Holdfast tasks: model requests are steps, and tool calls are calls, each recorded once.

agent = Agent("openai:gpt-5", name="shop", toolsets=[tools], capabilities=[HoldfastDurability()])
done = HoldfastAgent(agent, app).run_sync("One book, please.", id="order-7")
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

from holdfast.adapters.extras import unsupported

if refusal := unsupported("pydantic-ai", "pydantic-ai-slim", at_least="2.62", below="3"):
    raise refusal

from pydantic_ai import Agent as PydanticAgent, RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_core import to_jsonable_python

from holdfast import (
    Agent,
    App,
    ApprovalDenied,
    AsyncTask,
    InvalidValue,
    NotSerializable,
    TaskState,
    Tool,
    current_call,
    report_usage,
)
from holdfast.adapters.checks import refuse_unless_mapping
from holdfast.adapters.names import step_key
from holdfast.adapters.run import FrameworkRun
from holdfast.core.events import Effect

__all__ = ["HoldfastAgent", "HoldfastDurability", "durable"]

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")
Declared = Mapping[str, Any]
"""What a tool's metadata says under "holdfast": effect, risk, unique."""

RESULTS = frozenset(
    {
        *("tool_return", "tool_content_result", "tool_failed", "model_retry", "validation_error"),
        *("approval_required", "call_deferred", "run_cancelled"),
    }
)
"""What Pydantic AI calls outcomes of tool calls. A result that a person has settled is none of them yet."""


_RUN: ContextVar[FrameworkRun | None] = ContextVar("holdfast.adapters.pydantic_ai", default=None)


@contextmanager
def durable(task: AsyncTask) -> Generator[None, None, None]:
    """Make runs of Pydantic AI agents part of a task, in an agent that you write yourself.

        @holdfast.agent
        async def support(task: AsyncTask, question: str) -> str:
            with durable(task):
                return (await helper.run(question)).output

    The Pydantic AI agent must have the capability HoldfastDurability.
    """
    if not isinstance(task, AsyncTask):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"{task!r} is not the task of an `async def` agent", hint="write async def …(task: AsyncTask)"
        )
    token = _RUN.set(FrameworkRun(task))
    try:
        yield
    finally:
        _RUN.reset(token)


class HoldfastDurability(BaseDurabilityCapability[DepsT], Generic[DepsT]):
    """Make an agent's model requests steps, and its tool calls durable calls, inside of a Holdfast task.

    Outside of a task it does nothing. A tool's metadata says what it does to the world:
    `metadata={"holdfast": {"effect": "once", "risk": "money", "unique": "order-{order}"}}`, or False for a tool that
    may run again. `effects` says the same by the tool's name. A tool that declares nothing counts as `once`, and fails
    if it raises. Tools must be in a toolset that has an id.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="task",
        codec=JSON_CODEC,
        serialization_failure=lambda error: NotSerializable(
            "what a step of the agent returned", f"is not JSON: {error}"
        ),
        journal_discovery=False,
        tool_config_key="holdfast",
    )

    def __init__(self, *, effects: Mapping[str, Effect] | None = None, name: str | None = None, **options: Any) -> None:
        super().__init__(name=name, **options)
        refuse_unless_mapping(effects, "effects", '{"charge": "once"}')
        self._effects: Mapping[str, Effect] = effects or {}
        for tool, effect in self._effects.items():
            _declared(
                tool, {"effect": effect}, _nothing
            )  # refuses what can't be declared now, not in the middle of a run

    @property
    def in_durable_context(self) -> bool:
        """Whether a task is at work here, and not in the middle of one of its steps."""
        return _RUN.get() is not None and current_call() is None

    def get_default_run_id(self) -> str | None:
        """The run's id: that of the task."""
        run = _RUN.get()
        return None if run is None else run.task.id

    def get_durable_operation_backend(self) -> _Backend:
        """Return what carries out the agent's operations as steps and calls."""
        nothing: Declared = {}
        config = RoleBasedOperationConfig[Declared](
            model=nothing, event=nothing, capability=nothing, tool=nothing, resolve_tool=self._resolve_tool
        )
        return _Backend(agent_name=self.name or "", default_model_id=None, config=config)

    def _resolve_tool(self, operation: DurableOperationId, tool: object | None, name: str) -> Declared | Literal[False]:
        metadata: Mapping[str, Any] = getattr(getattr(tool, "tool_def", None), "metadata", None) or {}
        given: Any = metadata.get("holdfast", {})
        if given is False:
            return False
        if not isinstance(given, Mapping):
            raise InvalidValue(
                f"the metadata of tool {name!r} has holdfast={given!r}", hint='give {"effect": "once"}, or False'
            )
        effect = self._effects.get(name)
        return {**({} if effect is None else {"effect": effect}), **cast("Declared", given)}

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[DepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Wait for people: approvals as the task's approvals, external calls as its signals `deferred:<call id>`."""
        run = _RUN.get()
        if run is None or current_call() is not None:
            return None
        results = DeferredToolResults()
        for call in requests.approvals:
            question = f"approve {call.tool_name}({', '.join(f'{k}={v!r}' for k, v in call.args_as_dict().items())})?"
            agreed = await run.task.approve(question, name=step_key("approve", call.tool_call_id))
            results.approvals[call.tool_call_id] = True if agreed else ToolDenied("A person has refused this call.")
        for call in requests.calls:
            results.calls[call.tool_call_id] = await run.task.wait(step_key("deferred", call.tool_call_id))
        return results


class _Backend(JournalCallableOperationBackend[Declared]):
    """Carries out operations: tool calls as calls, everything else as steps."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Declared,
    ) -> object:
        """Return what is recorded of an operation, or do it and record it."""
        run = _RUN.get()
        if run is None or current_call() is not None:
            return await body()
        if isinstance(operation_id, ToolsetCallToolId):
            return await _called(run.task, body, cache_key, config)

        if isinstance(operation_id, ToolsetValidateToolArgumentsId):
            key = step_key("validate", _call_id(cache_key))
        else:
            key = run.next_key("model" if isinstance(operation_id, ModelRequestId) else name)

        async def step() -> object:
            result = await body()
            if isinstance(operation_id, ModelRequestId):
                _report(result)
            return result

        return await run.task.step(step, name=name, key=key)


def _report(response: Any) -> None:
    """Say what a model request has used up, so that budgets hold."""
    given: Mapping[str, Any] = cast("Any", response) if isinstance(response, Mapping) else {}
    reply: Mapping[str, Any] = given.get("response", given)
    used: Mapping[str, Any] = reply.get("usage") or {}
    tokens = {name: int(used.get(name) or 0) for name in ("input_tokens", "output_tokens")}
    report_usage(**tokens, model=str(reply.get("model_name") or ""))


async def _called(
    task: AsyncTask, body: Callable[[], Awaitable[object]], cache_key: tuple[object, ...], declared: Declared
) -> object:
    """Make a tool call. Its key is the model's call id, which is in the recorded reply."""
    name, arguments = cast("str", cache_key[0]), cast("dict[str, Any]", cache_key[1])
    limit = _time_limit(cache_key[3])

    async def call(**given: Any) -> object:
        began = time.monotonic()
        result = await body()  # with the arguments as the toolset has validated them, and not as they are recorded
        if limit is not None and time.monotonic() - began >= limit and _kind(result) == "model_retry":
            # Pydantic AI would ask the model to try again. But the tool may have had its effect.
            raise TimeoutError(f"{name} took longer than {limit} s")
        return result

    tool = _declared(name, declared, call)
    try:
        result: Any = await task.call(tool, to_jsonable_python(arguments), key=step_key("call", _call_id(cache_key)))
    except ApprovalDenied as denied:
        return {"kind": "tool_return", "result": f"The call was refused: {denied.message}"}
    if _kind(result) in RESULTS:
        return result
    return {"kind": "tool_return", "result": result}  # settled by a person


def _kind(result: object) -> str:
    """What Pydantic AI calls an outcome; empty for a result that a person has settled."""
    return str(cast("Mapping[str, Any]", result).get("kind", "")) if isinstance(result, Mapping) else ""


def _time_limit(tool: object) -> float | None:
    """The seconds that a tool may take: its own limit, or that of its toolset."""
    limit = getattr(getattr(tool, "tool_def", None), "timeout", None)
    toolset = getattr(tool, "toolset", None)
    while limit is None and toolset is not None:
        limit, toolset = getattr(toolset, "timeout", None), getattr(toolset, "wrapped", None)
    return limit


def _declared(name: str, declared: Declared, fn: Callable[..., Any]) -> Tool[..., Any]:
    unknown = sorted(set(declared) - {"effect", "risk", "unique"})
    if unknown:
        raise InvalidValue(
            f"the metadata of tool {name!r} has {unknown[0]!r}", hint="holdfast knows effect, risk and unique"
        )
    return Tool(fn, name=name, schema={"type": "object"}, **declared)


def _nothing(**arguments: Any) -> None:
    """Stands for a tool while its declaration is checked."""


def _call_id(cache_key: tuple[object, ...]) -> str:
    """The model's id of a tool call, from the run context that the operation is about.

    A tool that raised ApprovalRequired is called again when a person has approved it. That is another call.
    """
    ctx = cast("RunContext[Any]", cache_key[2])
    return f"{ctx.tool_call_id}.approved" if ctx.tool_call_approved else str(ctx.tool_call_id)


class HoldfastAgent(Generic[DepsT, OutputT]):
    """A Pydantic AI agent whose runs are tasks: run it again with the same id after a crash, and it resumes.

    `effects` as for HoldfastDurability, which is added to runs if the agent does not have it. `deps` is what runs get
    that are given none, such as those that a worker resumes; deps are never recorded. Calls of tools whose risk is in
    `required_for_risk_levels` wait for a person's approval.
    """

    def __init__(
        self,
        agent: PydanticAgent[DepsT, OutputT],
        app: App,
        *,
        effects: Mapping[str, Effect] | None = None,
        deps: DepsT | None = None,
        required_for_risk_levels: Sequence[str] = (),
    ) -> None:
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give HoldfastAgent(agent, holdfast.open(…))")
        if not isinstance(agent, AbstractAgent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{agent!r} is not an agent of Pydantic AI", hint='give Agent(…, name="shop")')
        if not agent.name:
            raise InvalidValue("the agent has no name, and its tasks need one", hint='give Agent(…, name="shop")')
        self._app = app
        self._wrapped = agent
        self._deps = deps
        self._given: dict[str, Any] = {}
        has_one = HoldfastDurability[Any].from_agent(agent) is not None
        self._more = [] if has_one and not effects else [HoldfastDurability[DepsT](effects=effects)]
        self.agent = Agent(self._work, name=agent.name, required_for_risk_levels=required_for_risk_levels)
        """The Holdfast agent, which workers can serve: `app.worker([shop.agent])`."""

    async def run(
        self,
        prompt: str | Sequence[str],
        *,
        id: str,
        deps: DepsT | None = None,
        message_history: Sequence[ModelMessage] | None = None,
    ) -> TaskState[Any]:
        """Start the task of that id, or resume it, until it ends or waits. Its `result` is the output, as JSON."""
        with self._with_deps(id, deps):
            return await self._app.arun(self.agent, _input(prompt, message_history), id=id)

    def run_sync(
        self,
        prompt: str | Sequence[str],
        *,
        id: str,
        deps: DepsT | None = None,
        message_history: Sequence[ModelMessage] | None = None,
    ) -> TaskState[Any]:
        """`run`, without an event loop."""
        with self._with_deps(id, deps):
            return self._app.run(self.agent, _input(prompt, message_history), id=id)

    @contextmanager
    def _with_deps(self, id: str, deps: DepsT | None) -> Generator[None, None, None]:
        self._given[id] = self._deps if deps is None else deps
        try:
            yield
        finally:
            self._given.pop(id, None)

    async def _work(self, task: AsyncTask, prompt: Any, history: Any = None) -> Any:
        messages = None if history is None else ModelMessagesTypeAdapter.validate_python(history)
        with durable(task):
            done = await self._wrapped.run(
                prompt,
                message_history=messages,
                deps=self._given.get(task.id, self._deps),
                capabilities=self._more or None,
            )
        return to_jsonable_python(done.output)


def _input(prompt: str | Sequence[str], history: Sequence[ModelMessage] | None) -> dict[str, Any]:
    given: dict[str, Any] = {"prompt": prompt}
    if history is None:
        return given
    messages = list(history)
    if not all(isinstance(one, ModelRequest | ModelResponse) for one in cast("list[Any]", messages)):
        raise InvalidValue(
            "message_history= has something in it that is not a message", hint="give result.all_messages()"
        )
    return {**given, "history": ModelMessagesTypeAdapter.dump_python(messages, mode="json")}
