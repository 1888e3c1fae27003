"""The loop: plan, act, reflect. A turn asks the model once, makes the calls it wants, and keeps what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from holdfast.core.errors import InvalidValue
from holdfast.core.policy import Duration, Retry
from holdfast.engine.agent import Agent, Tool, agent
from holdfast.engine.task import AsyncTask
from holdfast.llm import chat
from holdfast.llm.answers import Answers
from holdfast.llm.models import Model, OnToken
from holdfast.llm.openai import OpenAIModel

MAX_TURNS = 20
"""How many turns a loop takes when nobody says."""

TOTALS = {"input_tokens": ("prompt_tokens", "input_tokens"), "output_tokens": ("completion_tokens", "output_tokens")}
"""What is added up in the task's state, and under which names endpoints report it."""


def loop_agent(
    name: str,
    model: Model | str,
    tools: Sequence[Tool] = (),
    instructions: str = "",
    *,
    max_turns: int = MAX_TURNS,
    answer_type: Any = str,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    on_token: OnToken | None = None,
    **options: Any,
) -> Agent:
    """Make an agent that works towards a goal: `app.run(weather, {"goal": "Is it warm in Rome?"})`.

    `model` is anything that answers messages; a name stands for `OpenAIModel(name)`. `retry` and `timeout` are for its
    calls. With `answer_type` the answer is JSON of that type, and the model is asked again until it is. `on_token` is
    told the text of replies as it comes. The other options are those of `@agent`.

    >>> from holdfast.llm import ScriptedModel, say
    >>> loop_agent("greeter", ScriptedModel([say("Hello!")]))
    <agent greeter>
    """
    answers = Answers(answer_type)
    loop = _Loop(OpenAIModel(model) if isinstance(model, str) else model, tools, instructions, answers)
    loop.retry, loop.timeout, loop.on_token = retry, timeout, on_token

    async def turn(task: AsyncTask, goal: str) -> Any:
        return await loop.turn(task, goal)

    turn.__annotations__["return"] = answer_type
    turn.__doc__ = instructions or None
    return agent(name=name, loop=True, max_turns=max_turns, tools=tools, **options)(turn)


class Shown(Struct, dict=True):
    """What a model is shown. Of it only the number is recorded with the step: the messages are in the log already."""

    messages: int

    @classmethod
    def of(cls, messages: Sequence[chat.Message]) -> Shown:
        """These messages."""
        shown = cls(len(messages))
        vars(shown)["all"] = list(messages)
        return shown

    @property
    def all(self) -> list[chat.Message]:
        """The messages themselves."""
        return vars(self)["all"]


class _Loop:
    """What is the same for every task of a looping agent."""

    retry: Retry | int | None = None
    timeout: Duration | None = None
    on_token: OnToken | None = None

    def __init__(self, model: Model, tools: Sequence[Tool], instructions: str, answers: Answers) -> None:
        if not callable(model):
            raise InvalidValue(f"{model!r} is not a model", hint="give its name, or an async function of messages")
        self._model = model
        self._schemas = [chat.tool_schema(tool) for tool in tools]
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(self._schemas):
            raise InvalidValue(f"two of {sorted(tool.name for tool in tools)} have one name", hint="@tool(name=…)")
        self._system = "\n\n".join(part for part in (instructions, answers.request) if part)
        self._answers = answers

    async def turn(self, task: AsyncTask, goal: str) -> Any:
        """Ask, act on the reply, and give the answer if it is one.

        The calls of a reply and their results belong to one turn, and a turn that was cut off is replayed: whatever
        happens, the model is not asked again before every call has its result.
        """
        if task.turn == 1:
            self._begin(task, goal)
        shown = Shown.of(task.messages)
        reply = await task.step(self._ask, shown, name="model", retry=self._retry, timeout=self.timeout)
        task.message(reply)
        _count(task, reply)
        calls = bool(reply.get("tool_calls"))
        if calls or task.turn == 1:  # the phases know no way from planning to done but through the others
            task.phase("executing")
            if calls:
                await task.call_tools(reply, self._tools)
            task.phase("reflecting")
        return None if calls else self._answer(task, reply)

    def _begin(self, task: AsyncTask, goal: str) -> None:
        task.phase("planning")
        if self._system:
            task.message({"role": "system", "content": self._system})
        task.message({"role": "user", "content": goal})

    async def _ask(self, shown: Shown) -> dict[str, Any]:
        listened = {} if self.on_token is None else {"on_token": _careful(self.on_token)}
        reply = self._model(chat.sent(shown.all), self._schemas, **listened)
        if not hasattr(reply, "__await__"):
            raise InvalidValue(f"{self._model!r} is not async", hint="write `async def` for a model")
        return chat.tidy(await reply, shown.all)

    def _answer(self, task: AsyncTask, reply: chat.Message) -> Any:
        try:
            answer = self._answers.read(reply)
        except InvalidValue as wrong:
            task.message({"role": "user", "content": f"This cannot be your answer: {wrong.message}. Please try again."})
            return None
        task.phase("done")
        return answer

    @property
    def _retry(self) -> Retry | int | None:
        return getattr(self._model, "retry", None) if self.retry is None else self.retry


def _count(task: AsyncTask, reply: chat.Message) -> None:
    """Add what a reply cost to the task's totals."""
    usage: dict[str, Any] = reply.get("usage") or {}
    for total, names in TOTALS.items():
        tokens = next((usage[name] for name in names if usage.get(name)), 0)
        if tokens:
            task.state.increment(total, tokens)


def _careful(on_token: OnToken) -> OnToken:
    """A listener that cannot spoil a reply: if it fails, the event loop is told, and it is not called again."""
    broken = False

    def tell(text: str) -> None:
        nonlocal broken
        if broken:
            return
        try:
            on_token(text)
        except Exception as error:  # noqa: BLE001 — whoever listens has no part in the task
            broken = True
            told = {"message": "on_token failed and is not told the rest of this reply", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)

    return tell
