"""What a model is: something that answers messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.core.errors import HoldfastError, NotDone

OnToken = Callable[[str], object]
"""Called with pieces of a reply's text as they come."""


class Model(Protocol):
    """Anything that can be called like this: messages and tools in, an assistant's message out.

    Messages, tools and the reply are in chat-completions form. The reply may hold `usage`, `model` and `finish_reason`
    besides. `on_token` comes as an option if there is a listener. A model may have a `retry` for those who give none.
    """

    async def __call__(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], **options: Any
    ) -> dict[str, Any]:
        """Answer."""
        ...


class ModelError(HoldfastError):
    """A model did not answer. `details["status"]` is the HTTP status, None if there was no answer."""

    code = "model-error"


class ModelRefused(ModelError, NotDone):
    """A model's endpoint refused the request, or could not be reached: nothing was used up.

    Another attempt is made after `retry_after`; none is made if the refusal is `permanent`, as for a wrong key.
    """

    def __init__(self, message: str, *, hint: str = "", status: int | None = None, **told: Any) -> None:
        HoldfastError.__init__(self, message, hint=hint, status=status, **told)
