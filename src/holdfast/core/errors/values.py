"""Errors about typed state, templates and budgets."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors.base import HoldfastError
from holdfast.core.errors.tasks import InvalidValue


class InvalidState(InvalidValue):
    """A value does not fit the model of the state; says where."""

    code = "invalid-state"

    def __init__(self, path: str, why: str, *, hint: str, **details: Any) -> None:
        super().__init__(f"{path} {why}", hint=hint, path=path, **details)


class StateNotMigrated(InvalidState):
    """The state is of another version than the agent's, and cannot become it."""

    code = "state-not-migrated"

    def __init__(self, why: str, *, hint: str, path: str = "state", **details: Any) -> None:
        super().__init__(path, why, hint=hint, **details)


class InvalidTemplate(InvalidValue):
    """A template cannot be read."""

    code = "invalid-template"


class UnknownName(InvalidTemplate):
    """A template names something that is not there."""

    code = "unknown-name"

    def __init__(self, name: str, why: str, *, hint: str, **details: Any) -> None:
        super().__init__(f"{{{name}}} {why}", hint=hint, name=name, **details)


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
