"""once_hooks: tools that must not be called twice, kept by hooks of the Claude Agent SDK.

Claude Code runs the tools, in a process of its own. A hook sees a call before it is made: it is announced in the store,
or refused if it is done or in doubt. Another hook records what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from typing import Any, cast

from claude_agent_sdk import HookMatcher
from pydantic_core import to_json

from holdfast import App, HoldfastError, InvalidValue, StepFailed, Suspended, Tool
from holdfast.adapters.names import call_key
from holdfast.adapters.open_call import OpenCall
from holdfast.core.events import Effect

Hooks = dict[Any, list[HookMatcher]]


def once_hooks(
    app: App, *, effects: Mapping[str, Effect], unique: Mapping[str, str] | None = None, hooks: Hooks | None = None
) -> Hooks:
    """Return hooks that keep `once` tools from being called twice: `ClaudeAgentOptions(hooks=once_hooks(app, …))`.

    `effects` names the tools, as Claude names them: `{"mcp__shop__charge": "once"}`. Others are left alone. A call is
    known again by its session, its tool and its arguments; with `unique`, such as `{"mcp__shop__charge":
    "order-{order}"}`, by a key of yours, in all sessions. `hooks`: hooks of your own, which are asked first.
    """
    kept = _OnceHooks(app, effects, unique or {})
    given = {event: list(matchers) for event, matchers in (hooks or {}).items()}
    for event, hook in (
        ("PreToolUse", kept.before),
        ("PostToolUse", kept.after),
        ("PostToolUseFailure", kept.failed),
        ("Stop", kept.stopped),
    ):
        given.setdefault(event, []).append(HookMatcher(hooks=[cast("Any", hook)], **_BLOCKING))
    return given


_BLOCKING: dict[str, Any] = {"on_failure": "block"} if "on_failure" in {one.name for one in fields(HookMatcher)} else {}
"""A hook that fails must not let a call pass. Versions of the SDK that do not know this take what the hook returns."""


class _OnceHooks:
    """The hooks, and the calls that are being made."""

    def __init__(self, app: App, effects: Mapping[str, Effect], unique: Mapping[str, str]) -> None:
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give once_hooks(holdfast.open(…), effects=…)")
        self._app = app
        self._effects = effects
        self._unique = unique
        self._open: dict[str, tuple[str, OpenCall]] = {}
        unknown = sorted(set(unique) - set(effects))
        if unknown:
            raise InvalidValue(f"unique= names {unknown[0]!r}, which effects= does not", hint="name its effect too")
        for tool in effects:  # what can't be declared is refused now, and not in the middle of a session
            Tool(_nothing, name=tool, schema={"type": "object"}, effect=effects[tool], unique=unique.get(tool, ""))

    async def before(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Announce a call, or refuse one that is done or in doubt. Whatever fails here refuses it too."""
        tool, arguments = given["tool_name"], given["tool_input"]
        if tool not in self._effects:
            return {}
        try:
            call = OpenCall(self._app, _key(given, self._unique.get(tool)))
            recorded = await call.begin(self._declared(tool, call.run), arguments)
        except Suspended:
            return _refused(
                f"{tool} was called with these arguments before, and its outcome is not known. It is not called again "
                f"until a person has settled that call: holdfast inbox"
            )
        except StepFailed as failed:
            return _refused(f"{tool} was called with these arguments before, and failed: {failed.message}")
        except HoldfastError as error:
            return _refused(f"{tool} is not called, because the call can't be recorded: {error}")
        if call.is_open:
            self._open[given["tool_use_id"]] = (given["session_id"], call)
            return {}
        return _refused(f"{tool} was called with these arguments before. Its result was: {to_json(recorded).decode()}")

    async def after(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Record the result of a call."""
        _, call = self._open.pop(given["tool_use_id"], (None, None))
        if call is not None:
            await call.end(given["tool_response"])
        return {}

    async def failed(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Record that a tool failed. A `once` call may have happened all the same: it is in doubt."""
        _, call = self._open.pop(given["tool_use_id"], (None, None))
        if call is not None:
            try:
                await call.fail(RuntimeError(str(given.get("error", "the tool failed"))))
            except (Suspended, StepFailed):  # the next call with this key gets it
                return {}
        return {}

    async def stopped(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Give up calls that got no answer by the end of the turn, such as one that was not permitted: in doubt."""
        for id, (session, call) in list(self._open.items()):
            if session == given["session_id"]:
                del self._open[id]
                await call.give_up()
        return {}

    def _declared(self, name: str, fn: Any) -> Tool[..., Any]:
        return Tool(fn, name=name, schema={"type": "object"}, effect=self._effects[name])


def _nothing(**arguments: Any) -> None:
    """Stands for a tool while its declaration is checked."""


def _refused(why: str) -> dict[str, Any]:
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why}
    return {"hookSpecificOutput": decision}


def _key(given: Mapping[str, Any], unique: str | None) -> str:
    """The key of a call: the caller's, or the session and a digest of the arguments."""
    if unique is not None:
        try:
            return call_key("claude", unique.format_map(given["tool_input"]))
        except (KeyError, IndexError, ValueError) as error:
            hint = f"its arguments are {', '.join(given['tool_input']) or 'none'}"
            raise InvalidValue(
                f"the unique key {unique!r} can't be made of the arguments: {error}", hint=hint
            ) from None
    return call_key("claude", given["session_id"], sha256(to_json(_sorted(given["tool_input"]))).hexdigest()[:16])


def _sorted(value: Any) -> Any:
    """A value whose keys are in order, so that equal arguments have one digest."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {key: _sorted(found[key]) for key in sorted(found)}
    return [_sorted(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value
