"""Budgets as a flow: nothing begins that a budget does not allow."""

from __future__ import annotations

from holdfast.core.errors import BudgetExceeded, UnknownPrice
from holdfast.core.events import Usage
from holdfast.core.flows.requests import Desk, Now, Park, Part, Payers, Want
from holdfast.core.state import budget
from holdfast.core.state.shapes import Hot


def within_budget(desk: Desk, key: str, want: Want | None) -> Part:
    """Go on if a step, or without one a turn, may begin. Otherwise fail, or wait until somebody allows more."""
    what = "turn" if want is None else "call" if want.tool else "step"
    estimate = None if want is None else want.estimate
    while (desk.hot.budget is not None or desk.hot.payers) and not desk.hot.undoing:
        now_us: int = yield Now()
        paying = [desk.hot, *((yield Payers(desk.hot.payers)) if desk.hot.payers else ())]
        _refuse_unpriced(desk, estimate, [hot for hot in paying if hot.budget is not None and hot.budget.cost])
        others = [one for other, one in desk.underway.items() if other != key]
        found = (
            budget.reached(hot, now_us, what, estimate, child=hot is not desk.hot, underway=others) for hot in paying
        )
        over = next((one for one in found if one is not None), None)
        if over is None:
            if want is not None:
                desk.underway[key] = budget.Underway(bool(want.tool), estimate)
            return
        if not over.ask:
            raise BudgetExceeded(over.task, over.limit, over.used, over.of, over.ahead)
        yield Park("budget", desk.hot.summary.deadline_us)


def _refuse_unpriced(desk: Desk, estimate: Usage | None, in_money: list[Hot]) -> None:
    """Money cannot be counted without a price: neither what is ahead, nor what was answered."""
    unknown = next((hot.spent.unpriced for hot in in_money if hot.spent.unpriced), "")
    if in_money and estimate is not None and estimate.model and desk.priced(estimate).cost is None:
        unknown = estimate.model
    if unknown:
        raise UnknownPrice(unknown)
