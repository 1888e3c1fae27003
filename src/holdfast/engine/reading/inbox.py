"""The inbox: every task that waits for a person, with its reason and the command that helps.

Questions, approvals, calls in doubt, budgets, tasks that are quarantined, damaged or have lost events, tasks blocked by
another task's call in doubt, and tasks that no worker takes. A task that sleeps, or waits for a signal or for a child,
needs no person and is not in it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from msgspec import field
from msgspec.structs import replace

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import Summary
from holdfast.core.errors import HoldfastError, InvalidValue, TaskCollected, TaskNotFound
from holdfast.core.errors.values import share
from holdfast.core.state.shapes import Divergence, State
from holdfast.engine.definitions.call import acting
from holdfast.engine.logs.addresses import given, path_of
from holdfast.engine.logs.listing import list_tasks
from holdfast.engine.logs.log import DAMAGED, Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.reading import serving
from holdfast.engine.reading.task_state import TaskState
from holdfast.engine.reading.values import shown, shown_arguments
from holdfast.engine.reading.waiting import Waiting
from holdfast.store.protocol import Query

InboxOrder = Literal["newest", "oldest"]
Kind = Literal["question", "approval", "doubt", "budget", "blocked", "quarantined", "diverged", "damaged", "no_worker"]


class Remedy(NamedTuple):
    """A command that helps: its verb, its words (`FILE` and `VALUE` stand for yours) and its options.

    With `signed` it takes `--by`: the person who decides.
    """

    verb: str
    words: tuple[str, ...] = ()
    options: str = ""
    signed: bool = False

    def given(self, by: str, more: str = "") -> str:
        """Return its options as they are typed by this person; without a name the command takes the login name."""
        return " ".join(filter(None, (self.options, f"--by {shlex.quote(by)}" if self.signed and by else "", more)))


class InboxItem(codec.JsonStruct, frozen=True, kw_only=True):
    """One thing a person can do something about."""

    task: str
    agent: str
    kind: Kind
    key: str
    name: str
    prompt: Any = None
    tool: str = ""
    risk: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    bound: str = ""
    """The digest that says which call and arguments were shown: give it with the approval."""
    owner: str = ""
    """The task whose budget or whose call it is, if that is another one: there it is raised, or settled."""
    used: float | None = None
    of: float | None = None
    ahead: float | None = None
    """How much of a budget the next step, call or turn is estimated to take."""
    why: str = ""
    """Why a call in doubt must be settled again: the result that was given can't be its tool's."""
    since_us: int = 0
    until_us: int | None = None
    expires_us: int | None = None
    """When `gc` cancels the task, unless something happens before; None if the task never expires."""
    answer: dict[str, Any] | None = None
    """The JSON Schema of the answer that a question takes; None if any JSON will do."""

    @property
    def asks(self) -> str:
        """The question to a person, as a sentence: `approval requested: book(city=bern)`."""
        return f"{LABELS[self.kind]}: {asked(self)}"

    @property
    def command(self) -> str:
        """The one command that helps; `FILE` and `VALUE` stand for yours."""
        return _typed(remedies(self)[0])


def as_json(item: InboxItem, *more: str) -> dict[str, Any]:
    """An entry for programs: what every face says of it, and these fields too."""
    return {name: getattr(item, name) for name in (*_SAME, *more)}


_SAME = ("task", "agent", "kind", "key", "name", "prompt", "tool", "risk", "arguments", "bound")


def inbox_items(logs: Logs, order: InboxOrder = "newest") -> Iterator[InboxItem]:
    """Everything that waits for a person, by the age of tasks; then tasks that no worker takes."""
    if order not in ("newest", "oldest"):
        raise InvalidValue(f"order={order!r} is not an order of the inbox", hint="use newest or oldest")
    for summary in waiting_rows(logs, order):
        yield from items_of_row(logs, summary)
    for summary in unserved_rows(logs, order):
        yield from items_of_row(logs, summary)


def waiting_rows(logs: Logs, order: InboxOrder = "newest") -> Iterator[Summary]:
    """The rows of waiting tasks that may need a person, by their age: of those that only sleep, none is read."""
    import heapq  # few programs need it

    overdue = Query(due_us=logs.clock.now_us(), order=order)
    kinds = (_rows(logs, Query(waiting=kind, order=order)) for kind in ev.FOR_PEOPLE)
    late = (row for row in _unserved_of(logs, overdue) if row.waiting not in ev.FOR_PEOPLE)
    return heapq.merge(*kinds, late, key=lambda row: row.created_us, reverse=order == "newest")


def _rows(logs: Logs, query: Query) -> Iterator[Summary]:
    query = replace(query, limit=limits.INBOX_PAGE_SIZE)
    while page := list_tasks(logs.store, query):
        yield from page
        query = replace(query, after=page[-1].id)


def unserved_rows(logs: Logs, order: InboxOrder = "newest") -> Iterator[Summary]:
    """The rows of pending tasks that no living worker serves, and that are not to begin later."""
    return _unserved_of(logs, Query(status="pending", order=order))


def _unserved_of(logs: Logs, query: Query) -> Iterator[Summary]:
    served: dict[tuple[str, str, str, str], bool] = {}
    workers: list[serving.LiveWorker] | None = None
    now_us = logs.clock.now_us()
    for row in _rows(logs, query):
        if row.wake_us is not None and row.wake_us > now_us:
            continue
        if workers is None:
            workers = serving.live_workers(logs.store)
        what = (row.namespace, row.queue, row.agent, row.version)
        if what not in served:
            served[what] = serving.why_none_of(workers, row) is None
        if not served[what]:
            yield row


def items_of_row(logs: Logs, summary: Summary) -> list[InboxItem]:
    """Return the waits of a row's task: none if it was removed, and `damaged` if it can't be read."""
    try:
        return items_of(logs, summary.id)
    except (TaskNotFound, TaskCollected):
        return []  # it went away meanwhile
    except DAMAGED as error:
        return [_damaged(summary, error)]


def items_of(logs: Logs, id: str) -> list[InboxItem]:
    """Return the waits of one task that a person can end."""
    return items_of_log(logs, logs.load(id))


def items_of_log(logs: Logs, log: Log) -> list[InboxItem]:
    """The same, of a log that is loaded already."""
    waiting = TaskState(log, logs).waiting
    return [] if waiting is None else items_of_wait(logs, log.state, waiting)


def items_of_wait(logs: Logs, state: State, waiting: Waiting) -> list[InboxItem]:
    """The same, of a task that is known to wait."""
    lost = state.divergence if state.summary.waiting == "diverged" else None
    own = [] if lost is None else [_diverged(state, lost)]
    if waiting.kind == "quarantined":
        own.append(_plain(state, "quarantined", waiting.why))
    deadline_us = state.summary.deadline_us
    kinds = _SETTLED if deadline_us is not None and deadline_us <= logs.clock.now_us() else _KINDS
    own += [_item(state, one) for one in waiting.on if one["kind"] in kinds]
    unserved = "" if own else _unserved(logs, state, waiting)
    return [_plain(state, "no_worker", unserved, name=state.summary.queue)] if unserved else own


def _unserved(logs: Logs, state: State, waiting: Waiting) -> str:
    """Why no worker takes a task that could be continued; empty if one does, or if it is not time yet."""
    wake_us = state.summary.wake_us
    if waiting.kind == "no_worker":
        return waiting.why
    is_over = state.summary.status == "waiting" and wake_us is not None and wake_us <= logs.clock.now_us()
    return (serving.why_unserved(state.summary, logs.store) or "") if is_over and not state.block else ""


def _damaged(summary: Summary, error: HoldfastError) -> InboxItem:
    """A task that cannot be read: its wait is unknown, but a person must look at it."""
    what: dict[str, Any] = {"key": "", "name": "damaged", "prompt": error.message, "since_us": summary.changed_us}
    return InboxItem(task=summary.id, agent=summary.agent, kind="damaged", **what)


def _diverged(state: State, lost: Divergence) -> InboxItem:
    """A log that lost events: a person must say that the task may continue from what is left."""
    told = f"events {lost.head_seq + 1} to {max(lost.head_seq + 1, lost.known_seq)} are gone"
    return _plain(state, "diverged", told, key="diverged")


def _plain(state: State, kind: Kind, why: str, *, key: str = "", name: str = "") -> InboxItem:
    """Something that concerns the whole task, and why."""
    what: dict[str, Any] = {"key": key, "name": name or kind, "prompt": why, "since_us": state.updated_us}
    what["expires_us"] = _expires_us(state)
    return InboxItem(task=state.summary.id, agent=state.summary.agent, kind=kind, **what)


_KINDS: dict[str, Kind] = {
    "person": "question",
    "approval": "approval",
    "doubt": "doubt",
    "budget": "budget",
    "blocked": "blocked",
}
_SETTLED = ("doubt", "blocked")
"""What still has to be decided once the deadline has passed: answers, approvals and budgets come too late."""

_COPIED = ("tool", "risk", "arguments", "bound", "used", "of", "ahead", "owner", "answer", "why")


def _item(state: State, one: dict[str, Any]) -> InboxItem:
    since_us, until_us = _times(state, one["kind"], one["key"])
    more = {name: one[name] for name in _COPIED if name in one}
    return InboxItem(
        task=state.summary.id,
        agent=state.summary.agent,
        kind=_KINDS[one["kind"]],
        key=one["key"],
        name=one["name"],
        prompt=one["prompt"],
        since_us=since_us,
        until_us=until_us,
        expires_us=_expires_us(state),
        **more,
    )


def _expires_us(state: State) -> int | None:
    summary = state.summary
    return None if summary.expires_at is None else summary.changed_us + (summary.expire_us or 0)


def _times(state: State, kind: str, key: str) -> tuple[int, int | None]:
    """Since when it waits, and until when."""
    if kind == "person":
        return state.waits[key].since_us, state.waits[key].wake_us
    if kind == "approval":
        return state.approvals[key].asked_us, state.approvals[key].wake_us
    if kind == "doubt":
        return (state.steps.get(key) or state.maybe_done[key]).started_us, None
    return state.updated_us, None


# What is asked, and what to type

LABELS: dict[Kind, str] = {
    "question": "question",
    "approval": "approval requested",
    "doubt": "call in doubt",
    "budget": "budget used up",
    "quarantined": "quarantined",
    "damaged": "damaged",
    "diverged": "events lost",
    "blocked": "blocked by another task",
    "no_worker": "no worker",
}
"""Names of the entries of the inbox."""


def asked(item: InboxItem) -> str:
    """Return the question to a person, in one line."""
    match item.kind:
        case "question":
            return f"{item.name}: {shown(item.prompt)}" if item.prompt is not None else item.name
        case "approval":
            return _call(item) if item.tool or item.prompt is None else shown(item.prompt)
        case "doubt":
            raised = f" ({shown(item.prompt)})" if item.prompt is not None else ""
            again = f" Settle it again: {item.why}." if item.why else ""
            return f"did {_call(item)} happen?{raised}{again}"
        case "budget":
            return _budget(item)
        case "blocked":
            return f"did it happen? {shown(item.prompt)}"
        case "no_worker":
            return shown(item.prompt)
        case "diverged":
            return f"{item.prompt}: may the task continue from what is left?"
        case "damaged":
            return f"the task can't be read: {item.prompt}"
        case "quarantined":
            return f"no worker takes it until you resume it: {shown(item.prompt)}"


def _budget(item: InboxItem) -> str:
    """Describe how much of a limit is used, and how much more is wanted."""
    if not item.key:
        return shown(item.prompt)
    more = f"; the next step is estimated at {item.ahead:,.6g}" if item.ahead else ""
    whose = f", in the budget of {item.owner}" if item.owner else ""
    return f"{share(item.name, item.used or 0, item.of or 0)}{more}{whose}"


def _call(item: InboxItem) -> str:
    """A call as it is written, with its arguments."""
    return f"{item.tool or item.name}({shown_arguments(item.arguments)})"


def remedies(item: InboxItem) -> list[Remedy]:
    """The commands that help with an entry; the first decides it, the others are for who wants to look, or not."""
    task, call = item.task, (item.owner or item.task, item.key)
    match item.kind:
        case "question":
            return [Remedy("answer", (task, item.key, "VALUE"), signed=True)]
        case "approval":
            seen = f"--bound {item.bound}"
            refuse = Remedy("reject", (task, item.key), seen, signed=True)
            return [Remedy("approve", (task, item.key), seen, signed=True), refuse]
        case "doubt" | "blocked":
            denied = Remedy("settle", call, "--did-not-happen", signed=True)
            return [Remedy("settle", call, "--happened --result VALUE", signed=True), denied]
        case "budget":
            return [_raise(item)]
        case "quarantined":
            cancel = Remedy("cancel", (task,), signed=True)
            return [Remedy("resume", (task, "FILE")), Remedy("log", (task,)), cancel]
        case "diverged":
            resume = Remedy("resume", (task, "FILE"), "--anyway", signed=True)
            return [resume, Remedy("log", (task,)), Remedy("cancel", (task,), signed=True)]
        case "damaged":
            return [Remedy("verify", (task,)), Remedy("log", (task,))]
        case "no_worker":
            queue = "" if item.name == "default" else f"--queue {shlex.quote(item.name)}"
            return [Remedy("worker", ("FILE",), queue), Remedy("resume", (task, "FILE"))]


def _raise(item: InboxItem) -> Remedy:
    """Allow twice as much, or as often that as it takes."""
    most, needed = 2 * (item.of or 1.0), (item.used or 0.0) + (item.ahead or 0.0)
    while most <= needed:
        most *= 2
    amount = f"{most:.0f}" if most == int(most) else f"{most:g}"
    owner = item.owner or item.task
    return Remedy("budget", (owner, f"{item.key}={amount}"), signed=True) if item.key else Remedy("budget", (owner,))


def _typed(one: Remedy, store: str = "") -> str:
    """A command as it is typed. `store` is an option that names the store, where it is not the usual one."""
    return " ".join(filter(None, ("holdfast", one.verb, shlex.join(one.words), one.given(acting(""), store))))


def explained(logs: Logs, state: State, waiting: Waiting) -> str:
    """Why a task waits: the question or the call, and the command that comes next, a line each."""
    store, lines = _store_option(logs.store.url), list[str]()
    for item in items_of_wait(logs, state, waiting):
        lines += [item.asks, f"  {_typed(remedies(item)[0], store)}"]
    for one in waiting.on:
        if one["kind"] == "signal":
            signal = Remedy("signal", (state.summary.id, one["name"], "VALUE"))
            lines += [f"waits for the signal {one['name']!r}", f"  {_typed(signal, store)}"]
        elif one["kind"] == "child":
            child = Remedy("show", (one["name"],))
            lines += [f"waits for its child {one['name']}", f"  {_typed(child, store)}"]
    if waiting.wake_at is not None:
        timed = any(one["kind"] in ("person", "approval", "signal") for one in waiting.on)
        lines.append(f"{'at most' if timed else 'sleeps'} until {waiting.wake_at:%Y-%m-%d %H:%M:%S} UTC")
    return "\n".join(lines) or f"waits for {waiting.kind}{': ' + waiting.why if waiting.why else ''}"


def _store_option(url: str) -> str:
    """Return the option that names this store to the command line; empty if it opens that anyway, or can't."""
    path = path_of(url)
    if path is None:
        return "" if url == "memory:" or os.environ.get("HOLDFAST_URL") else f"--store {shlex.quote(url)}"
    if os.path.realpath(path_of(given(None)) or "") == path:
        return ""
    here = os.path.relpath(path)
    return f"--store {shlex.quote(path if here.startswith(os.pardir) else here)}"
