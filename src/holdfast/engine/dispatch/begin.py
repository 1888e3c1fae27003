"""How tasks begin: what the caller gives, checked, as the first events of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import codec, events as ev, limits, names
from holdfast.core.codec import Group, Write, merge_writes
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import Conflict, InvalidValue, StoreBusy, TaskExists, ThreadBusy
from holdfast.core.events import Event, Fields
from holdfast.core.phases import Machine
from holdfast.core.state.budget import Budget
from holdfast.engine.control import divergence
from holdfast.engine.definitions.agent import Agent, stages_of
from holdfast.engine.definitions.signature import Parameters
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import contracts
from holdfast.engine.system.entropy import random_hex
from holdfast.store.protocol import Query

WhenBusy = Literal["allow", "refuse", "queue"]
"""What is done if another task of the thread has not ended: both work, ThreadBusy, or this one waits for its turn."""


class TaskOptions(Struct, frozen=True, kw_only=True):
    """What a new task may be given besides its agent and input: the parameters of `App.start`."""

    user: str | None = None
    thread: str | None = None
    goal: str = ""
    stages: Sequence[str] = ()
    queue: str = "default"
    priority: int = 0
    key: str | None = None
    after: Duration | None = None
    deadline: Duration | None = None
    contract: contracts.Given | None = None
    phases: Machine | None = None
    mock: bool | Mapping[Any, Any] = False
    budget: Budget | None = None
    block: bool = False
    by: str = ""
    when_busy: WhenBusy = "allow"
    expire: Duration | None = None


def first_events(
    agent: Agent | str,
    input: Mapping[str, Any] | None,
    options: TaskOptions,
    now_us: int,
    *,
    mock: bool,
    key_space: str,
) -> contracts.First:
    """Return the first event of a task and what follows it in the same write, if what it is given fits."""
    if not isinstance(agent, Agent | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{agent!r} is not an agent", hint="declare it with @agent, or give the name of one")
    names.whole(options.priority, "priority", least=-limits.MAX_SEQ)
    for what, given in (("by", options.by), ("goal", options.goal)):
        names.text(given, what)
    declared, then = contracts.declared(options.contract, options.phases, options.budget, options.goal)
    input = _with_goal(agent, {} if input is None else input, declared.get("goal", ""))
    fields = _fields(input, agent.parameters if isinstance(agent, Agent) else None)
    own_deadline = None
    if isinstance(agent, Agent):
        agent.parameters.check(input)
        own_deadline = agent.deadline
    if options.stages:
        declared["stages"] = stages_of(options.stages)
    if options.after is not None:
        declared["start_us"] = deadline_us(now_us, seconds(options.after, "after"))
    key = _key_of(options)
    if key is not None:
        declared["queue_key"] = names.column_name(key, "key")
    if options.expire is not None:
        declared["expire_us"] = int(seconds(options.expire, "expire", above_zero=True) * 1_000_000)
    length = own_deadline if options.deadline is None else seconds(options.deadline, "deadline", above_zero=True)
    first = created(
        agent,
        fields,
        user=options.user,
        thread=options.thread,
        queue=names.BLOCK_QUEUE if options.block else options.queue,
        priority=options.priority,
        block=options.block,
        mock=mock,
        key_space=key_space,
        by=options.by,
        alone=options.when_busy == "refuse",
        deadline_us=deadline_us(now_us, length),
        **declared,
    )
    return first, then


def _key_of(options: TaskOptions) -> str | None:
    """The key whose limit in its queue holds for a task: its own, or its thread's if it is to wait for its turn."""
    if options.when_busy not in ("allow", "refuse", "queue"):
        raise InvalidValue(
            f"when_busy={options.when_busy!r} is not known", hint='use "allow", "refuse" or "queue"; "allow" is usual'
        )
    if options.when_busy != "allow" and options.thread is None:
        raise InvalidValue(
            f"when_busy={options.when_busy!r} is about a thread, and none is given", hint="give thread= too"
        )
    if options.when_busy == "queue" and options.key is not None:
        raise InvalidValue('when_busy="queue" takes the thread as its key', hint="leave out key=, or when_busy=")
    return f"thread/{options.thread}" if options.when_busy == "queue" else options.key


def _with_goal(agent: Agent | str, input: Mapping[str, Any], goal: str) -> Mapping[str, Any]:
    """Return the input with the task's goal in it, if the agent needs a goal and was given none."""
    wanted = goal and isinstance(agent, Agent) and isinstance(input, Mapping) and agent.parameters.needs("goal")  # pyright: ignore[reportUnnecessaryIsInstance]
    return {**input, "goal": goal} if wanted and "goal" not in input else input


def _fields(values: Mapping[str, Any], parameters: Parameters | None) -> ev.Fields:
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("the input is not a mapping with names as keys", hint='give a dict, {"name": value}')
    if parameters is not None:
        return parameters.packed(values)
    return {name: codec.pack(value, f"input[{name!r}]") for name, value in values.items()}


def new_id(at_us: int) -> str:
    """Return an id that sorts by time: 48 bits of milliseconds and 80 random ones, as UUIDv7 has them."""
    return f"{at_us // 1000:012x}{random_hex(8)}"


def begin(logs: Logs, name: str, events: list[Event], parent: Log | None = None) -> Log:
    """Write the first events of a task, or of a fork of `parent`."""
    if name in logs.heads:
        divergence.refuse_lost(logs, name, events[0])
    log = Log(logs, name)
    if parent is not None:
        return _forked(logs, log, parent, events)
    write, state = log.begin(events)
    for _ in range(limits.MAX_APPEND_TRIES):
        joins = _join(logs, name, events[0])
        try:
            log.accept(write, logs.committer.commit(Group((write, *merge_writes(joins))))[0], state)
        except Conflict:
            if logs.store.tombstone(name) is not None:
                raise logs.missing(name) from None
            if not joins or logs.store.origin(name) is not None:
                raise TaskExists(name) from None
        else:
            return log
    raise StoreBusy(f"others kept writing to the thread of {name!r}; nothing was written", hint="try again")


def _forked(logs: Logs, log: Log, parent: Log, events: list[Event]) -> Log:
    """Write the first events of a fork."""
    log.folded, log.head = parent.folded, parent.head
    log.check(events)
    try:
        return logs.fork(parent, log.name, events)
    except Conflict:
        if logs.store.origin(parent.name) is None:
            raise logs.missing(parent.name) from None
        if logs.store.tombstone(log.name) is not None:
            raise logs.missing(log.name) from None
        raise TaskExists(log.name) from None


def _join(logs: Logs, task: str, first: Event) -> tuple[Write, ...]:
    """What to write to the thread of a task that begins alone; ThreadBusy if another one is under way.

    Two that begin at once write after the same head of the thread's log, so one of them looks again.
    """
    if not isinstance(first, ev.TaskCreated) or not first.alone or first.thread is None:
        return ()
    if logs.store.origin(task) is not None:
        raise TaskExists(task)  # it is not kept from beginning by itself
    name = names.thread_log(first.thread)
    logs.ensure(name, ev.ThreadCreated(salt=first.salt, user=first.user))
    head = logs.head(name)
    for status in ("running", "pending", "waiting"):
        for row in logs.store.list(Query(status=status, thread=first.thread, limit=1)):
            person = (row.waiting or "") if row.waiting in ev.FOR_PEOPLE else ""
            raise ThreadBusy(first.thread, row.id, row.status, waits_for=person)
    joined = logs.write_at_head(name, [ev.TaskJoined(task=task)], logs.salt(name))
    return (replace(joined, expect=head),)


def created(
    agent: Agent | str, input: Fields, *, user: str | None = None, thread: str | None = None, **fields: Any
) -> ev.TaskCreated:
    """Return the first event of a task. What the agent declares yields to the event's `fields`."""
    declared: dict[str, Any] = {}
    if isinstance(agent, Agent):
        declared = {"stages": agent.stages, "version": agent.version, "state_version": agent.state_version}
        declared |= {"phases": agent.phases, "budget": agent.budget}
    return ev.TaskCreated(
        agent=names.column_name(agent if isinstance(agent, str) else agent.name, "agent's name"),
        input=input,
        seed=random_hex(8),
        user=None if user is None else names.user_log(user).removeprefix("@user/"),
        thread=None if thread is None else names.thread_log(thread).removeprefix("@thread/"),
        salt=random_hex(8) if user is not None else "",
        **{**declared, **fields},
    )


def deadline_us(now_us: int, seconds: float | None, moment_us: int | None = None) -> int | None:
    """Return when a task must be done: the first of a length of time from now and a moment set elsewhere."""
    mine = None if seconds is None else now_us + int(seconds * 1_000_000)
    return min((one for one in (mine, moment_us) if one is not None), default=None)
