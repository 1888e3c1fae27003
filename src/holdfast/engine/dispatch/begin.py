"""How tasks begin: what somebody gave, checked, as the first events of a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core import codec, events as ev, names
from holdfast.core.durations import seconds
from holdfast.core.errors import InvalidValue
from holdfast.engine.definitions.agent import Agent, stages_of
from holdfast.engine.dispatch.dispatcher import Workshop, created, deadline_us
from holdfast.engine.execution import mocks
from holdfast.engine.reading import contracts
from holdfast.engine.system.entropy import chance

_GIVEN = {"user", "thread", "goal", "queue", "priority", "stages", "deadline", "block", "mock", "key", "after"}


def first(
    shop: Workshop, name: str, agent: Agent | str, input: Mapping[str, Any] | None, given: dict[str, Any]
) -> contracts.First:
    """The first event of a task and what follows it at once, if what it is given fits."""
    taken, then = contracts.taken(given)
    unknown = sorted(set(given) - _GIVEN)
    if unknown:
        raise InvalidValue(f"a task has no {unknown[0]!r}", hint=f'input is given as a dict: {{"{unknown[0]}": …}}')
    fields = _fields({} if input is None else input, "input")
    own = None
    if isinstance(agent, Agent):
        shop.know(agent).parameters.check(input or {})
        own = agent.deadline
    stages, deadline = given.pop("stages", ()), given.pop("deadline", None)
    if stages:
        given["stages"] = stages_of(stages)
    if given.get("block"):
        given["queue"] = names.BLOCK_QUEUE
    after = given.pop("after", None)
    if after is not None:
        given["start_us"] = deadline_us(shop.logs.clock.now_us(), seconds(after, "after"))
    key = given.pop("key", None)
    if key is not None:
        given["queue_key"] = names.short_name(key, "key")
    given["mock"] = mocks.kept(shop.mocks, name, given.get("mock", False))
    limit = deadline_us(shop.logs.clock.now_us(), own if deadline is None else seconds(deadline, "deadline"))
    return created(agent, fields, deadline_us=limit, **given, **taken), then


def _fields(values: Mapping[str, Any], what: str) -> ev.Fields:
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"the {what} is not a mapping with names as keys", hint='give a dict, {"name": value}')
    return {name: codec.pack(value, f"{what}[{name!r}]") for name, value in values.items()}


def new_id(at_us: int) -> str:
    """An id that sorts by time: 48 bits of milliseconds and 80 of chance, as UUIDv7 has them."""
    return f"{at_us // 1000:012x}{chance(8)}"
