"""once_calls: tool calls of a graph as durable calls, each made once however often its node runs again.

LangGraph runs a node again after a crash, an interrupt or a time travel, and with it every tool call that the node
makes. Here a tool call is a small task of its own, named by the thread and the model's call id: it is announced before
the tool runs, and its result is recorded before the graph continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolRuntime
from langgraph.types import Command, interrupt

from holdfast import App, InvalidValue, StepFailed, StoreBusy, Suspended, Tool
from holdfast.adapters.checks import refuse_unless_mapping
from holdfast.adapters.langgraph.bridge import run_in_thread
from holdfast.adapters.langgraph.outcomes import INTERRUPTED, restored
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.watched import Watched
from holdfast.adapters.names import call_id
from holdfast.core.events import Effect
from holdfast.engine.reading.inbox import InboxItem

CHECKPOINT_SECONDS = 60.0
"""How long a tool call waits until the checkpoint with the model's reply is durable."""

ToolResult = ToolMessage | Command[Any]
Execute = Callable[[ToolCallRequest], ToolResult]

if TYPE_CHECKING or find_spec("langchain") is not None:
    from langchain.agents.middleware import AgentMiddleware

    _Middleware = AgentMiddleware
else:
    _Middleware = object


def once_calls(
    app: App,
    *,
    effects: Mapping[str, Effect] | None = None,
    default: Effect = "once",
    risks: Mapping[str, str] | None = None,
    unique: Mapping[str, str] | None = None,
) -> OnceCalls:
    """Make the tool calls of a graph durable: `ToolNode(tools, wrap_tool_call=once_calls(app))`.

    It is also a middleware: `create_agent(model, tools, middleware=[once_calls(app)], checkpointer=…)`.

    `effects` says what tools do to the world, by name; `default` is for all others. A tool that is not named counts as
    one that declares nothing: if it raises, the call fails. `risks` names the tools whose calls a person must approve,
    and why. `unique` gives calls a key of yours, such as `{"charge": "order-{order}"}`: one call for all threads.
    A call that needs a person, to approve it or because it is in doubt, interrupts the graph; see `OnceCalls`.
    """
    return OnceCalls(app, effects or {}, default, risks or {}, unique or {})


class OnceCalls(_Middleware):
    """Wraps tool calls, for ToolNode and for create_agent.

    The value of an interrupt is a question. Answer it by adding to it:

        asked = graph.invoke(…)["__interrupt__"][0].value
        graph.invoke(Command(resume={**asked, "approved": True, "by": "ana"}), config)
        graph.invoke(Command(resume={**asked, "happened": True, "result": "charge-7", "by": "ana"}), config)
    """

    def __init__(
        self,
        app: App,
        effects: Mapping[str, Effect],
        default: Effect,
        risks: Mapping[str, str],
        unique: Mapping[str, str],
    ) -> None:
        super().__init__()
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give once_calls(holdfast.open(…))")
        refuse_unless_mapping(effects, "effects", '{"charge": "once"}')
        refuse_unless_mapping(risks, "risks", '{"charge": "money"}')
        refuse_unless_mapping(unique, "unique", '{"charge": "order-{order}"}')
        self._app = app
        self._effects: Mapping[str, Effect] = effects
        self._default: Effect = default
        self._risks = risks
        self._unique = unique
        self._answers: dict[str, dict[str, Any]] = {}
        self._asking = threading.Lock()
        for name in {*effects, *risks, *unique, "a_tool"}:
            self._declared(name, _nothing)  # refuses what can't be declared now, and not in the middle of a graph

    def __call__(self, request: ToolCallRequest, execute: Execute) -> ToolResult:
        """Make a tool call that a ToolNode is about to make."""
        return self.wrap_tool_call(request, execute)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Execute) -> ToolResult:
        """Make a tool call: run the tool, or return what is recorded of it."""
        id = self._id(request)
        self._await_checkpoint(request)
        for number in range(1, 1_000):
            watched = Watched(request, handler)
            result = self._made(id if number == 1 else f"{id}/{number}", request, watched)
            if result != INTERRUPTED:
                return cast("ToolResult", restored(result, request.tool_call))
            if watched.bubble is not None:  # the tool itself interrupted the graph, just now
                raise watched.bubble
        raise AssertionError("a tool interrupted the graph a thousand times")

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        """The same in an async graph. The tool runs on its event loop, and a thread waits for the store."""
        return await run_in_thread(self.wrap_tool_call, request, handler)

    def _made(self, id: str, request: ToolCallRequest, watched: Watched) -> Any:
        """Return the result of a call, after people have decided what they must."""
        tool = self._declared(request.tool_call["name"], watched.run, watched.is_definite)
        while True:
            try:
                with self._app.task(tool.name, id=id, contract=self._contract(tool), by="langgraph") as task:
                    result = task.call(tool, request.tool_call["args"])
                    task.finish(result)
                return result
            except Suspended:
                self._ask(id)
            except StepFailed as failed:
                if watched.error is not None:
                    raise watched.error from failed  # as it would be without us: ToolNode decides what to do about it
                raise

    def _declared(
        self, name: str, fn: Callable[..., Any], definite: Callable[[BaseException], bool] = lambda error: False
    ) -> Tool[..., Any]:
        effect: Effect | None = self._effects.get(name)
        if effect is None and self._default != "once":
            effect = self._default
        return Tool(
            fn,
            name=name,
            schema={"type": "object"},  # LangChain checks the arguments
            effect=effect,
            risk=self._risks.get(name, ""),
            unique=self._unique.get(name, ""),
            definite=definite,
        )

    def _contract(self, tool: Tool[..., Any]) -> dict[str, Any] | None:
        """The risk of a tool that is named in `risks` needs an approval."""
        if not tool.risk:
            return None
        return {"goal": tool.name, "constraints": {"human_in_the_loop": {"required_for_risk_levels": [tool.risk]}}}

    def _id(self, request: ToolCallRequest) -> str:
        thread = _runtime(request).config.get("configurable", {}).get("thread_id")
        call = request.tool_call.get("id")
        if thread is None or not call:
            raise InvalidValue(
                f"a call of {request.tool_call['name']!r} has no thread, or no id, that it could be recorded under",
                hint='invoke the graph with {"configurable": {"thread_id": "…"}}',
            )
        return call_id("langgraph", str(thread), call)

    def _await_checkpoint(self, request: ToolCallRequest) -> None:
        """Wait until the checkpoint that this call follows from is durable.

        LangGraph saves it in the background. If the process died before, the model would be asked again, and would call
        the tool again, under another id.
        """
        runtime = _runtime(request)
        config, about = runtime.config.get("configurable", {}), runtime.execution_info
        saver = config.get("__pregel_checkpointer")
        if not isinstance(saver, HoldfastSaver) or about is None:
            return
        if config.get("__pregel_durability") == "exit":
            raise InvalidValue(
                'with durability="exit" the model\'s reply is not saved before its tools are called',
                hint='invoke the graph with durability="sync" or "async"',
            )
        until = time.monotonic() + CHECKPOINT_SECONDS
        while not saver.has(str(about.thread_id), about.checkpoint_ns.rpartition("|")[0], about.checkpoint_id):
            if time.monotonic() > until:
                raise StoreBusy(f"checkpoint {about.checkpoint_id} was not saved in time", hint="try again")
            time.sleep(0.001)

    # People

    def _ask(self, id: str) -> None:
        """Interrupt the graph with a question, or, when it is resumed, act on the answer."""
        item = next((one for one in self._app.inbox(id) if one.kind in ("doubt", "approval")), None)
        if item is None:  # its unique key belongs to a call of another thread, which is not settled yet
            raise StoreBusy(
                f"the call {id!r} waits for another call with the same unique key",
                hint="settle that one, then invoke the graph again: holdfast inbox",
            )
        question = _question(item)
        with self._asking:  # calls of one node share LangGraph's list of answers, so each looks at all of them
            answer = self._answers.pop(question["ask"], None)
            while answer is None or not _is_answer(item, answer):
                given = interrupt(question)
                answer = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
                if answer.get("ask") != question["ask"]:
                    self._answers[str(answer.get("ask"))] = answer
                    answer = None
        self._act(item, answer)

    def _act(self, item: InboxItem, answer: Mapping[str, Any]) -> None:
        by, why = str(answer.get("by", "")), str(answer.get("why", ""))
        if item.kind == "doubt":
            self._app.settle(
                item.task, item.key, happened=answer["happened"], result=answer.get("result"), by=by, why=why
            )
        elif answer["approved"]:
            self._app.approve(item.task, item.key, bound=item.bound, by=by, why=why)
        else:
            self._app.reject(item.task, item.key, bound=item.bound, by=by, why=why)


def _runtime(request: ToolCallRequest) -> ToolRuntime[Any, Any]:
    return cast("Any", request).runtime


def _nothing(**arguments: Any) -> None:
    """Stands for a tool while its declaration is checked."""


def _question(item: InboxItem) -> dict[str, Any]:
    """What a person is asked. `ask` names this question and no other, also of the same call."""
    about = {"ask": f"{item.task}@{item.since_us}", "tool": item.tool, "arguments": item.arguments}
    if item.kind == "doubt":
        reason = f" ({item.prompt})" if item.prompt else ""
        return {**about, "kind": "doubt", "question": f"did {item.tool} happen?{reason}", "answer": "happened, result"}
    return {**about, "kind": "approval", "question": f"approve {item.tool}?", "risk": item.risk, "answer": "approved"}


def _is_answer(item: InboxItem, answer: Mapping[str, Any]) -> bool:
    return isinstance(answer.get("happened" if item.kind == "doubt" else "approved"), bool)
