"""Budgets as a flow: nothing begins that a budget does not allow."""

from __future__ import annotations

from holdfast.core import events as ev
from holdfast.core.errors import BudgetExceeded, UnknownPrice
from holdfast.core.events import Usage
from holdfast.core.flows.requests import Now, Park, ReadPayers, StepRequest, Subflow, Surroundings
from holdfast.core.state import budget
from holdfast.core.state.shapes import State


def within_budget(surroundings: Surroundings, key: str, request: StepRequest | None) -> Subflow:
    """Continue if a step, or without one a turn, may begin. Otherwise fail, or wait for a higher budget."""
    what = "turn" if request is None else "call" if request.tool else "step"
    estimate = None if request is None else request.estimate
    while (surroundings.state.budget is not None or surroundings.state.payers) and not surroundings.state.undoing:
        looked = surroundings.state.seq
        now_us: int = yield Now()
        paying = [
            surroundings.state,
            *((yield ReadPayers(surroundings.state.payers)) if surroundings.state.payers else ()),
        ]
        _refuse_unpriced(
            surroundings, estimate, [state for state in paying if state.budget is not None and state.budget.cost]
        )
        others = [one for other, one in surroundings.underway.items() if other != key]
        found = (
            budget.reached(state, now_us, what, estimate, child=state is not surroundings.state, underway=others)
            for state in paying
        )
        over = next((one for one in found if one is not None), None)
        if over is None:
            if request is not None:
                surroundings.underway[key] = budget.Underway(bool(request.tool), estimate)
            return
        if not over.ask:
            raise BudgetExceeded(over.task, over.limit, over.used, over.of, over.ahead)
        blocker = ev.Blocker("budget", over.task, over.limit, over.used, over.of, over.ahead)
        yield Park("budget", looked, surroundings.state.summary.deadline_us, blockers=(blocker,))


def _refuse_unpriced(surroundings: Surroundings, estimate: Usage | None, in_money: list[State]) -> None:
    """Money cannot be counted without a price: neither what is ahead, nor what was answered."""
    unknown = next((state.spent.unpriced for state in in_money if state.spent.unpriced), "")
    if in_money and estimate is not None and estimate.model and surroundings.priced(estimate).cost is None:
        unknown = estimate.model
    if unknown:
        raise UnknownPrice(unknown)
