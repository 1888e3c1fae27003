"""What models cost: the user's own table first, then what `genai-prices` knows, if it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import InvalidValue
from holdfast.core.events import Usage

PER = 1_000_000


class Price(Struct, frozen=True):
    """What a million tokens cost, going in and coming out."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for value in (self.input, self.output):
            number: Any = value
            if not isinstance(number, int | float) or isinstance(number, bool) or not 0 <= number < float("inf"):
                raise InvalidValue(f"{value!r} is not a price", hint="give money for a million tokens, 0 or more")


class Prices:
    """A table of prices."""

    def __init__(self, table: Mapping[str, Price] | None = None) -> None:
        self._table = dict(table or {})
        for model, price in self._table.items():
            if not isinstance(price, Price):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidValue(f"the price of {model!r} is {price!r}", hint="give Price(input=…, output=…)")

    def priced(self, usage: Usage) -> Usage:
        """The same usage with its cost, if anybody knows it."""
        if usage.cost is not None or not usage.model:
            return usage
        price = self._table.get(usage.model)
        if price is None:
            return replace(usage, cost=_looked_up(usage))
        cost = (usage.input_tokens * price.input + usage.output_tokens * price.output) / PER
        return replace(usage, cost=cost)


def _looked_up(usage: Usage) -> float | None:
    """Return the listed price; None if there is no list, or it doesn't have the model."""
    try:
        import genai_prices
    except ImportError:
        return None
    counted: Any = genai_prices.Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
    try:
        return float(genai_prices.calc_price(counted, model_ref=usage.model).total_price)
    except LookupError:
        return None
