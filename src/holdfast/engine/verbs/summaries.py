"""Summaries: each a step, made once, and an event that says which messages it stands for. The messages stay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core import codec, events as ev
from holdfast.core.context import transcript
from holdfast.core.context.window import summary_room
from holdfast.core.durations import Duration
from holdfast.core.errors import InvalidValue
from holdfast.core.flows import step as flows
from holdfast.core.flows.requests import Branch, StepRequest, Subflow
from holdfast.core.messages.tokens import Basis, Counter, estimate
from holdfast.core.retries import Retry
from holdfast.core.usage import reported_tokens
from holdfast.engine.conversations.conversation import Conversation, Stretch, WindowLimits
from holdfast.engine.definitions.call import report_usage
from holdfast.engine.definitions.signature import parameters_of
from holdfast.engine.drivers.invocation import is_awaitable
from holdfast.engine.execution.execution import Execution
from holdfast.engine.execution.step_request import step_request
from holdfast.engine.system.token_counter import installed

Summarises = Callable[[list[dict[str, Any]]], Any]
"""A model: messages in chat form in; a text, or a chat message, out. It may be async."""


class Summariser:
    """Who makes summaries, and for which windows."""

    def __init__(
        self, model: Summarises, limits: WindowLimits, *, name: str, retry: Retry | int | None, timeout: Duration | None
    ) -> None:
        if not callable(model):
            raise InvalidValue(f"{model!r} cannot be called", hint="give a function of messages that gives a summary")
        self._model = model
        self._limits = limits.checked()
        self._name = name
        self._given: dict[str, Any] = {"retry": retry, "timeout": timeout}

    def flow(self, execution: Execution, branch: Branch) -> Subflow:
        """Summarise, oldest first, as often as it takes until such a window covers all of the conversation."""
        while True:
            conversation = execution.messages(branch)
            stretch = conversation.part(self._limits)
            if stretch is None:
                return codec.JSON_NULL
            result = yield from flows.step(execution, branch, self._request(execution, conversation, stretch))
            assert branch.last is not None
            key, made = branch.last[0], execution.value(result)
            step = execution.state.steps_of(branch.turn).get(key)
            own = step is None or step.deferred or not step.done  # not in view yet: the event has to carry it
            told = {name: made[name] for name in ("model", "tokens_in", "tokens_out", "basis")}
            covers = tuple((span.start, span.stop) for span in stretch.covers)
            what: dict[str, Any] = {"summary": result if own else UNSET, "step": "" if own else key}
            execution.record_immediate(branch, ev.MessagesSummarised(covers=covers, **what, **told))

    def _request(self, execution: Execution, conversation: Conversation, stretch: Stretch) -> StepRequest:
        limits = self._limits
        room = summary_room(limits.max_tokens, limits.summary_tokens)
        counter = limits.counter or installed()
        asked = transcript.request(
            stretch.messages, stretch.earlier, max_tokens=limits.max_tokens, room=room, counter=counter
        )
        make = _Making(self._model, asked, room, counter)
        request, _ = step_request(
            execution.agent, make.summary, (), {}, name=self._name, estimate=make.size, **self._given
        )
        spans = [[span.start, span.stop] for span in stretch.covers]
        input = {"messages": codec.messages_value(conversation.ref), "covers": codec.pack(spans)}
        # What is recorded stays, also when tokens are counted in another way by now.
        return replace(request, input=input, on_change="keep", is_async=parameters_of(self._model, self._name).is_async)


class _Making:
    """One summary being made."""

    def __init__(self, model: Summarises, asked: list[dict[str, Any]], room: int, counter: Counter | None) -> None:
        self._model = model
        self._asked = asked
        self._room = room
        self._counter = counter

    @property
    def size(self) -> int:
        """The tokens of the request."""
        measure = self._counter or estimate
        return sum(measure(one["content"]) for one in self._asked)

    def summary(self) -> Any:
        """Ask the model, and return the summary as it is kept; an awaitable if the model is async."""
        given = self._model([dict(one) for one in self._asked])
        return self._awaited(given) if is_awaitable(given) else self._kept(given)

    async def _awaited(self, given: Awaitable[Any]) -> dict[str, Any]:
        return self._kept(await given)

    def _kept(self, given: Any) -> dict[str, Any]:
        reply = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {"content": given}
        text: Any = reply.get("content")
        if isinstance(text, list):
            parts = cast("list[Any]", text)
            text = "".join(str(one.get("text") or "") for one in parts if isinstance(one, Mapping))  # pyright: ignore
        if not isinstance(text, str) or not text.strip():
            raise InvalidValue(
                f"the model gave no summary but {given!r}", hint="give a text, or a message with content"
            )
        short = transcript.brief(text.strip(), self._room, self._counter)
        told_in, told_out, basis = self._tokens(reply, text)
        model = reply.get("model")
        by = model if isinstance(model, str) else getattr(self._model, "__name__", type(self._model).__name__)
        if basis == "reported":
            report_usage(input_tokens=told_in, output_tokens=told_out, model=model if isinstance(model, str) else "")
        return {"text": short, "model": by, "tokens_in": told_in, "tokens_out": told_out, "basis": basis}

    def _tokens(self, reply: Mapping[str, Any], text: str) -> tuple[int, int, Basis]:
        told = reported_tokens(reply)
        if told is not None and told.input is not None and told.output is not None:
            return told.input, told.output, "reported"
        measure = self._counter or estimate
        return self.size, measure(text), "estimate" if self._counter is None else "exact"
