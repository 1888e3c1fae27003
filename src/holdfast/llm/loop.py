"""The loop: plan, act, reflect. A turn asks the model once, makes the calls it wants, and keeps what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast import Agent, AsyncTask, Retry, Tool, agent, streaming
from holdfast.core.context.window import STRATEGIES, Strategy, check_kept
from holdfast.core.errors import InvalidValue
from holdfast.core.events import Usage
from holdfast.core.messages.tokens import estimate
from holdfast.core.usage import reported_tokens
from holdfast.engine.conversations.conversation import Sent, installed
from holdfast.engine.reading import values
from holdfast.engine.reading.values import Duration
from holdfast.llm import chat
from holdfast.llm.answers import Answers
from holdfast.llm.models import Model, OnToken
from holdfast.llm.openai import OpenAIModel

MAX_TURNS = 20
"""How many turns a loop takes by default."""


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
    stream: bool = False,
    max_tokens: int | None = None,
    strategy: Strategy = "drop_oldest",
    keep_last: int | None = None,
    keep_turns: int | None = None,
    **options: Any,
) -> Agent:
    """Make an agent that works towards a goal: `app.run(weather, {"goal": "Is it warm in Rome?"})`.

    `model` is anything that answers messages; a name stands for `OpenAIModel(name)`. `retry` and `timeout` are for its
    calls. With `answer_type` the answer is JSON of that type, and the model is asked again until it is. `on_token` is
    called with the text of replies as it comes. With `stream=True`, watchers in any process get it as chunks:
    `app.follow(id, chunks=True)`. With `max_tokens` the model is shown a window of the conversation, tools
    included, which keeps the last `keep_last` messages and `keep_turns` turns or fails with WindowTooSmall; by the
    strategy "summarise" it is asked for summaries of what does not fit, each of them a step. The other options are
    those of `@agent`.

    >>> from holdfast.llm import ScriptedModel, say
    >>> loop_agent("greeter", ScriptedModel([say("Hello!")]))
    <agent greeter>
    """
    answers = Answers(answer_type)
    loop = _Loop(OpenAIModel(model) if isinstance(model, str) else model, tools, instructions, answers)
    if not isinstance(stream, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"stream={stream!r} is neither True nor False", hint="give stream=True to publish replies")
    loop.retry, loop.timeout, loop.on_token, loop.stream = retry, timeout, on_token, stream
    loop.limit(max_tokens, strategy, keep_last, keep_turns)

    async def turn(task: AsyncTask, goal: str) -> Any:
        return await loop.turn(task, goal)

    turn.__annotations__["return"] = answer_type
    turn.__doc__ = instructions or None
    return agent(name=name, loop=True, max_turns=max_turns, tools=tools, **options)(turn)


class _Loop:
    """What is the same for every task of a looping agent."""

    retry: Retry | int | None = None
    timeout: Duration | None = None
    on_token: OnToken | None = None
    stream = False
    _strategy: Strategy = "drop_oldest"

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
        self._window: dict[str, Any] = {}

    def limit(self, max_tokens: int | None, strategy: Strategy, keep_last: int | None, keep_turns: int | None) -> None:
        """Show the model no more than this."""
        check_kept(keep_last, keep_turns)
        if strategy not in STRATEGIES:
            raise InvalidValue(f"there is no strategy {strategy!r}", hint=f"use one of {', '.join(STRATEGIES)}")
        if max_tokens is None:
            if strategy != "drop_oldest":
                raise InvalidValue("without a limit nothing is left out to be summarised", hint="give max_tokens=…")
            for kept, given in (("keep_last", keep_last), ("keep_turns", keep_turns)):
                if given is not None:
                    raise InvalidValue(f"{kept}={given} without a limit keeps nothing", hint="give max_tokens=…, too")
            return
        count = installed() or estimate
        reserve = count(values.text(self._schemas)) if self._schemas else 0
        if type(max_tokens) is not int or max_tokens <= reserve:
            least = f"give a whole number of more than {reserve:,}: what the tools' schemas take"
            raise InvalidValue(f"max_tokens is {max_tokens!r}", hint=least)
        self._strategy = strategy
        self._window = {"max_tokens": max_tokens, "reserve": reserve}
        self._window |= {"keep_last": keep_last, "keep_turns": keep_turns}

    async def turn(self, task: AsyncTask, goal: str) -> Any:
        """Ask, act on the reply, and give the answer if it is one.

        The calls of a reply and their results belong to one turn, and a turn that was cut off is replayed: whatever
        happens, the model is not asked again before every call has its result.
        """
        if task.turn == 1:
            self._begin(task, goal)
        shown = await self._fitting(task)
        estimate = Usage(shown.tokens + self._window.get("reserve", 0), model=getattr(self._model, "model", ""))
        options: dict[str, Any] = {"retry": self._retry, "timeout": self.timeout, "estimate": estimate}
        reply = await task.step(self._ask, shown, name="model", **options)
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
        told = {"role": "system", "content": self._system}
        newest = next((one for one in reversed(task.messages) if one["role"] == "system"), None)
        if self._system and newest != told:  # a thread may have it already
            task.message(told)
        task.message({"role": "user", "content": goal})

    async def _fitting(self, task: AsyncTask) -> Sent:
        if self._strategy == "drop_oldest":
            return task.messages.window(**self._window)
        return await task.summarise(self._summary, **self._window, retry=self._retry, timeout=self.timeout)

    async def _ask(self, messages: Sent) -> dict[str, Any]:
        listeners = [] if self.on_token is None else [_careful(self.on_token)]
        listeners += [streaming().send] if self.stream else []
        listened = {"on_token": _told_to(listeners)} if listeners else {}
        reply = await self._reply(messages, self._schemas, **listened)
        return chat.tidy(reply, messages.calls.seen, messages.ref.to)

    async def _summary(self, messages: list[chat.Message]) -> chat.Message:
        return await self._reply(messages, [])

    def _reply(self, messages: list[chat.Message], tools: list[dict[str, Any]], **options: Any) -> Any:
        reply = self._model(chat.sent(messages), tools, **options)
        if not hasattr(reply, "__await__"):
            raise InvalidValue(f"{self._model!r} is not async", hint="write `async def` for a model")
        return reply

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
    told = reported_tokens(reply)
    if told is not None:
        for total, tokens in (("input_tokens", told.input), ("output_tokens", told.output)):
            if tokens:
                task.state.increment(total, tokens)


def _told_to(listeners: Sequence[OnToken]) -> OnToken:
    def tell(text: str) -> None:
        for listener in listeners:
            listener(text)

    return tell


def _careful(on_token: OnToken) -> OnToken:
    """A listener that cannot spoil a reply: if it fails, the event loop gets the error, and it is not called again."""
    broken = False

    def tell(text: str) -> None:
        nonlocal broken
        if broken:
            return
        try:
            on_token(text)
        except Exception as error:  # noqa: BLE001 — a listener has no part in the task
            broken = True
            told = {"message": "on_token failed and does not get the rest of this reply", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)

    return tell
