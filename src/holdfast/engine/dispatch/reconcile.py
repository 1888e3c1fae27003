"""Asking the destination of a call in doubt once more, because a person wants to know; no agent runs for it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from holdfast.core import codec
from holdfast.core.errors import HoldfastError, InvalidEvent, InvalidInput, InvalidValue
from holdfast.core.flows.requests import DidNotHappen, Happened
from holdfast.core.state.shapes import Step
from holdfast.engine.control import answers
from holdfast.engine.control.change import Decide, Keys
from holdfast.engine.definitions.call import CALLER, Asking, Call
from holdfast.engine.definitions.tool import Tool
from holdfast.engine.logs.logs import Logs


class Settling(NamedTuple):
    """What the destination knows, as a change of the task."""

    decide: Decide
    keys: Keys


def ask_again(logs: Logs, id: str, call: str, tools: Mapping[str, Tool], by: str) -> Settling | None:
    """Ask; None if the destination can't tell. What keeps it from being asked is raised."""
    step = answers.in_doubt(logs.load(id).state, call)
    tool = _able(step, tools)
    _refuse_early(step, tool, logs.clock.now_us())
    given = _asked(Asking(_question(logs, id, step, tool)), tool)
    why = f"{by} asked the destination" if by else ""
    match given:
        case Happened():
            decide = answers.settle(call, True, given.result, "reconcile", why, {tool.name: tool})
            return Settling(decide, answers.keys_of_settling(call, True))
        case DidNotHappen():
            decide = answers.settle(call, False, None, "reconcile", why, {})
            return Settling(decide, answers.keys_of_settling(call, False))
        case _:
            return None


def _able(step: Step, tools: Mapping[str, Tool]) -> Tool:
    """The tool that can ask its destination."""
    tool = tools.get(step.tool)
    if tool is None:
        hint = "give the tool: app.reconcile(id, call, tool), or the file that declares it: holdfast ui FILE"
        raise InvalidValue(f"the tool {step.tool!r} is not known here, so its destination can't be asked", hint=hint)
    if tool.reconcile is None:
        hint = "look at the destination yourself, then app.settle(id, call, happened=…)"
        raise InvalidValue(f"the tool {step.tool!r} declares no reconcile=", hint=hint)
    return tool


def _refuse_early(step: Step, tool: Tool, now_us: int) -> None:
    """A call may still be on its way: what its destination says of it is believed only once it can't be."""
    announced_us = step.announced_us or step.started_us
    wait_us = max(announced_us + int(tool.reconcile_after * 1_000_000), step.until_us) - now_us
    if wait_us > 0:
        raise InvalidEvent(
            f"{step.key!r} may still be on its way: its destination is asked in {wait_us / 1_000_000:.1f} s",
            hint="try again then",
        )


def _question(logs: Logs, id: str, step: Step, tool: Tool) -> Call:
    given = {name: codec.unpack(raw, logs.blob) for name, raw in step.input.items()}
    with suppress(InvalidInput):  # a secret that was left out, or a new parameter: reconcile gets what the log has
        given = tool.parameters.check(given)
    announced_at = (step.announced_us or step.started_us) / 1_000_000
    known: dict[str, Any] = {"tool": step.tool, "idempotency_key": step.idempotency_key, "arguments": given}
    return Call(id, step.key, step.attempts, **known, announced_at=announced_at)


def _asked(asking: Asking, tool: Tool) -> Any:
    assert tool.reconcile is not None
    caller = CALLER.set(asking)
    try:
        given = tool.reconcile(asking.call)
        return _awaited(given) if inspect.isawaitable(given) else given
    except HoldfastError:
        raise
    except Exception as error:  # whatever a user's function raises: it is shown to the person, and nothing is settled
        raise InvalidEvent(
            f"the destination of {asking.call.step!r} could not be asked: {type(error).__name__}: {error}",
            hint="try again later, or settle it by hand: app.settle(id, call, happened=…)",
        ) from error
    finally:
        CALLER.reset(caller)


def _awaited(given: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await given

    return asyncio.run(wait())
