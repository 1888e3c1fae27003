"""Several flows at once: each in a branch of its own, their outcomes in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Raw, Struct

from holdfast.core import limits
from holdfast.core.errors import StoreError
from holdfast.core.flows import step
from holdfast.core.flows.requests import Branch, Park, StepRequest, Subflow
from holdfast.core.flows.waits import together
from holdfast.engine.definitions.signature import Parameters
from holdfast.engine.drivers.abandonable import ThreadCall
from holdfast.engine.drivers.driver import ANSWERS, THREADS, Parked, drive
from holdfast.engine.execution.execution import Execution


class NamedFlow(Struct, frozen=True):
    """A flow and the name that its key begins with."""

    name: str
    flow: Callable[[Execution, Branch], Subflow]


Work = StepRequest | NamedFlow
"""Something to be done in a branch of its own: a step, or any flow."""

Outcome = Any
"""A value, or the exception that came instead."""


class Piece:
    """One of several flows: its branch, and what became of it."""

    def __init__(self, execution: Execution, branch: Branch, work: Work) -> None:
        self.branch = branch
        self.flow = (
            step.step(execution, branch, work) if isinstance(work, StepRequest) else work.flow(execution, branch)
        )
        self.parked: Park | None = None
        self.done = False
        self.outcome: Outcome = None

    def go_on(self, execution: Execution) -> None:
        """Drive it until it ends or has to wait."""
        flow, self.parked = self.flow, None
        self.flow = _resumable(flow)
        try:
            self.outcome, self.done = drive(self.flow, execution), True
        except Parked as parked:
            self.parked, self.flow = parked.asked, flow
        except Exception as error:  # noqa: BLE001 — raised in the agent when all have come to an end
            self.outcome, self.done = error, True


def _resumable(flow: Subflow) -> Subflow:
    """A flow that can be left at a wait and taken up again there."""
    try:
        asked = flow.send(None)
        while True:
            try:
                answer = yield asked
            except Parked:
                raise
            except BaseException as error:  # noqa: BLE001 — the flow decides what it means
                asked = flow.throw(error)
            else:
                asked = flow.send(answer)
    except StopIteration as done:
        return done.value


def parts(execution: Execution, branch: Branch, works: Sequence[Work]) -> list[Piece]:
    """A branch for each piece of work, numbered in their order. They all ask for their recorded steps at once."""
    pieces = [Piece(execution, branch.child(), work) for work in works]
    if execution.unclaimed:
        for piece, work in zip(pieces, works, strict=True):
            execution.claim(f"{piece.branch.path}/{work.name}#1")
    return pieces


def in_threads(execution: Execution, pieces: Sequence[Piece], limit: int) -> list[Outcome]:
    """Drive pieces in threads, some at a time. If one must wait, the task does, when all others have ended or wait."""
    while left := [piece for piece in pieces if not piece.done]:
        _in_threads(execution, left, limit)
        looked = execution.state.seq
        waits = [piece.parked for piece in left if piece.parked is not None]
        if waits and all(wait.looked == looked for wait in waits):
            ANSWERS[Park](together(waits, looked), execution)
    return [piece.outcome for piece in pieces]


def _in_threads(execution: Execution, pieces: Sequence[Piece], limit: int) -> None:
    """Drive each piece until it ends or waits. While others work, one that waits is woken when the log moves."""
    queue = list(reversed(pieces))
    working: set[Piece] = set()
    guard = threading.Lock()

    def take() -> Piece | None:
        with guard:
            parked = (one for one in pieces if one.parked is not None and one.parked.looked != execution.state.seq)
            piece = queue.pop() if queue else next(parked, None)
            if piece is not None:
                piece.parked = None
                working.add(piece)
            return piece

    def serve() -> None:
        with execution.in_thread():
            while True:
                piece = take()
                if piece is not None:
                    try:
                        piece.go_on(execution)
                    finally:
                        working.discard(piece)
                elif working and any(one.parked is not None for one in pieces):
                    time.sleep(limits.FOLLOW_SECONDS)
                    execution.refresh()
                else:
                    return

    calls = [THREADS.start(ThreadCall(serve)) for _ in range(min(limit, len(pieces)))]
    for call in calls:
        call.wait(None)
    for call in calls:
        call.value()


def join_results(
    branch: Branch, pieces: Sequence[Piece], outcomes: Sequence[Outcome], value: Callable[[Raw], Any]
) -> list[Any]:
    """Outcomes as values; the branch that waited for them sees as far as they do."""
    for piece in pieces:
        if piece.branch.seen > branch.seen:
            branch.see(piece.branch.seen)
    return [outcome if isinstance(outcome, Exception) else value(outcome) for outcome in outcomes]


def results(outcomes: Sequence[Outcome], parameters: Parameters) -> list[Any]:
    """Return the results in order. The first failure is raised, and a broken store before it."""
    wrong = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if wrong:
        raise next((error for error in wrong if isinstance(error, StoreError)), wrong[0])
    return [parameters.result(outcome) for outcome in outcomes]
