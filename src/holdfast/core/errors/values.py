"""Errors about typed state, templates and budgets."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors.base import HoldfastError


class InvalidValue(HoldfastError):
    """An argument is not what it must be."""

    code = "invalid-value"


class InvalidInput(InvalidValue):
    """Arguments do not fit the function they are for."""

    code = "invalid-input"


class InvalidId(InvalidValue):
    """An id has characters or a length that is not allowed."""

    code = "invalid-id"


class InvalidMessage(InvalidValue):
    """A message has a form that no provider accepts."""

    code = "invalid-message"


class WindowTooSmall(InvalidValue):
    """The messages that must stay do not fit into the limit."""

    code = "window-too-small"


class InvalidUrl(InvalidValue):
    """The store's address is not understood."""

    code = "invalid-url"


class WebOpen(InvalidValue):
    """The page would be open to other machines: it needs a login and encryption."""

    code = "web-open"


class NotSerializable(HoldfastError):
    """A value is not JSON."""

    code = "not-serializable"

    def __init__(self, path: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"{path} {why}",
            hint=hint or "give JSON values: None, bool, int, float, str, lists and dicts of them, or a dataclass",
            path=path,
        )


class InvalidState(InvalidValue):
    """A value does not fit the model of the state."""

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


def share(limit: str, used: float, of: float) -> str:
    """Return the share of a limit that is used, as people write it.

    >>> share("tokens", 1200, 2000), share("wall_time", 0.300299, 0.3)
    ('1,200 of 2,000 tokens', '0.3 s of 0.3 s wall time')
    """
    if limit != "wall_time":
        return f"{used:,.6g} of {of:,.6g} {limit}"
    return f"{_seconds(used)} of {_seconds(of)} wall time"


def _seconds(length: float) -> str:
    return f"{length:,.2g} s" if length < 10 else f"{length:,.0f} s"


class BudgetExceeded(HoldfastError):
    """A task, or one that pays for it, has used up its budget."""

    code = "budget-exceeded"
    message = "task {id!r} has used {share}{more}"
    hint = "raise the limit, then resume it: app.raise_budget({id!r}, Budget({limit}=…))"

    def __init__(self, id: str, limit: str, used: float, of: float, ahead: float = 0) -> None:
        more = f", and the next step takes {ahead:,.6g}" if ahead and used < of else ""
        self._fill({"share": share(limit, used, of), "more": more}, id=id, limit=limit, used=used, of=of)


class UnknownPrice(HoldfastError):
    """A budget of money cannot be kept for a model without a price."""

    code = "unknown-price"
    message = "the price of model {model!r} is not known, and the budget is in money"
    hint = "open(…, prices={{{model!r}: Price(input=…, output=…)}}), or install the extra 'prices'"

    def __init__(self, model: str) -> None:
        self._fill(model=model)
