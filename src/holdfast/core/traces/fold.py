"""The spans of a task, folded from its events in order. A span is given out by the event that ends it, once.

A task is one trace over all its lives. Its root is `invoke_agent`; below it are its lives, one for each claim, its
waits, and calls in doubt, which outlast lives. Steps are below the life in which they began. A killed worker writes
nothing: its life, and what it was doing, ends with the last event before the next claim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from holdfast.core import events as ev
from holdfast.core.events.kinds import KIND as KINDS
from holdfast.core.traces import attributes as at
from holdfast.core.traces.attributes import Reader
from holdfast.core.traces.span import (
    ROOT,
    Attributes,
    OpenSpan,
    Span,
    SpanEvent,
    SpanLink,
    StepKind,
    StepSpan,
    TraceIds,
    TraceSpan,
    root_link,
)

MAX_STEP_KINDS = 256
"""For how many names of steps is kept what their spans have in common."""


StepEvent = ev.StepStarted | ev.AttemptFailed | ev.StepCompleted | ev.StepFailed
Ending = ev.TaskCompleted | ev.TaskFailed | ev.TaskCancelled


class TraceFold:
    """The fold of one task's log. `add` takes the next event and returns the spans that it ends.

    `after` is where the task's own events begin: those before belong to the task it was forked from, and end no span
    here. With a `reader`, spans have what users wrote.
    """

    def __init__(
        self, store: str, task: str, *, tenant: str = "", after: int = 0, reader: Reader | None = None
    ) -> None:
        self._store, self._task, self._tenant, self._after, self._reader = store, task, tenant, after, reader
        self.ids = TraceIds(store, self._full(task))
        self.seq = 0
        self.life_seq = 0
        """The claim of the life that is under way; 0 between lives."""
        self._at_us = 0
        self._turn = 0
        self._lives = 0
        self._header: Attributes = {}
        self._agent = ""
        self._root: OpenSpan | None = None
        self._roots = 0
        self._last_root = b""
        self._life: OpenSpan | None = None
        self._last_life = b""
        self._open: dict[str, OpenSpan] = {}
        self._kinds: dict[tuple[str, str, str, int], StepKind] = {}
        """The steps of this life, by name, tool, effect and attempts."""
        self._usage = [0, 0, 0.0]

    @property
    def is_open(self) -> bool:
        """True if the task has not ended."""
        return self._root is not None

    def add(self, seq: int, at_us: int, event: ev.Event) -> list[Span]:
        """Take the next event; return the spans that end with it, inner ones first."""
        before_us, self._at_us, self.seq = self._at_us or at_us, at_us, seq
        found = _CHANGES.get(type(event), TraceFold.other)(self, seq, at_us, before_us, event)
        return found if seq > self._after else _NONE

    # What all changes use

    def _full(self, task: str) -> str:
        return f"{self._tenant}!{task}" if self._tenant else task

    def _address(self, key: str) -> str:
        if not self._turn or key.partition("/")[0].isdigit():
            return key
        return f"{self._turn}/{key}"

    def note(self, seq: int, at_us: int, event: ev.Event) -> None:
        """Show an event as a moment of the life under way, else of the task."""
        owner = self._life or self._root
        if owner is not None:
            owner.note(
                SpanEvent(
                    f"holdfast.{KINDS.get(type(event), 'erased')}", at_us, {at.SEQ: seq, **at.shown_fields(event)}
                )
            )

    def _end(self, one: OpenSpan, end_us: int, outcome: str, *, failed: bool = False, message: str = "") -> TraceSpan:
        told = one.attributes
        told[at.OUTCOME] = outcome
        return TraceSpan(
            trace_id=self.ids.trace_id,
            span_id=one.id,
            parent_id=one.parent,
            name=one.name,
            client=one.client,
            start_us=one.start_us,
            end_us=max(end_us, one.start_us),
            attributes=told,
            events=one.events,
            dropped_events=one.dropped,
            links=one.links,
            status="error" if failed else "ok" if outcome == "completed" else "",
            message=message,
        )

    # The task

    def created(self, seq: int, at_us: int, before_us: int, event: ev.TaskCreated) -> list[Span]:
        """The task begins; a child is linked to the task that started it."""
        self._read_header(event)
        link = root_link(self._store, self._full(event.parent), {at.LINK: "child of"}) if event.parent else None
        self._begin_root(seq, at_us, [] if link is None else [link])
        self.note(seq, at_us, event)
        return _NONE

    def forked(self, seq: int, at_us: int, before_us: int, event: ev.TaskForked) -> list[Span]:
        """The task begins with another's past. What that one was doing ends there, and is not shown here."""
        self._header = {**self._header, at.TASK: self._task}
        self._life, self.life_seq, self._lives, self._last_life = None, 0, 0, b""
        self._kinds.clear()
        self._roots, self._usage = 0, [0, 0, 0.0]
        self._open.clear()
        told: Attributes = {at.LINK: "forked from", "holdfast.at": event.at}
        self._begin_root(seq, at_us, [root_link(self._store, self._full(event.parent), told)])
        self.note(seq, at_us, event)
        return _NONE

    def _begin_root(self, seq: int, at_us: int, links: list[SpanLink]) -> None:
        """Begin the root; another one, linked to the first, after a task that had ended is reopened."""
        place = f"{ROOT}@{seq}" if self._roots else ROOT
        if self._roots:
            links = [SpanLink(self.ids.trace_id, self._last_root, {at.LINK: "reopened from"}), *links]
        self._roots += 1
        self._kinds.clear()
        self._last_root = self.ids.span_id(place)
        named = f"invoke_agent {self._agent}" if self._agent else "invoke_agent"
        told: Attributes = {at.KIND: "AGENT", at.OPERATION: "invoke_agent", **self._header, at.SEQ: seq}
        self._root = OpenSpan(
            what="root", id=self._last_root, parent=b"", name=named, start_us=at_us, attributes=told, links=links
        )

    def _read_header(self, event: ev.TaskCreated) -> None:
        """Read what every root says of its task."""
        self._agent = event.agent
        told: Attributes = {at.TASK: self._task, "gen_ai.agent.name": event.agent}
        for name, value in (
            ("gen_ai.agent.id", self._full(event.agent) if event.agent else ""),
            ("gen_ai.agent.version", event.version),
            ("gen_ai.conversation.id", event.thread),
            ("session.id", event.thread),
            ("holdfast.namespace", self._tenant),
            ("holdfast.queue", event.queue),
            ("holdfast.parent.task.id", event.parent),
            ("holdfast.parent.step.key", event.parent_step),
        ):
            if value:
                told[name] = value
        if event.mock:
            told["holdfast.mock"] = True
        if self._reader is not None:
            told["input.value"] = self._reader.text(event.input)
        self._header = told

    def ended(self, seq: int, at_us: int, before_us: int, event: Ending) -> list[Span]:
        """End everything with the task."""
        outcome = KINDS[type(event)].removeprefix("task_")
        failure = event.failure if isinstance(event, ev.TaskFailed) else None
        spans = [self._end(one, at_us, "cut off") for one in self._open.values()]
        self._open.clear()
        spans += self._freed(seq, at_us, outcome)
        root, self._root = self._root, None
        if root is None:
            return spans
        told = root.attributes
        told |= {"holdfast.lives": self._lives, "holdfast.last_seq": seq}
        if self._usage[0] or self._usage[1]:
            told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"] = (
                int(self._usage[0]),
                int(self._usage[1]),
            )
        if self._usage[2]:
            told["holdfast.cost"] = self._usage[2]
        if self._reader is not None and isinstance(event, ev.TaskCompleted):
            told["output.value"] = self._reader.text(event.result)
        spans.append(self._end(root, at_us, outcome, failed=failure is not None, message=self._failed(root, failure)))
        return spans

    def _failed(self, one: OpenSpan, failure: ev.Failure | None) -> str:
        """Note the type of a failure; its text is what users wrote, and shown only if that is asked for."""
        if failure is None:
            return ""
        one.attributes["error.type"] = failure.type
        return failure.message[: at.MAX_CONTENT] if self._reader is not None else ""

    # Lives

    def claimed(self, seq: int, at_us: int, before_us: int, event: ev.TaskClaimed) -> list[Span]:
        """A life begins. If the one before did not end, its worker is dead or silent, and what it did is cut off."""
        spans: list[Span] = []
        links: list[SpanLink] = []
        if self._root is None:
            self._begin_root(seq, at_us, [])
        if self._life is not None:
            links = [SpanLink(self.ids.trace_id, self._last_life, {at.LINK: "taken over from"})]
            spans = self._cut_off(seq, before_us)
            how = "killed" if event.taken in ("", "dead", "proven") else "lost"
            spans.append(self._end(self._life, before_us, how, failed=True))
        waited = self._open.pop("suspended", None)
        if waited is not None:
            spans.append(self._end(waited, at_us, "resumed"))
        self._lives += 1
        self.life_seq = seq
        self._kinds.clear()
        self._last_life = self.ids.span_id(f"life@{seq}")
        told: Attributes = {at.KIND: "CHAIN", at.TASK: self._task, at.SEQ: seq, "holdfast.life": self._lives}
        told["holdfast.worker"] = event.holder
        if event.taken:
            told["holdfast.taken"] = event.taken
        assert self._root is not None
        self._life = OpenSpan(
            what="life",
            id=self._last_life,
            parent=self._root.id,
            name=f"holdfast.life {self._lives}",
            start_us=at_us,
            attributes=told,
            links=links,
        )
        return spans

    def _cut_off(self, seq: int, before_us: int) -> list[Span]:
        """End what a dead worker was doing. An announced call that can't be repeated is in doubt from then on."""
        spans: list[Span] = []
        for address, one in list(self._open.items()):
            if one.what == "step" and one.running:
                del self._open[address]
                spans.append(self._doubtful(address, one, seq, before_us))
        return spans

    def _doubtful(self, address: str, one: OpenSpan, seq: int, at_us: int) -> TraceSpan:
        """End a call whose answer is not known; if it may have happened, it is in doubt until that is settled."""
        if one.effect not in ev.ANNOUNCED:
            return self._end(one, at_us, "interrupted", failed=True)
        one.attributes[at.IN_DOUBT] = True
        self._doubt(address, one.attributes, seq, max(at_us, one.start_us), one.name.partition(" ")[2])
        return self._end(one, at_us, "in doubt", failed=True)

    def _doubt(self, address: str, known: Attributes, seq: int, at_us: int, name: str) -> None:
        kept = (at.KEY, "gen_ai.tool.name", "holdfast.effect", "holdfast.idempotency_key")
        told: Attributes = {at.KIND: "CHAIN", at.TASK: self._task, at.SEQ: seq, at.IN_DOUBT: True}
        told |= {one: known[one] for one in kept if one in known}
        self._begin(f"doubt {address}", "doubt", f"doubt {address}@{seq}", f"holdfast.in_doubt {name}", at_us, told)

    def freed(self, seq: int, at_us: int, before_us: int, event: ev.TaskSuspended | ev.TaskReleased) -> list[Span]:
        """A life ends: the task waits, or is left to other workers."""
        self.note(seq, at_us, event)
        suspended = isinstance(event, ev.TaskSuspended)
        spans = self._freed(seq, at_us, "suspended" if suspended else "released")
        if isinstance(event, ev.TaskSuspended) and not any(
            one.what in ("wait", "approval", "doubt") for one in self._open.values()
        ):
            told: Attributes = {at.KIND: "CHAIN", at.TASK: self._task, at.SEQ: seq, "holdfast.why": event.why}
            self._begin("suspended", "suspended", f"suspended@{seq}", f"holdfast.wait {event.why}", at_us, told)
        return spans

    def _freed(self, seq: int, at_us: int, outcome: str) -> list[Span]:
        life, self._life, self.life_seq = self._life, None, 0
        self._kinds.clear()
        if life is None:
            return []
        life.attributes["holdfast.last_seq"] = seq
        return [self._end(life, at_us, outcome, failed=outcome == "failed")]

    # Steps and calls

    def _begin(
        self,
        address: str,
        what: Literal["wait", "approval", "doubt", "suspended"],
        place: str,
        name: str,
        at_us: int,
        told: Attributes,
    ) -> OpenSpan:
        """Begin what outlasts a life: it is below the root."""
        parent = self._root.id if self._root is not None else self._last_root
        self._open[address] = one = OpenSpan(
            what=what, id=self.ids.span_id(place), parent=parent, name=name, start_us=at_us, attributes=told
        )
        return one

    @property
    def _above(self) -> bytes:
        """The span that a step belongs to which begins now."""
        return self._last_life if self._life is not None else self._last_root

    def _about(self, event: StepEvent) -> tuple[str, Attributes]:
        """Return the name of a step's span, and the attributes that do not change when the step is made again."""
        told: Attributes = {at.TASK: self._task}
        if event.tool:
            name = f"execute_tool {event.tool}"
            told[at.KIND], told[at.OPERATION] = "TOOL", "execute_tool"
            told["gen_ai.tool.name"], told["gen_ai.tool.type"] = event.tool, "function"
            told["holdfast.effect"] = event.effect
        else:
            name, told[at.KIND] = f"holdfast.step {event.name}", "CHAIN"
        if self._life is not None:
            told["holdfast.life"] = self._lives
        return name, told

    def _step(self, seq: int, start_us: int, event: StepEvent, address: str) -> OpenSpan:
        name, told = self._about(event)
        told[at.SEQ], told[at.KEY] = seq, address
        if event.tool and event.idempotency_key:
            told["gen_ai.tool.call.id"] = told["holdfast.idempotency_key"] = event.idempotency_key
        if self._reader is not None and event.input:
            given = self._reader.text(event.input)
            told["input.value"] = given
            if event.tool:
                told["gen_ai.tool.call.arguments"] = given
        return OpenSpan(
            what="step",
            id=self.ids.step_id(seq),
            parent=self._above,
            name=name,
            start_us=start_us,
            attributes=told,
            effect=event.effect if event.tool else "",
        )

    def _whole_step(self, seq: int, at_us: int, before_us: int, event: ev.StepCompleted, address: str) -> StepSpan:
        """Return the span of a step of which nothing was known before: what it has in common is made once a life."""
        place = event.name, event.tool, event.effect, event.attempts
        kind = self._kinds.get(place)
        if kind is None:
            name, told = self._about(event)
            told["holdfast.attempts"], told[at.OUTCOME] = event.attempts, "completed"
            if len(self._kinds) >= MAX_STEP_KINDS:
                self._kinds.clear()
            kind = self._kinds[place] = StepKind(self.ids.trace_id, self._above, name, told)
        start_us = min(event.started_us, at_us) or self._since(before_us)
        key = event.idempotency_key if event.tool else ""
        return StepSpan(kind, self.ids.step_number(seq), start_us, max(at_us, start_us), seq, address, key)

    def started(self, seq: int, at_us: int, before_us: int, event: ev.StepStarted) -> list[Span]:
        """A call is announced, or a long step announces itself."""
        address = self._address(event.key)
        spans = self._settled(address, at_us, "repeated")
        one = self._open.get(address)
        if one is None:
            one = self._open[address] = self._step(seq, event.started_us or at_us, event, address)
        elif one.running:  # the same call again, with nothing in between: the first was cut off
            spans.append(self._end(one, at_us, "interrupted", failed=True))
            one = self._open[address] = self._step(seq, event.started_us or at_us, event, address)
        one.running, one.effect = True, event.effect
        one.attributes["holdfast.attempt"] = event.attempt
        return spans

    def attempt_failed(self, seq: int, at_us: int, before_us: int, event: ev.AttemptFailed) -> list[Span]:
        """An attempt is a moment of the step's span; the step is not over."""
        address = self._address(event.key)
        one = self._open.get(address)
        if one is None:
            one = self._open[address] = self._step(seq, self._since(before_us), event, address)
        one.running = False
        told: Attributes = {at.SEQ: seq, "holdfast.attempt": event.attempt, "error.type": event.failure.type}
        told["holdfast.retry_us"] = event.retry_us
        if self._reader is not None:
            told["exception.message"] = event.failure.message[: at.MAX_CONTENT]
        one.note(SpanEvent("holdfast.attempt_failed", at_us, told))
        self._spend(one, event.usage)
        return self._settled(address, at_us, "repeated")

    def completed(self, seq: int, at_us: int, before_us: int, event: ev.StepCompleted) -> list[Span]:
        """A step has its result."""
        address = self._address(event.key)
        if event.usage is None and self._reader is None and not (self._open and self._has_begun(address)):
            return [self._whole_step(seq, at_us, before_us, event, address)]
        spans = self._settled(address, at_us, "completed")
        one = self._open.pop(address, None)
        if one is None:
            if spans:
                return spans  # the call was made in an earlier life, and is shown as in doubt
            one = self._step(seq, min(event.started_us, at_us) or self._since(before_us), event, address)
        one.attributes["holdfast.attempts"] = event.attempts
        usage = event.usage
        if usage is not None:
            self._spend(one, usage)
            if not event.tool:
                one.name, one.client = f"chat {usage.model}" if usage.model else "chat", True
                one.attributes |= {at.KIND: "LLM", at.OPERATION: "chat", **at.reply_of(event.result)}
        if self._reader is not None:
            came = one.attributes["output.value"] = self._reader.text(event.result)
            if event.tool:
                one.attributes["gen_ai.tool.call.result"] = came
        spans.append(self._end(one, at_us, "completed"))
        return spans

    def _has_begun(self, address: str) -> bool:
        return address in self._open or f"doubt {address}" in self._open

    def step_failed(self, seq: int, at_us: int, before_us: int, event: ev.StepFailed) -> list[Span]:
        """A step failed for good."""
        address = self._address(event.key)
        spans = self._settled(address, at_us, "failed")
        one = self._open.pop(address, None)
        if one is None:
            if spans:
                return spans
            one = self._step(seq, min(event.started_us, at_us) or self._since(before_us), event, address)
        one.attributes["holdfast.attempts"] = event.attempts
        if event.maybe_done:
            one.attributes[at.IN_DOUBT] = True
        self._spend(one, event.usage)
        spans.append(self._end(one, at_us, "failed", failed=True, message=self._failed(one, event.failure)))
        return spans

    def doubted(self, seq: int, at_us: int, before_us: int, event: ev.StepDoubted) -> list[Span]:
        """The outcome of an announced call is not known."""
        address = self._address(event.key)
        one = self._open.pop(address, None)
        if one is not None:
            self._failed(one, event.failure)
            self._spend(one, event.usage)
            one.effect = "once"
            return [self._doubtful(address, one, seq, at_us)]
        if f"doubt {address}" not in self._open:
            name = address.rpartition("/")[2].partition("#")[0]
            self._doubt(address, {at.KEY: address}, seq, at_us, name)
        self.note(seq, at_us, event)
        return []

    def settled(self, seq: int, at_us: int, before_us: int, event: ev.StepSettled) -> list[Span]:
        """A person or the destination says whether a call in doubt happened."""
        self.note(seq, at_us, event)
        return self._settled(self._address(event.key), at_us, "happened" if event.happened else "did not happen")

    def _settled(self, address: str, at_us: int, outcome: str) -> list[Span]:
        one = self._open.pop(f"doubt {address}", None) if self._open else None
        return [] if one is None else [self._end(one, at_us, outcome)]

    def _since(self, before_us: int) -> int:
        """When a step began that did not say so: after the event before it, and not before its life."""
        return before_us if self._life is None else max(before_us, self._life.start_us)

    def _spend(self, one: OpenSpan, usage: ev.Usage | None) -> None:
        if usage is None:
            return
        told = at.usage_of(usage)
        for name in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "holdfast.cost"):
            before = one.attributes.get(name)
            if isinstance(before, int | float) and name in told:
                told[name] = before + told[name]  # pyright: ignore[reportOperatorIssue] — counts and money
        one.attributes |= told
        self._usage[0] += usage.input_tokens
        self._usage[1] += usage.output_tokens
        self._usage[2] += usage.cost or 0.0

    # Waits

    def wait_started(self, seq: int, at_us: int, before_us: int, event: ev.WaitStarted) -> list[Span]:
        """A task begins to wait."""
        address = self._address(event.key)
        told: Attributes = {at.KIND: "CHAIN", at.TASK: self._task, at.SEQ: seq, at.KEY: address}
        told["holdfast.why"] = event.wait
        if event.wake_us is not None:
            told["holdfast.wake_us"] = event.wake_us
        if self._reader is not None:
            told["input.value"] = self._reader.text(event.prompt)
        label = event.wait if event.wait in ("child", "timer") else event.key.rpartition("/")[2].partition("#")[0]
        one = self._begin(f"wait {address}", "wait", f"wait {address}@{seq}", f"holdfast.wait {label}", at_us, told)
        if event.wait == "child":
            told["holdfast.child.task.id"] = event.name
            one.links = [root_link(self._store, self._full(event.name), {at.LINK: "waits for child"})]
        return []

    def wait_ended(self, seq: int, at_us: int, before_us: int, event: ev.WaitEnded) -> list[Span]:
        """End the span of a wait that has ended, or ran out of time."""
        one = self._open.pop(f"wait {self._address(event.key)}", None)
        if one is None:
            self.note(seq, at_us, event)
            return []
        if self._reader is not None:
            one.attributes["output.value"] = self._reader.text(event.value)
        is_late = event.expired and one.attributes["holdfast.why"] != "timer"  # a timer ends in no other way
        outcome = "expired" if is_late else "failed" if event.failure is not None else "completed"
        failed = event.failure is not None
        return [self._end(one, at_us, outcome, failed=failed, message=self._failed(one, event.failure))]

    def approval_asked(self, seq: int, at_us: int, before_us: int, event: ev.ApprovalAsked) -> list[Span]:
        """A call waits for a person's approval."""
        address = self._address(event.key)
        told: Attributes = {at.KIND: "CHAIN", at.TASK: self._task, at.SEQ: seq, at.KEY: address}
        told["holdfast.why"] = "person"
        if event.tool:
            told["gen_ai.tool.name"] = event.tool
        if event.risk:
            told["holdfast.risk"] = event.risk
        if self._reader is not None:
            told["input.value"] = self._reader.text(event.input)
        name = event.tool or event.key.rpartition("/")[2].partition("#")[0]
        before = self._open.pop(f"approval {address}", None)
        place = f"approval {address}@{seq}"
        self._begin(f"approval {address}", "approval", place, f"holdfast.approval {name}", at_us, told)
        return [] if before is None else [self._end(before, at_us, "asked again")]

    def approval_ended(
        self, seq: int, at_us: int, before_us: int, event: ev.ApprovalGiven | ev.ApprovalRefused
    ) -> list[Span]:
        """A person decided, or time did."""
        one = self._open.pop(f"approval {self._address(event.key)}", None)
        if one is None:
            self.note(seq, at_us, event)
            return []
        if isinstance(event, ev.ApprovalGiven):
            return [self._end(one, at_us, "approved")]
        return [self._end(one, at_us, "expired" if event.expired else "rejected")]

    # Going back

    def rolled_back(self, seq: int, at_us: int, before_us: int, event: ev.RolledBack) -> list[Span]:
        """What was open is void; a task that had ended is open again."""
        spans: list[Span] = [self._end(one, at_us, "rolled back") for one in self._open.values()]
        self._open.clear()
        if self._root is None:
            self._begin_root(seq, at_us, [])
        self.note(seq, at_us, event)
        return spans

    def reopened(self, seq: int, at_us: int, before_us: int, event: ev.TaskReopened) -> list[Span]:
        """A task that had failed is open again, under a root of its own."""
        if self._root is None:
            self._begin_root(seq, at_us, [])
        self.note(seq, at_us, event)
        return _NONE

    # Everything else

    def turn_started(self, seq: int, at_us: int, before_us: int, event: ev.TurnStarted) -> list[Span]:
        """Keys are those of this turn from now on."""
        self._turn = event.turn
        self.note(seq, at_us, event)
        return _NONE

    def other(self, seq: int, at_us: int, before_us: int, event: ev.Event) -> list[Span]:
        """What begins and ends nothing is a moment."""
        self.note(seq, at_us, event)
        return _NONE


Change = Callable[[TraceFold, int, int, int, Any], list[Span]]

_CHANGES: dict[type[ev.Event], Change] = {
    ev.TaskCreated: TraceFold.created,
    ev.TaskForked: TraceFold.forked,
    ev.TaskClaimed: TraceFold.claimed,
    ev.TaskReleased: TraceFold.freed,
    ev.TaskSuspended: TraceFold.freed,
    ev.TaskCompleted: TraceFold.ended,
    ev.TaskFailed: TraceFold.ended,
    ev.TaskCancelled: TraceFold.ended,
    ev.TaskReopened: TraceFold.reopened,
    ev.RolledBack: TraceFold.rolled_back,
    ev.TurnStarted: TraceFold.turn_started,
    ev.StepStarted: TraceFold.started,
    ev.AttemptFailed: TraceFold.attempt_failed,
    ev.StepCompleted: TraceFold.completed,
    ev.StepFailed: TraceFold.step_failed,
    ev.StepDoubted: TraceFold.doubted,
    ev.StepSettled: TraceFold.settled,
    ev.WaitStarted: TraceFold.wait_started,
    ev.WaitEnded: TraceFold.wait_ended,
    ev.ApprovalAsked: TraceFold.approval_asked,
    ev.ApprovalGiven: TraceFold.approval_ended,
    ev.ApprovalRefused: TraceFold.approval_ended,
}
"""Events that begin or end a span. All others are moments of the life under way, or of the task."""

_NONE: list[Span] = []
