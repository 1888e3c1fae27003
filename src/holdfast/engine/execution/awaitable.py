"""What an async task's waiting verbs give: something to await, that notices when it is not awaited."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from itertools import count
from typing import Any

from holdfast.core.errors import InvalidValue

_numbers = count()


class Verb(Coroutine[Any, Any, Any]):
    """A verb that was called. Until it is awaited nothing is done; if it never is, the agent gets a warning."""

    __slots__ = ("_inner", "_name", "_number", "_order", "_unawaited")

    def __init__(self, inner: Coroutine[Any, Any, Any], name: str, unawaited: dict[int, str], order: int) -> None:
        """`name` is how the agent wrote it. `order` counts the verbs that its branch has called."""
        self._inner = inner
        self._order = order
        self._name = name
        self._unawaited = unawaited
        self._number = next(_numbers)
        unawaited[self._number] = name

    def __await__(self) -> Generator[Any, Any, Any]:
        self._unawaited.pop(self._number, None)
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        """As a coroutine: asyncio drives it so when it is made a task."""
        self._unawaited.pop(self._number, None)
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        """As a coroutine."""
        self._unawaited.pop(self._number, None)
        return self._inner.throw(*error)

    def close(self) -> None:
        """As a coroutine: code that drops it on purpose has not forgotten it."""
        self._unawaited.pop(self._number, None)
        self._inner.close()

    def __del__(self) -> None:
        if self._number in self._unawaited:
            self._inner.close()  # Python's own warning would name a line of ours

    def __hash__(self) -> int:
        """Return its number: `asyncio.as_completed` starts a set of verbs, in the same order on every replay."""
        return self._order

    def __eq__(self, other: object) -> bool:
        return self is other

    def __bool__(self) -> bool:
        self._inner.close()
        raise not_awaited(self._name)

    def __repr__(self) -> str:
        return f"<{self._name}(…), not awaited>"

    def called(self, name: str) -> Verb:
        """Return it under the name of the function that the agent called, for errors."""
        self._name = self._unawaited[self._number] = name
        return self


def not_awaited(name: str) -> InvalidValue:
    """Return the error for an agent that forgot to await a verb: nothing was done."""
    return InvalidValue(f"{name} was not awaited, so nothing was done", hint=f"write: await {name}(…)")
