"""Errors of budgets; they belong to the tree that `errors` draws."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError


class BudgetExceeded(HoldfastError):
    """A task, or one that pays for it, has used up what it may."""

    code = "budget-exceeded"

    def __init__(self, id: str, limit: str, used: float, of: float, ahead: float = 0) -> None:
        more = f", and the next step takes {ahead:,.6g}" if ahead and used < of else ""
        super().__init__(
            f"task {id!r} has used {used:,.6g} of {of:,.6g} {limit}{more}",
            hint=f"app.raise_budget({id!r}, Budget({limit}=…)), then resume it",
            id=id,
            limit=limit,
            used=used,
            of=of,
        )


class UnknownPrice(HoldfastError):
    """A budget of money cannot be kept for a model without a price."""

    code = "unknown-price"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"nobody knows the price of model {model!r}, and the budget is in money",
            hint=f"open(…, prices={{{model!r}: Price(input=…, output=…)}}), or install the extra 'prices'",
            model=model,
        )
