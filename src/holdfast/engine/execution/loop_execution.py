"""A task on an event loop: its branches share one writer, park without raising, and never block the loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from holdfast.core import limits
from holdfast.core.codec import Group, Stored
from holdfast.core.errors import (
    Cancelled,
    LeaseLost,
    NestedStep,
    Stopped,
    StoreError,
    Suspended,
    TaskCollected,
    UnnamedThread,
)
from holdfast.core.events import Event, TaskFailed
from holdfast.core.flows.requests import Append, Branch, Park
from holdfast.core.flows.stops import out_of_time
from holdfast.core.flows.waits import suspended, together
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.call import current_call, in_body
from holdfast.engine.execution.awaitable import not_awaited
from holdfast.engine.execution.branches import (
    BranchPlace,
    Deliveries,
    branch_numbers,
    current_place,
    outside_context,
    stands_for,
)
from holdfast.engine.execution.execution import Announced, Execution, Services, Transacted
from holdfast.engine.execution.pending import PendingWrite, Stop, settle
from holdfast.engine.logs.committer import Ticket
from holdfast.engine.logs.log import Log
from holdfast.engine.logs.logs import Logs
from holdfast.engine.logs.loop_commits import delivery_to
from holdfast.engine.system import ending
from holdfast.engine.system.exits import Exited, caught

# Until Python 3.12, `asyncio.wait_for` makes an asyncio task of what it waits for. A task may begin in one Python and
# resume in another, so this asyncio task is not a branch: it stands in for the one that waits.


GONE = -1
"""What a branch has looked at that never looks again."""


class ParkedBranch(NamedTuple):
    """A branch that waits: for what, and in which asyncio task."""

    asked: Park
    owner: object


class LoopExecution(Execution):
    """The work on one claimed task by an async agent. Used on its event loop only."""

    __slots__ = (
        *("_gathering", "_next_refresh", "_refreshing"),
        *("_began_at", "_call_waiters", "_closing", "_cutting", "_idle", "_listening", "_loop", "_made_deliveries"),
        *(
            "_over",
            "_parked",
            "_root",
            "_settling",
            "_tasks",
            "_yields_at",
            "acting",
            "active",
            "branched",
            "cut_off",
            "drive",
        ),
        *("drive_all", "future", "is_cut", "start_body", "started", "time", "unawaited"),
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
        super().__init__(logs, log, agent, services, mocks=mocks, hold=hold, stop=stop)
        self._loop = asyncio.get_running_loop()
        self.deliver = delivery_to(self._loop)
        self.future = self._loop.create_future
        self.time = self._loop.time
        self.acting: dict[Any, asyncio.Task[Any] | None] = {}
        self.cut_off: set[Any] = set()
        self._cutting: asyncio.Task[None] | None = None
        self.is_cut = False
        self.unawaited: dict[int, str] = {}
        self.start_body: Callable[[], Coroutine[Any, Any, Any]] | None = None
        self.drive: Any = None
        self.drive_all: Any = None
        self.active = 0
        self._parked: dict[asyncio.Future[None], ParkedBranch] = {}
        self._listening: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._over: BaseException | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._settling: asyncio.TimerHandle | None = None
        self._root: asyncio.Task[Any] | None = None
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.started: weakref.WeakSet[asyncio.Task[Any]] | None = None
        self.branched = False
        self._began_at = log.head.seq
        self._made_deliveries: Deliveries | None = None
        self._call_waiters: list[asyncio.Future[None]] = []
        self._yields_at = 0.0
        self._gathering = False
        self._refreshing: asyncio.Task[None] | None = None
        self._next_refresh: asyncio.Task[None] | None = None

    # Branches

    def branch_here(self, verb: str, name: str | None = None, *, is_key: bool = False) -> Branch:
        """The branch of the asyncio task that uses a verb; a new one if it is its first."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            call = current_call()
            if call is not None:
                raise NestedStep(verb, call.step) from None
            raise UnnamedThread(verb, "outside the event loop") from None
        here = current_place.get()
        if here is None or here.execution is not self:
            here = BranchPlace(self, self.root, self.root.seen, self.root.own)
        if here.branch.owner is task:
            return here.branch
        if task is not None and here.branch.owner is stands_for(task):
            self._tasks.add(task)
            return here.branch
        if here.branch.turn != self.root.turn:
            raise Suspended  # a branch that outlived its turn
        if here.branch.owner is None and here.branch is not self.root:
            self._own(here.branch)  # its first verb
            return here.branch
        branch = here.branch.child(seen=here.seen, own=here.own)
        self.branched = True
        self._own(branch)
        return branch

    def born(self, here: BranchPlace) -> BranchPlace:
        """Return the start of an asyncio task: in a branch of its own, numbered in the order of starts."""
        parent, seen, own = here.branch, here.seen, here.own
        if parent.owner is not None and parent.owner is stands_for(asyncio.current_task()):
            seen, own = parent.seen, parent.own  # one that stood in for it may be further by now
        branch = parent.child(seen=seen, own=own)
        self.branched = True
        return BranchPlace(self, branch, branch.seen, branch.own)

    def _own(self, branch: Branch) -> None:
        task = asyncio.current_task()
        branch.owner = stands_for(task)
        if task is not None:
            self._tasks.add(task)
        self.moved(branch)

    def moved(self, branch: Branch) -> None:
        """Remember where this task is, for those it starts."""
        if self._loop.is_closed():
            return  # its coroutine is thrown away, in whichever context runs then
        current_place.set(BranchPlace(self, branch, branch.seen, branch.own))

    def is_on_loop(self) -> bool:
        """Return whether this is the event loop that the task runs on."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def recorded_value(self, name: str) -> Any:
        """Return what the next step of that name gave in the branch that asks, if it is recorded."""
        branch = self.branch_here(name)
        known = self.state.steps_of(branch.turn).get(branch.next_key(name))
        return None if known is None or not known.done else self.value(known.result)

    # The order of results

    @property
    def _deliveries(self) -> Deliveries:
        """The order of results, which only agents with several branches need."""
        if self._made_deliveries is None:
            self._made_deliveries = Deliveries(self._loop)
        return self._made_deliveries

    def begin_task(self, task: asyncio.Task[Any]) -> None:
        """Remember an asyncio task that the agent has started."""
        if self.started is None:
            self.started = weakref.WeakSet()
        self.started.add(task)

    def claim(self, key: str) -> None:
        """Take a recorded step as asked for. The replay is over when every branch was given its result."""
        self.unclaimed.discard(key)
        if not self.unclaimed and not self.branched:
            self.replaying = False

    def claim_branches(self, parent: Branch, numbers: range) -> None:
        """Take every recorded step of some branches as asked for: they lost a race, and don't come back."""
        paths = [f"{parent.path}/~{number}/" if parent.path else f"~{number}/" for number in numbers]
        for key in [one for one in self.unclaimed if one.startswith(tuple(paths))]:
            self.claim(key)

    async def in_turn(self, seq: int) -> None:
        """Wait until it is time for a branch to be given the result at that seq."""
        if seq > self._began_at and not self.linked_logs.linked and self._deliveries.now():
            return
        self.active += 1
        try:
            await self._deliveries.in_turn(seq)
        finally:
            self.leave()
        if self.replaying and not self.unclaimed:
            next_seq = self._deliveries.next_seq
            self.replaying = next_seq is not None and next_seq <= self._began_at

    async def await_replay_async(self, name: str) -> None:
        """Wait until other branches have their recorded results, and have come back to their steps of that name.

        Branches that wait for something else than a verb get time too, but not for ever.
        """
        await self._deliveries.idle()
        patience = self.time() + limits.REPLAY_PATIENCE_SECONDS
        while self.has_unclaimed(name) and self._others_may_move() and self.time() < patience:
            await asyncio.sleep(limits.POLL_SECONDS)
            await self._deliveries.idle()
        if not self.unclaimed:
            self.replaying = False

    def _others_may_move(self) -> bool:
        current = asyncio.current_task()
        return any(
            one is not current and not one.done() for one in (self._root, *(self.started or ())) if one is not None
        )

    def call_ended(self) -> None:
        waiters, self._call_waiters = self._call_waiters, []
        for one in waiters:
            resolve(one)

    async def await_call_async(self, key: str) -> None:
        """Wait until no other branch has the call under way. It may park, so this one does not count as active."""
        while self.calls.is_live(key):
            ended: asyncio.Future[None] = self.future()
            self._call_waiters.append(ended)
            self.leave()
            try:
                await ended
            finally:
                self.active += 1

    # Writing

    async def write(self, record: Append) -> Any:
        """Write a record together with whatever other branches want written."""
        if record.deferred:
            if self.agent.checkpoint != "every_step" and self._is_deferred(record):
                return "deferred"
            if self.active == 1 and not self._gathering and self._written_alone(record):
                await self._let_others_run()
                return True
        entry = PendingWrite(record, self.state.seq)
        if self.ends(record):
            await self._tell_relatives(entry)
        self._queue.append(entry)
        if self._in_flight is None and not self._gathering:
            if self.active > 1:
                self._gathering = True
                self._loop.call_soon(self._submit_gathered)
            else:
                self.submit_batch()
        if not entry.settled:
            written: asyncio.Future[Any] = self.future()
            entry.tell = lambda done: self._written(done, written)
            await written
        else:
            await self._let_others_run()
        self.settle_parent(entry)
        if self.linked_logs.is_stale:
            await asyncio.to_thread(self.linked_logs.reread)
        return entry.result()

    def _append_alone(self, results: tuple[Event, ...]) -> bool:
        """An event loop may not block, so this is for a result by itself."""
        if self.logs.committer.must_wait or len(results) != 1 or self._buffer or self.linked_logs.linked:
            return False
        return self.log.append_at_once(results[0])

    async def _let_others_run(self) -> None:
        """Let other tasks on the loop run now and then, though it never had to wait."""
        if self.time() > self._yields_at:
            await asyncio.sleep(0)
            self._yields_at = self.time() + limits.YIELD_SECONDS

    async def _tell_relatives(self, entry: PendingWrite) -> None:
        """Add what goes to other logs with a task's end. Nothing is awaited between the parent's draft and its commit.

        Else drafts that follow each other would be committed in another order.
        """
        if type(entry.record.events[-1]) is TaskFailed:
            await asyncio.to_thread(self.end_children, entry)
        foreseen, parent = self.services.foreseen, self.state.summary.parent
        try:
            self.tell_parent(entry, foreseen.draft_at_once)
        except BlockingIOError:
            with contextlib.suppress(TaskCollected):
                fresh = await asyncio.to_thread(foreseen.read, parent or "")
                self.tell_parent(entry, functools.partial(foreseen.draft_at_once, fresh=fresh))

    def _submit_gathered(self) -> None:
        """Write together what the branches that run now want written."""
        self._gathering = False
        if self._in_flight is None:
            self.submit_next()

    def _written(self, entry: PendingWrite, waiting: asyncio.Future[Any]) -> None:
        """Tell the code that waits, which may be cancelled already, and the parent."""
        self.settle_parent(entry)
        resolve(waiting)

    def send(self, group: Group) -> None:
        """Write here if no wait is needed, else by the committing thread."""
        if self.logs.committer.must_wait:
            super().send(group)
            return
        ticket = Ticket(group)
        try:
            ticket.outcome = self.logs.committer.commit_at_once(group)
        except BaseException as error:  # noqa: BLE001 — it belongs to those who wait for it
            ticket.error = error
        if ticket.outcome is None and ticket.error is None:
            super().send(group)
        else:
            self.batch_committed(ticket)

    def submit_next(self) -> None:
        """Send what has gathered meanwhile. After a suspension nothing is written: what still wanted to write stops."""
        super().submit_next()
        if self.suspended:
            late = list(self._queue)
            self._queue.clear()
            settle(late, Suspended())

    def reread(self, batch: list[PendingWrite]) -> None:
        """The log moved on: read it in a thread, then decide again."""
        reading = self._loop.run_in_executor(None, self._read)

        def read(done: asyncio.Future[list[Stored]]) -> None:
            try:
                self._refused(batch, done.result())
            except (Exception, LeaseLost) as error:  # noqa: BLE001 — it belongs to those who wait
                self._broke(batch, error)
            self.submit_next()

        reading.add_done_callback(read)

    async def refresh_async(self) -> None:
        """Fold in what others have written."""
        while True:
            head = self.log.head
            rows = await asyncio.to_thread(self._read)
            if self.log.head is head and self._in_flight is None:
                self._follow(rows)
                return
            await asyncio.sleep(0.001)

    async def refresh_together(self) -> None:
        """Fold in what others have written. Branches that ask meanwhile share the next reading."""
        if self._next_refresh is None:
            refreshing = self._refresh_after(self._refreshing)
            self._next_refresh = self._loop.create_task(refreshing, context=outside_context())
        await asyncio.shield(self._next_refresh)

    async def _refresh_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._refreshing, self._next_refresh = self._next_refresh, None
        await self.refresh_async()

    async def transact_async(self, work: Callable[[Any], Group], seconds: float | None) -> bool:
        """`transact`, in a thread. Nothing else of the task is written meanwhile, even if the wait is over."""
        while self._in_flight is not None:
            await asyncio.sleep(0.001)
        self._in_flight = ([], [], None)
        job = self._loop.create_task(asyncio.to_thread(self.transaction, work, seconds), context=outside_context())
        result: asyncio.Future[bool] = self.future()

        def done(job: asyncio.Future[Transacted]) -> None:
            try:
                moved = self.transacted(job.result())
            except BaseException as error:  # noqa: BLE001 — it belongs to the call
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(moved)
            self.submit_next()

        job.add_done_callback(done)
        return await result

    # Waiting, without anybody noticing

    def enter(self) -> bool:
        """A verb begins; False if the task is just being suspended, and it is not yet sure."""
        if self.suspended or self._over is not None:
            raise Suspended
        if self._closing is not None:
            return False
        self.active += 1
        return True

    async def enter_later(self) -> None:
        """A verb begins when it is sure that the task continues."""
        while not self.enter():
            assert self._closing is not None
            await asyncio.shield(self._closing)

    def leave(self) -> None:
        """A verb has ended."""
        self.active -= 1
        self._look()

    async def park(self, asked: Park) -> None:
        """Wait until the log moves, until a time, or until the task is stopped because nothing comes."""
        if asked.looked != self.state.seq:
            return
        parked: asyncio.Future[None] = self.future()
        self._parked[parked] = ParkedBranch(asked, asyncio.current_task())
        timer = self._at(asked.wake_us, parked)
        if self._listening is None:
            self._listening = self._loop.create_task(self._listen(), context=outside_context())
        self.leave()
        try:
            await parked
        finally:
            self._parked.pop(parked, None)
            self.active += 1
            if timer is not None:
                timer.cancel()

    def _at(self, wake_us: int | None, parked: asyncio.Future[None]) -> asyncio.TimerHandle | None:
        """Let a parked branch look again when its time has come, should others still work then."""
        left = None if wake_us is None else (wake_us - self.logs.clock.now_us()) / 1_000_000
        if left is None or left > self.hold:
            return None
        return self._loop.call_later(max(left, limits.FOLLOW_SECONDS), resolve, parked)

    async def _listen(self) -> None:
        """Read what others write while branches are parked and others work: parked ones are woken at once."""
        try:
            while self._parked and not self.suspended and self._over is None:
                await asyncio.sleep(limits.FOLLOW_SECONDS)
                if self.active and self._parked and self._closing is None:
                    await self.refresh_async()
        except (Exception, LeaseLost) as error:  # noqa: BLE001 — the next write meets the same, and acts on it
            self._failed = self._failed or (error if isinstance(error, StoreError | LeaseLost) else None)
        finally:
            self._listening = None

    def _follow(self, rows: list[Stored]) -> None:
        super()._follow(rows)
        if rows:
            self._look_again()

    def _look_again(self) -> bool:
        """Let branches look that were parked before the log last moved; whether there are any."""
        seq = self.state.seq
        known = (seq, GONE)
        stale = [one for one, branch in self._parked.items() if branch.asked.looked not in known and not one.done()]
        for one in stale:
            one.set_result(None)
        return bool(stale)

    async def give_up(self, error: BaseException) -> None:
        """The whole task ends once nothing is in flight: no branch is interrupted, and `gather` sees nothing of it."""
        self._over = self._over or error
        over: asyncio.Future[None] = self.future()
        self._parked[over] = ParkedBranch(Park("timer", GONE), asyncio.current_task())
        self.leave()
        try:
            await over
        finally:
            self._parked.pop(over, None)
            self.active += 1

    # Cutting what is under way

    @property
    def execution(self) -> LoopExecution:
        """Itself, as something that is watched."""
        return self

    @property
    def is_over(self) -> bool:
        """True if the whole task ends, whatever its branches do."""
        return self._over is not None

    def cut(self) -> None:
        """End the task if its time is over, or it was cancelled. Called from the thread that watches."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: nothing runs there
            self._loop.call_soon_threadsafe(self._cut_soon)

    def _cut_soon(self) -> None:
        if self._cutting is None and self._root is not None and not self._root.done() and not self.suspended:
            self._cutting = self._loop.create_task(self._cut(), context=outside_context())
            self._cutting.add_done_callback(self._cut_ended)

    def _cut_ended(self, done: asyncio.Task[None]) -> None:
        self._cutting = None
        if not done.cancelled():
            done.exception()  # a store that is away, or a lost task: the next write meets the same, and acts on it

    async def _cut(self) -> None:
        """Find out why; cut off steps under way; then be one more branch, which waits for the end."""
        await self.refresh_async()
        over = self._why_over()
        if over is None or self.suspended:
            return
        self.is_cut = self.careful = True
        for step, task in list(self.acting.items()):
            if task is not None and step not in self.cut_off:
                self.cut_off.add(step)
                task.cancel()
        self.active += 1
        try:
            with contextlib.suppress(Suspended):
                await (self.park(over) if isinstance(over, Park) else self.give_up(over))
        finally:
            self.is_cut = False
            self.leave()

    def _why_over(self) -> BaseException | Park | None:
        state, now_us = self.state, self.sleeps.now_us()
        if state.cancel is not None and not state.undoing:
            return Cancelled()
        over = out_of_time(state, now_us)
        if over is None and not state.undoing:
            self.stop.ask_at(now_us)
        return Stopped() if over is None and self.stop.asked else over

    def _look(self) -> None:
        """If nothing is in flight, tell who waits for that; and if something is parked, suspend soon."""
        if self.active:
            return
        if self._idle:
            for one in self._idle:
                resolve(one)
            self._idle.clear()
        elif self._parked and self._settling is None and self._closing is None and not self.suspended:
            self._settling = self._loop.call_later(limits.PARK_GRACE_SECONDS, self._suspend)

    def _suspend(self) -> None:
        self._settling = None
        if self.active or not self._parked or self.suspended:
            return
        if self._over is not None:
            self._stop_branches(10)
            return
        if self._look_again():
            return
        wait = together([one.asked for one in self._parked.values()], self.state.seq)
        self._closing = self.future()
        entry = PendingWrite(Append((suspended(wait),), decided=True), self.state.seq)
        entry.tell = self._suspended
        self._queue.append(entry)
        if self._in_flight is None:
            self.submit_batch()

    def _suspended(self, entry: PendingWrite) -> None:
        """Either nothing more happens here, or what came meanwhile lets the parked ones look again."""
        closing, self._closing = self._closing, None
        if closing is not None:
            closing.set_result(None)
        self.suspended = entry.error is None and entry.answer is True
        mine = {self._root, *self._tasks}
        for parked, branch in list(self._parked.items()):
            owner = branch.owner
            if parked.done():
                continue
            if entry.error is not None:
                parked.set_exception(entry.error)
            elif not self.suspended:
                parked.set_result(None)
            elif owner not in mine:
                parked.set_exception(Suspended())
        if self.suspended:
            self._stop_branches(10)

    def _stop_branches(self, times: int) -> None:
        """Stop the root and what it started. An agent that will not be stopped is asked again."""
        left = [task for task in (self._root, *self._tasks) if task is not None and not task.done()]
        for task in left:
            task.cancel()
        if left and times:
            self._loop.call_later(limits.STOP_SECONDS / 10, self._stop_branches, times - 1)

    async def idle_async(self) -> None:
        """Wait until no branch has anything under way; those that wait for others are given up."""
        self.active -= 1
        try:
            while self.active:
                standing_still: asyncio.Future[None] = self.future()
                self._idle.append(standing_still)
                await standing_still
            current = asyncio.current_task()
            left = [task for task in self._tasks if not task.done() and task is not current and task is not self._root]
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=limits.STOP_SECONDS)
        finally:
            self.active += 1

    async def body_async(self) -> Any:
        """Let the agent's own function run, as a task that can be stopped."""
        assert self.start_body is not None
        branch_numbers.watch(self._loop)
        self._root = self._loop.create_task(self._as_root(self.start_body), context=outside_context())
        self.active -= 1
        self._look()
        try:
            result = await self._root
            if type(result) is Exited:
                raise result.error
        except BaseException as error:  # whatever the agent raises: first comes what stopped it, if it swallowed that
            self._raise_if_over()
            ending.refuse(error, self.log.name)
            raise
        finally:
            self.active += 1
            if self._cutting is not None:
                self._cutting.cancel()
        self._raise_if_over()
        if self.unawaited:
            raise not_awaited(next(iter(self.unawaited.values())))
        if self.lent is not None:
            self.lent.check()
        return result

    def _raise_if_over(self) -> None:
        """Whatever came of the agent's function after it was stopped does not count."""
        if self.suspended:
            raise Suspended from None
        if self._over is not None:
            over, self._over = self._over, None
            raise over from None

    async def _as_root(self, body: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        self._own(self.root)
        with in_body(self.task), self.task.refusals.ended():
            return await caught(body())

    def announce(self, step: Announced) -> None:
        """Tell others of a step that takes long, from the thread that watches."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: nothing runs there
            self._loop.call_soon_threadsafe(self._announce, step)

    def _announce(self, step: Announced) -> None:
        if step in self.acting and not self.suspended:
            self._queue.append(PendingWrite(Append((step.announcement(),)), self.state.seq))
            if self._in_flight is None:
                self.submit_batch()

    def tell(self, answered: asyncio.Future[None]) -> None:
        """Resolve a future from another thread."""
        try:
            self._loop.call_soon_threadsafe(resolve, answered)
        except RuntimeError:
            return  # the loop is gone, and so is the waiting code


def resolve(future: asyncio.Future[Any]) -> None:
    """Wake the waiting code, if it still waits."""
    if not future.done():
        future.set_result(None)
