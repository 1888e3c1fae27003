"""A tool that is watched while it runs: what it raises is seen before LangGraph makes a message of it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from holdfast.adapters.langgraph.outcomes import INTERRUPTED, kept


class Watched:
    """One attempt of a tool call.

    `error` is what the tool raised, `bubble` how it interrupted the graph. What is raised before the tool is entered
    (its arguments do not fit) is definite: nothing happened.
    """

    def __init__(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> None:
        self.error: BaseException | None = None
        self.bubble: GraphBubbleUp | None = None
        self._entered = False
        self._request = request
        self._execute = execute

    def run(self, **arguments: Any) -> Any:
        """Run the tool, and return its outcome as it is recorded."""
        tool = self._request.tool
        request = self._request if tool is None else self._request.override(tool=self._watch(tool))
        try:
            outcome = self._execute(request)
        except GraphBubbleUp as bubble:  # LangGraph's way to wait: it will call the tool again
            self.bubble = bubble
            return INTERRUPTED
        except BaseException as error:  # whatever it is, LangGraph may have turned what the tool raised into it
            self.error = self.error or error
            raise
        if self.error is not None:
            raise self.error
        return kept(outcome)

    def is_definite(self, error: BaseException) -> bool:
        """Whether an error means that the tool was not entered."""
        return not self._entered

    def _watch(self, tool: BaseTool) -> BaseTool:
        """A copy of a tool; the user's own is left as it is."""
        copied = copy.copy(tool)
        for name in ("_run", "_arun"):
            object.__setattr__(copied, name, self._watched(getattr(tool, name)))
        return copied

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._seen():
                result = method(*args, **kwargs)
            return self._awaited(result) if isawaitable(result) else result

        return call

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        with self._seen():
            return await result

    @contextmanager
    def _seen(self) -> Generator[None, None, None]:
        self._entered = True
        try:
            yield
        except GraphBubbleUp:
            raise
        except BaseException as error:  # whatever a tool raises: LangGraph may make an answer of it further up
            self.error = error
            raise
