"""One task being worked on, here and now: events that are not written yet, and those on their way to the store.

Records queue up, and the branch that writes takes all that is queued: the branches of a task share commits as tasks do.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.core import codec, events as ev, limits, names
from holdfast.core.codec import Group, Stored, Write, merge_writes
from holdfast.core.errors import (
    Conflict,
    Diverged,
    HoldfastError,
    InvalidEvent,
    InvalidValue,
    KeyTaken,
    LeaseLost,
    NestedStep,
    Suspended,
    TaskCollected,
    TaskFinished,
    UnnamedThread,
)
from holdfast.core.events import Event, Usage
from holdfast.core.flows.requests import Append, Branch, Condition, Held, Linked, Park, RunChild, StepRequest
from holdfast.core.flows.stops import ends_us
from holdfast.core.flows.writers import unsettled
from holdfast.core.state import rules
from holdfast.core.state.fold_knowledge import identity_of, refusal_key
from holdfast.core.state.paths import is_nested, opened
from holdfast.core.state.shapes import State, Undo
from holdfast.core.wording import verb_of
from holdfast.engine.control import change, late_results
from holdfast.engine.control.foreseen import Foreseen, ForeseenLogs
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.call import CALLER
from holdfast.engine.definitions.lent import Lent
from holdfast.engine.definitions.state_versions import field_of, version_of
from holdfast.engine.definitions.tool import Tool
from holdfast.engine.execution import mocks
from holdfast.engine.execution.branch_views import Views
from holdfast.engine.execution.linked_logs import LinkedLogs
from holdfast.engine.execution.pending import PendingWrite, Stop, no_body, settle
from holdfast.engine.execution.replay import LiveCalls, unclaimed_steps
from holdfast.engine.execution.step_request import undo_request
from holdfast.engine.execution.watch import Announced, Watch
from holdfast.engine.logs.committer import Resolve, Ticket
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.streams.publisher import Publisher
from holdfast.engine.system.clock import HeldSleeps
from holdfast.store.protocol import Placed

if TYPE_CHECKING:
    from holdfast.engine.conversations.conversation import Conversation, Counted

Transacted = tuple[Write, Placed] | list[Stored]
_ENDINGS = (ev.TaskCompleted, ev.TaskFailed, ev.TaskCancelled)


class Services(Struct, frozen=True):
    """What an execution needs of its process: children worked on, prices, a look at what takes long, chunks."""

    run_child: Callable[[RunChild, Any], None]
    run_child_async: Callable[[RunChild, Any], Coroutine[Any, Any, None]]
    priced: Callable[[Usage], Usage]
    watch: Watch
    publisher: Publisher
    tools: dict[str, Tool]
    """Tools that can be called once only, as far as this process has met them: what a settlement must fit."""
    foreseen: ForeseenLogs


class Execution:
    """The work on one claimed task. Several threads may use it; its log is written by one at a time."""

    __slots__ = (  # more than thirty attributes without slots would make every call of a method slow
        *("_buffer", "_counted", "_failed", "_in_flight", "_linked_log_is_gone", "_names", "_queue", "_refusals"),
        *("abandoned", "agent"),
        *("batch_done", "body", "busy", "called", "calls", "careful", "deliver", "hold", "in_body", "interrupts"),
        *("lent", "linked_logs", "lock", "log", "logs", "mocks", "over", "priced", "replaying", "root", "secrets"),
        *("services", "sleeps", "stop", "suspended", "task", "thread", "thread_waits", "unclaimed", "undoers"),
        *("underway", "unsettled", "views"),
    )

    def __init__(
        self,
        logs: Logs,
        log: Log,
        agent: Agent,
        services: Services,
        *,
        mocks: Mapping[str, Any],
        hold: float = limits.HOLD_SECONDS,
        stop: Stop | None = None,
    ) -> None:
        self.logs, self.log, self.agent, self.hold, self.mocks = logs, log, agent, hold, mocks
        self.sleeps = HeldSleeps(logs.clock)
        self.stop = stop or Stop()
        self.careful = ends_us(log.state, self.stop.until_us) is not None
        self.in_body = self.abandoned = self.suspended = False
        self.interrupts: set[Callable[[], None]] = set()
        self.undoers: dict[str, Any] = dict(agent.undoers)
        self.services, self.priced = services, services.priced
        self.secrets: set[str] = set()
        self.called: dict[str, StepRequest] = {}
        self.calls = LiveCalls(log.state, self.call_ended)
        self.underway: dict[str, Any] = {}
        self.over: BaseException | None = None
        self.body: Callable[[], Any] = no_body
        self.busy = self._refusals = 0
        self._linked_log_is_gone = False
        self.thread_waits: list[Park] = []
        self.thread = threading.get_ident()
        self._buffer: list[Event] = []
        self._queue: deque[PendingWrite] = deque()
        self._in_flight: tuple[list[PendingWrite], list[Event], Write | None] | None = None
        self.lock = threading.RLock()
        self.batch_done = threading.Condition(self.lock)
        self.deliver: Resolve = _deliver
        self._failed: BaseException | None = None
        self._names: set[tuple[int, str]] = set()
        self.task: Any = None
        self._counted: Counted | None = None
        self.linked_logs = LinkedLogs(logs, log)
        self.lent: Lent | None = None
        self._begin(log.state.turn, log.state.turn_seq or log.state.begun)

    @property
    def state(self) -> State:
        """The state as folded so far."""
        return self.log.folded  # pyright: ignore[reportReturnType] — a claimed log has one, and this is asked all the time

    @property
    def unwritten(self) -> bool:
        """True if anything was recorded, or done, that is not durable yet."""
        return bool(self._buffer) or self._in_flight is not None

    def seconds_left(self) -> float | None:
        """Return how long the task may still take; None if for ever."""
        end_us = ends_us(self.state, self.stop.until_us)
        return None if end_us is None else max(0, end_us - self.sleeps.now_us()) / 1_000_000

    def begin_turn(self) -> None:
        """Start again from no steps: keys, sayings and views are those of the turn."""
        self._begin(self.state.turn, self.state.turn_seq, self.views.carried())

    def begin_prelude(self) -> None:
        """A block that is in one of its turns is entered again: first comes what it did before the first."""
        self._begin(0, self.state.begun)

    def claim(self, key: str) -> None:
        """Take a recorded step as asked for: its branch will come to it."""
        self.unclaimed.discard(key)
        if not self.unclaimed:
            self.replaying = False

    def call_ended(self) -> None:
        """Let branches look that wait for a call of another."""
        with self.lock:
            self.batch_done.notify_all()

    def await_call(self, key: str) -> None:
        """Wait until no other branch has the call under way."""
        with self.lock:
            while self.calls.is_live(key):
                self.batch_done.wait(limits.POLL_SECONDS)

    def await_replay(self, name: str) -> None:
        """Wait for threads that have not come back to their recorded steps of that name."""
        patience = time.monotonic() + limits.REPLAY_PATIENCE_SECONDS
        while self._names and self.has_unclaimed(name) and time.monotonic() < patience:
            time.sleep(limits.POLL_SECONDS)

    def has_unclaimed(self, name: str) -> bool:
        """Return whether a recorded step of that name was not asked for yet."""
        return any(names.own_name(key) == name for key in self.unclaimed)

    def _begin(self, turn: int, first: int, messages: list[tuple[int, Raw]] | None = None) -> None:
        state = self.state
        self.unclaimed = unclaimed_steps(state) if state.steps and turn == state.turn else set[str]()
        self.replaying = bool(self.unclaimed)
        self.views = Views(self.logs, self.log, first, messages, self.agent.states)
        self.unsettled: list[Branch] = []
        self.root = Branch(seen=state.joined(first), turn=turn, is_old=not state.key_space)

    # Its body, which can be abandoned

    def end_body(self) -> None:
        """The agent's function has ended. If it was abandoned, that comes too late."""
        with self.lock:
            if self.abandoned:
                raise self._failed or AssertionError
            self.in_body = False

    def abandon_body(self, take_over: Callable[[], None]) -> bool:
        """Let nothing more be written from here, and another execution take over; False if the body has ended."""
        with self.lock:
            while self._in_flight is not None:
                self.batch_done.wait()
            runs = self.in_body and not self.abandoned and self.state.summary.status == "running"
            if runs:
                take_over()
                self.abandoned = self.careful = True
                self._failed = LeaseLost(f"task {self.log.name!r} continued without this thread, which was abandoned")
            return runs

    def inherit(self, left: Execution) -> None:
        """Take over from an execution whose body was abandoned: what it knew, and what it had not written yet."""
        self._buffer, left._buffer = left._buffer, []
        self.called, self.secrets, self.undoers = left.called, left.secrets, left.undoers
        self.unsettled = left.unsettled
        self.calls.inherit(left.calls)

    # Writing

    def record(self, record: Append) -> Any:
        """Write what immediate verbs recorded and these events, as `Append` says."""
        with self.lock:
            if record.deferred:
                if self.agent.checkpoint != "every_step" and self._is_deferred(record):
                    return "deferred"
                if self._written_alone(record):
                    return True
            entry = PendingWrite(record, self.state.seq)
            if self.ends(record):
                self.end_children(entry)
                self.tell_parent(entry, self.services.foreseen.draft)
            self._queue.append(entry)
            try:
                while not entry.settled:
                    if self._in_flight is not None:
                        self.batch_done.wait()
                    else:
                        self._write_queued()
            finally:
                self.settle_parent(entry)
        return entry.result()

    def _written_alone(self, record: Append) -> bool:
        """The common case, as short as it can be: a result, and no other writer. False if it is not that."""
        if self._queue or self._in_flight is not None or self._failed is not None:
            return False
        try:
            if not self._append_alone(record.events):
                return False
        except Conflict:
            return False
        except BaseException as error:  # whatever it is, also Ctrl-C: it is unknown what was written
            self._broke([], error)
            raise
        self._buffer.clear()
        return True

    def _append_alone(self, results: tuple[Event, ...]) -> bool:
        """Write a result, and what immediate verbs recorded before it; False if that cannot be done here."""
        events = self._ready((*self._buffer, *results)) if self._buffer else results
        self.log.append(events, also=self.linked_logs.writes(events) if self.linked_logs.linked else ())
        return True

    def _is_deferred(self, record: Append) -> bool:
        """Return whether a result is kept for later, as the agent's checkpoint strategy has it."""
        strategy = self.agent.checkpoint
        if self._failed is not None or self._queue:
            return False  # what is queued already, an announcement perhaps, comes first
        said = strategy == "on_state_change" and any(one.branch for one in self._buffer)
        if said or len(self._buffer) >= limits.MAX_BUFFERED_EVENTS:
            return False
        self._buffer += [replace(one, behind=True) for one in record.events]
        if strategy == "before_effects" and self._in_flight is None:
            self.submit_batch()
        return True

    def _write_queued(self) -> None:
        batch, events = self._next_batch()
        if not batch:
            return
        record = batch[0].record
        try:
            if self._failed is not None:
                raise self._failed
            if events:
                events = self._ready(events)
                also = (*self.linked_logs.writes(events, record.heads), *batch[0].also)
                self.log.append(events, unique_keys=record.unique_keys, freed_keys=record.freed_keys, also=also)
        except Conflict as conflict:
            self._catch_up_after_conflict(batch, conflict)
        except KeyTaken as taken:
            batch[0].settle(taken)
        except BaseException as error:  # the same; and those who wait for the batch must hear of it
            self._broke(batch, error)
            raise
        else:
            self._buffer.clear()
            settle(batch)

    def _ready(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events to write: under a new version of the state, the migrated value comes first."""
        states = self.agent.states
        return events if states is None else states.preceded(events, self.state, self.logs.blob)

    def _broke(self, batch: list[PendingWrite], error: BaseException) -> None:
        """A write failed, and perhaps it did not. Nothing is written after it; the log tells when it is read again."""
        self._buffer.clear()
        if isinstance(error, Exception):
            self._failed = error
        settle(batch, error)
        if isinstance(error, LeaseLost):
            late = [one for entry in batch for one in entry.record.events]
            late_results.keep_late(self.logs, self.log.name, self.root.turn, late, ended=self.abandoned)

    def _next_batch(self) -> tuple[list[PendingWrite], list[Event]]:
        """Return the events that can be written together now: writings, and the queued records that still hold."""
        batch: list[PendingWrite] = []
        events = list(self._buffer)
        while self._queue:
            entry = self._queue[0]
            if batch and (entry.alone or batch[-1].alone):
                break
            self._queue.popleft()
            if self._holds(entry, events):
                batch.append(entry)
                events += entry.record.events
        return batch, events

    def _holds(self, entry: PendingWrite, before: Sequence[Event]) -> bool:
        """Return whether a record may still be written as it was decided; if not, its flow decides again."""
        if not entry.record.decided:
            return True
        if entry.record.reads is not None and not self.state.ended:
            if entry.overtaken(self.log.tail or (), before):
                entry.settle(False)
            return not entry.settled  # its flow has looked at the rules; immediate events are not held to them
        try:
            for event in entry.record.events:
                rules.check(self.state, event)
        except (InvalidEvent, TaskFinished) as error:
            moved = self.state.seq != entry.decided_at
            entry.settle(False, None if moved else error)
            return False
        return True

    def _catch_up_after_conflict(self, batch: list[PendingWrite], conflict: Conflict) -> None:
        self._forgive(conflict)
        try:
            self._refused(batch, self._read())
        except BaseException as error:  # a log that cannot be read, or Ctrl-C: those who wait must hear of it
            self._broke(batch, error)
            raise

    def _forgive(self, conflict: Conflict) -> None:  # that its user's log has moved says nothing about its own
        if conflict.details["log"] != self.log.name:
            self._refusals = 0
            self._linked_log_is_gone = conflict.details["actual"] is None

    def _refused(self, batch: list[PendingWrite], rows: list[Stored]) -> None:
        """The log moved on: fold that in. What was decided is decided again, what was done is written after it."""
        self._refusals = 0 if rows else self._refusals + 1
        if self._refusals > limits.MAX_APPEND_TRIES:
            head = self.log.head.seq
            self._broke(batch, Conflict(self.log.name, head, head))
            return
        try:
            self._follow(rows)
        except LeaseLost as lost:
            self._broke([*batch, *self._queue], lost)
            self._queue.clear()
            return
        for entry in reversed(batch):
            if entry.record.decided:
                entry.settle(False)
            else:
                self._queue.appendleft(entry)

    def _read(self) -> list[Stored]:
        """Read the events of other writers. If the log has lost events written here, write no more."""
        if self._failed is not None:
            raise self._failed
        if self._linked_log_is_gone:  # its thread was deleted at the moment the task began
            self._linked_log_is_gone = False
            self.linked_logs.begin_again()
        try:
            return self.logs.news(self.log)
        except (Diverged, LeaseLost) as error:
            self._failed = error
            raise

    def _follow(self, rows: list[Stored]) -> None:
        """Fold in what others have written."""
        self.log.follow(rows, self.log.name)
        over = late_results.lost_to(self.state, rows)
        if over is not None:
            self._failed = over
            raise over

    def announce(self, step: Announced) -> None:
        """Tell others of a step that takes long, from the thread that watches."""
        with contextlib.suppress(LeaseLost, HoldfastError):  # its own thread will meet the same, and act on it
            self.record(Append((step.announcement(),), decided=True))

    def idle(self) -> None:
        """Wait until no thread of the task has anything under way."""
        with self.lock:
            while self.busy:
                self.batch_done.wait()

    @contextlib.contextmanager
    def in_thread(self) -> Generator[None, None, None]:
        """A verb is used in a thread of its own."""
        with self.lock:
            self.busy += 1
        try:
            yield
        finally:
            with self.lock:
                self.busy -= 1
                self.batch_done.notify_all()

    def refresh(self) -> bool:
        """Read what others have written; False if there is nothing new."""
        with self.lock:
            while self._in_flight is not None:
                self.batch_done.wait()
            rows = self._read()
            self._follow(rows)
            return bool(rows)

    def transact(self, work: Callable[[Any], Group], seconds: float | None) -> bool:
        """Let `work` write to the store's own database together with the record it gives; False if the log moved."""
        with self.lock:
            while self._in_flight is not None:
                self.batch_done.wait()
            if self._failed is not None:
                raise self._failed
            return self.transacted(self.transaction(work, seconds))

    def transaction(self, work: Callable[[Any], Group], seconds: float | None) -> Transacted:
        """Carry out a transaction; gives what was written and where, or what others wrote instead."""
        written: list[Write] = []

        def noted(connection: Any) -> Group:
            group = work(connection)
            written.append(group.writes[0])
            return group

        try:
            placed = self.logs.committer.transact(self.log.name, self.log.head, noted, seconds)
        except Conflict as conflict:
            self._forgive(conflict)
            return self._read()
        return written[0], placed[0]

    def transacted(self, done: Transacted) -> bool:
        """Take in what became of a transaction."""
        if isinstance(done, list):
            self._follow(done)
            return False
        self.log.accept(*done)
        return True

    # Writing in the background

    def submit_batch(self) -> None:
        """Hand everything that waits to be written to the committing thread."""
        batch, events = self._next_batch()
        while batch and (self._failed is not None or not events):
            settle(batch, self._failed)
            batch, events = self._next_batch()
        if self._failed is not None or not events:
            return
        record = batch[0].record if batch else Append()
        try:
            events = self._ready(events)
            write = self.log.draft(events, ours=True)
            also = (*self.linked_logs.writes(events, record.heads), *(batch[0].also if batch else ()))
            group = Group((write, *merge_writes(also)), record.unique_keys, record.freed_keys)
        except BaseException as error:  # noqa: BLE001 — it belongs to those who wait for it
            self._broke(batch, error)
            return
        self._in_flight = (batch, self._buffer, write)
        self._buffer = []
        self.send(group)

    def send(self, group: Group) -> None:
        """Write a group, and return what became of it."""
        self.logs.committer.submit(group, self.deliver, self)

    def batch_committed(self, ticket: Ticket) -> None:
        """Take in what became of a batch, and submit the next one."""
        assert self._in_flight is not None
        batch, said, write = self._in_flight
        try:
            placed = ticket.result()
            assert write is not None
            self.log.accept(write, placed[0])
        except Conflict as conflict:
            self._buffer[:0] = said
            self._forgive(conflict)
            self.reread(batch)
            return
        except KeyTaken as taken:
            self._buffer[:0] = said
            batch[0].settle(taken)
        except BaseException as error:  # noqa: BLE001 — it belongs to those who wait for it
            self._broke(batch, error)
        else:
            settle(batch)
        self.submit_next()

    def reread(self, batch: list[PendingWrite]) -> None:
        """A batch was refused because the log moved on. The next write reads why: this thread must not wait."""
        self._queue.extendleft(reversed(batch))
        self._in_flight = None

    def submit_next(self) -> None:
        """Send what has gathered meanwhile."""
        self._in_flight = None
        if self.suspended:
            self._buffer.clear()  # recorded while the suspension was on its way; a replay records it again
        elif self._queue or (self._buffer and self.agent.checkpoint == "before_effects"):
            self.submit_batch()

    def ends(self, record: Append) -> bool:
        """Return whether a record ends the task, and concerns its parent or its children."""
        concerned = self.state.summary.parent is not None or self.state.waits
        return bool(concerned and record.events) and isinstance(record.events[-1], _ENDINGS)

    def end_children(self, entry: PendingWrite) -> None:
        """Add the events that end the children of a task that fails."""
        ending = entry.record.events[-1]
        if isinstance(ending, ev.TaskFailed):
            entry.also += change.children_end(self.logs, self.state, ending.failure)

    def tell_parent(self, entry: PendingWrite, draft: Callable[..., tuple[Write, Foreseen] | None]) -> None:
        """Add the event that wakes the task's parent, drafted by one of the methods of `ForeseenLogs`."""
        parent = self.state.summary.parent
        if parent is not None:
            decide = functools.partial(change.end_of_wait, child=self.log.name, ending=entry.record.events[-1])
            with contextlib.suppress(TaskCollected):
                told = draft(parent, decide)
                if told is not None:
                    entry.also, entry.parent = (*entry.also, told[0]), told[1]

    def settle_parent(self, entry: PendingWrite) -> None:
        """Tell what became of the event for a parent's log."""
        parent, entry.parent = entry.parent, None
        if parent is not None:
            self.services.foreseen.settle(parent, committed=entry.answer is True)

    # Immediate verbs

    def record_immediate(self, branch: Branch, event: Event, condition: Condition | None = None) -> None:
        """An immediate verb: kept until the next durable write, or recognised as recorded before.

        A change under a condition, and what the branch says after it, is kept until its own next waiting verb.
        """
        self.refuse_inside_a_step(verb_of(event, said=True))
        with self.lock:
            state = self.state
            identity = identity_of(branch.mark, event)
            count = branch.immediates.get(identity, 0) + 1
            known = state.immediates if branch.turn == state.turn else state.prelude_immediates
            replayed = count <= known.get(identity, 0)
            if state.undoing and not replayed:
                return
            if state.ended and not replayed:
                raise TaskFinished(state.summary.id, state.summary.status, verb_of(event, said=True))
            which, asked = (identity, count), event
            seen = self.views.of(branch, version_of(event))
            if is_nested(event):
                asked = self.views.unless_older(which, event) if replayed else event
                seen = opened(seen, asked, self.logs.blob)
            rules.check(seen, asked)  # on replay too: what was refused then is refused now
            branch.immediates[identity] = count
            if replayed:
                self.views.again(branch, which, event)
                refused = state.refused.get(refusal_key(branch.turn, *which)) if state.refused else None
                if refused is not None:
                    unsettled(self, branch).refused.append((refused, branch.own))
                return
            self.views.add(branch, event)
            said = replace(event, branch=branch.mark)
            if condition is not None or (branch.unsettled is not None and branch.unsettled.held):
                held = Held(said, refusal_key(branch.turn, *which), branch.own, condition)
                unsettled(self, branch).held.append(held)
            else:
                self._buffer.append(said)

    def refuse_inside_a_step(self, verb: str) -> None:
        """Verbs belong to the agent's body; and after a wait, or when the task is lost, nothing more is done."""
        if self.suspended:
            raise Suspended
        if self._failed is not None:
            raise self._failed
        caller = CALLER.get()
        if caller is not None and caller.call.task_id == self.log.name:
            raise NestedStep(verb, caller.call.step)
        if self.lent is not None:
            self.lent.check()

    def field(self, state: State, name: str) -> Any:
        """Return the value at a path of the task's own state, set or by default; None if there is none."""
        return field_of(self.agent.states, state, name, self.logs.blob)

    def see(self, branch: Branch) -> State:
        """Return a branch's view now; not to be kept."""
        with self.lock:
            return self.views.of(branch)

    def linked_state(self, of: Linked, branch: Branch) -> State:
        """The user's or the thread's state as a branch sees it."""
        with self.lock:
            return self.linked_logs.state(of, self.views.of(branch))

    def messages(self, branch: Branch) -> Conversation:
        """The conversation as far as a branch sees it: the task's own, or its thread's."""
        from holdfast.engine.conversations.call_outcomes import CallOutcomes
        from holdfast.engine.conversations.conversation import Conversation, Counted, Shown

        with self.lock:
            outcomes = CallOutcomes(self.logs, self.log.name, self.value)
            self._counted = self._counted or Counted(self.value, outcomes, self.lock, self.logs.cache.messages)
            logged, settled, said = self.views.messages(branch)
            seen, talk = self.views.of(branch), self.linked_logs.talk
            ref = codec.MessagesRef(self.log.name, seen.messages.count, seen.messages.digest)
            if talk is not None:
                logged, settled = talk.shown(logged, settled, seen.pins)
                ref = talk.ref(logged, settled, said)
            return Conversation(Shown(logged, settled, said, branch.seen), ref, self._counted, seen.summarised)

    def branch_here(self, verb: str, name: str | None = None, *, is_key: bool = False) -> Branch:
        """The branch that uses a verb. A thread is one of its own, and its name must tell it from others.

        A name that is the key of a step may be used by several: one of them does the step.
        """
        if threading.get_ident() == self.thread:
            return self.root
        if not name:
            raise UnnamedThread(verb, "without a name")
        with self.lock:
            if (self.root.turn, name) in self._names and not is_key:
                raise UnnamedThread(verb, f"under the name {name!r}, which another has")
            self._names.add((self.root.turn, name))
            return self.root.child(name)

    # Undoing

    def undoing(self, one: Undo) -> StepRequest:
        """The step that undoes something."""
        found = self.undoers.get(one.name)
        if self.state.mock:
            return mocks.undo_request(found, one, self.log.name, self.value, self.mocks)
        if found is None:
            raise InvalidValue(
                f"{one.step or one.name!r} can't be undone: {one.name!r} is not known here",
                hint=f"declare it: @agent(tools=[…]) on {self.agent.name!r}, and resume the task",
            )
        return undo_request(found, one, self.log.name, self.value)

    def value(self, raw: Any) -> Any:
        """Decode a value of the log."""
        return codec.unpack(raw, self.logs.blob)


def _deliver(tickets: Sequence[Ticket]) -> None:
    """Take in, from the committing thread, what became of groups."""
    for ticket in tickets:
        execution = cast("Execution", ticket.waiter)
        with execution.lock:
            execution.batch_committed(ticket)
            execution.batch_done.notify_all()
