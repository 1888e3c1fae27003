"""Budgets as a flow: nothing begins that a budget does not allow."""

from __future__ import annotations

from holdfast.core import budget
from holdfast.core.events import Usage
from holdfast.core.state_errors import BudgetExceeded, UnknownPrice
from holdfast.core.wishes import Desk, Now, Park, Part, Payers, Want


def within_budget(desk: Desk, want: Want | None) -> Part:
    """Go on if a step, or without one a turn, may begin. Otherwise fail, or wait until somebody allows more."""
    what = "turn" if want is None else "call" if want.tool else "step"
    estimate = None if want is None else want.estimate
    while (desk.hot.budget is not None or desk.hot.payers) and not desk.hot.undoing:
        now_us: int = yield Now()
        payers = desk.hot.payers if what == "call" or estimate is not None else ()
        paying = [desk.hot, *((yield Payers(payers)) if payers else ())]
        if estimate is not None:
            _refuse_unpriced(desk, estimate, any(hot.budget is not None and hot.budget.cost for hot in paying))
        found = (budget.reached(hot, now_us, what, estimate, child=hot is not desk.hot) for hot in paying)
        over = next((one for one in found if one is not None), None)
        if over is None:
            return
        if not over.ask:
            raise BudgetExceeded(over.task, over.limit, over.used, over.of, over.ahead)
        yield Park("budget")


def _refuse_unpriced(desk: Desk, estimate: Usage, in_money: bool) -> None:
    if in_money and estimate.model and estimate.cost is None and desk.priced(estimate).cost is None:
        raise UnknownPrice(estimate.model)
