"""HoldfastPlugin: tool calls of ADK agents as durable calls, each made once however often it is replayed.

ADK replays a function call that has no response after a crash: at least once, as it says itself. Here a call is
announced in the store before the tool runs, under the session and the call's id, and its outcome is recorded before
ADK continues. ADK itself runs the tool, with its callbacks, confirmations and threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, cast

from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event_actions import EventActions
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from pydantic_core import to_jsonable_python

from holdfast import App, InvalidValue, StepFailed, Tool
from holdfast.adapters.names import call_key
from holdfast.adapters.open_call import OpenCall
from holdfast.core.events import Effect

ASKED = {"google-adk": "asked"}
"""The outcome of a call that asked its user for a confirmation or a credential. ADK makes it again with the answer."""

MOST_ASKS = 1_000


class HoldfastPlugin(BasePlugin):
    """Make the tool calls of an app durable: `App(…, plugins=[HoldfastPlugin(app)])`.

    `effects` says what tools do to the world, by name; `default` is for all others. A tool that is not named counts as
    `once`; if it raises, the call fails. `unique` gives calls a key of yours, such as `{"charge": "order-{order}"}`:
    one call for all sessions. A call in doubt ends the run with Suspended and is in the inbox: settle it, then run the
    invocation again. Give this plugin last: what it returns for a recorded call ends the chain of plugins.
    """

    def __init__(
        self,
        app: App,
        *,
        effects: Mapping[str, Effect] | None = None,
        default: Effect = "once",
        unique: Mapping[str, str] | None = None,
        name: str = "holdfast",
    ) -> None:
        super().__init__(name)
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give HoldfastPlugin(holdfast.open(…))")
        self._app = app
        self._effects: Mapping[str, Effect] = effects or {}
        self._default: Effect = default
        self._unique = unique or {}
        self._open: dict[str, tuple[str, OpenCall]] = {}
        for one in {*self._effects, *self._unique, "a_tool"}:
            self._declared(one, _nothing)  # refuses what can't be declared now, and not in the middle of a run

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Announce a call and let ADK make it, or return what is recorded of it."""
        key = _key(tool_context)
        for number in range(1, MOST_ASKS):
            call = OpenCall(self._app, key if number == 1 else f"{key}/{number}")
            try:
                recorded = await call.begin(self._declared(tool.name, call.run), to_jsonable_python(tool_args))
            except StepFailed as failed:  # a person has settled that it did not happen
                return {"error": failed.message}
            if call.is_open:
                self._open[key] = (tool_context.invocation_id, call)
                return None
            if recorded != ASKED:
                return _restored(recorded, tool, tool_context)
        raise AssertionError(f"a tool asked its user {MOST_ASKS} times")

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> dict[str, Any] | None:
        """Record the result of a call, and what it changed of the session."""
        _, call = self._open.pop(_key(tool_context), (None, None))
        if call is not None:
            await call.end(ASKED if _has_asked(tool_context) else _kept(result, tool_context))
        return None

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> dict[str, Any] | None:
        """Record that a tool raised. A declared `once` call is then in doubt: Suspended ends the run.

        That is not an Exception: of those ADK writes an event, after which it never replays the call.
        """
        _, call = self._open.pop(_key(tool_context), (None, None))
        if call is None:
            return None
        with contextlib.suppress(StepFailed):  # ADK, and the agent's own callbacks, decide what becomes of the error
            await call.fail(error)
        return None

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Give up calls that ADK has left without an answer: they are in doubt."""
        await self._give_up(invocation_context.invocation_id)

    async def close(self) -> None:
        """Give up every call that is still open."""
        await self._give_up(None)

    async def _give_up(self, invocation: str | None) -> None:
        for key, (whose, call) in list(self._open.items()):
            if invocation in (None, whose):
                del self._open[key]
                await call.give_up()

    def _declared(self, name: str, fn: Callable[..., Any]) -> Tool[..., Any]:
        effect: Effect | None = self._effects.get(name)
        if effect is None and self._default != "once":
            effect = self._default
        return Tool(fn, name=name, schema={"type": "object"}, effect=effect, unique=self._unique.get(name, ""))


def _nothing(**arguments: Any) -> None:
    """Stands for a tool while its declaration is checked."""


def _key(context: ToolContext) -> str:
    """The key of a call: the session, and the id that the stored reply of the model has for it."""
    session, call = context.session, context.function_call_id
    if not call:
        raise InvalidValue("a tool call has no id that it could be recorded under", hint="call tools from an agent")
    return call_key("adk", session.app_name, session.user_id, session.id, call)


def _has_asked(context: ToolContext) -> bool:
    """Whether this call waits for its user: ADK will make it again, under the same id."""
    actions, call = context.actions, context.function_call_id
    return call in actions.requested_tool_confirmations or call in actions.requested_auth_configs


def _kept(result: Any, context: ToolContext) -> dict[str, Any]:
    """What is recorded of a call: its response, and the state and the actions that it set."""
    actions = context.actions.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return {"google-adk": "result", "response": to_jsonable_python(result, fallback=str), "actions": actions}


def _restored(recorded: Any, tool: BaseTool, context: ToolContext) -> dict[str, Any]:
    """Return a recorded response, and do again to the session what the call did; a person may have settled it."""
    given = cast("dict[str, Any]", recorded) if isinstance(recorded, dict) else {}
    response = cast("object", recorded)
    if given.get("google-adk") == "result":
        response = cast("object", given["response"])
        actions = EventActions.model_validate(given["actions"])
        context.state.update(actions.state_delta)
        for name in actions.model_fields_set - {"state_delta"}:
            setattr(context.actions, name, getattr(actions, name))
    if isinstance(response, dict):
        return cast("dict[str, Any]", response)
    return {} if response is None and tool.is_long_running else {"result": response}
