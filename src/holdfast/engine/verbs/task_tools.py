"""Ready tools for models, which a task answers itself: a question to a person, and what the task has made."""

from __future__ import annotations

from typing import Any, NoReturn

from holdfast.core.errors import InvalidValue
from holdfast.engine.definitions.tool import Tool

PAGE = 8_000
"""How many characters of an artifact a model is shown at a time."""


class TaskTool(Tool[..., Any]):
    """A tool for `task.call_tools` and `loop_agent`, answered by the task whose model calls it.

    `instead` is what an agent writes that wants the same.
    """

    def __init__(self, fn: Any, instead: str) -> None:
        super().__init__(fn, effect="read")
        self.instead = instead

    def refused(self) -> InvalidValue:
        """Return the error about an agent that calls it itself."""
        return InvalidValue(f"{self.name} is a tool for models", hint=f"in an agent, write {self.instead}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self.refused()


def _ask_person(question: str) -> Any:
    """Ask a person and wait for the answer, which may take long. Use it only if nothing else can tell."""


def _read_artifact(artifact_id: str, start: int = 0, length: int = PAGE) -> Any:
    """Read something that was made earlier, by its id: so many characters of its text, from a position on."""


_ask_person.__name__, _read_artifact.__name__ = "ask_person", "read_artifact"

ask_person = TaskTool(_ask_person, "task.ask(question)")
"""Lets a model ask a person: the task waits for the answer (`app.answer`, `holdfast answer`), which is its result."""

read_artifact = TaskTool(_read_artifact, "task.current.artifacts[id].data")
"""Lets a model read an artifact of its task by id, page by page."""


def page(text: str, start: int, length: int) -> dict[str, Any]:
    """Return a part of a text, how long all of it is, and where the next part begins.

    >>> page("abcdef", 2, 3), page("abcdef", 5, 3)
    ({'text': 'cde', 'length': 6, 'next': 5}, {'text': 'f', 'length': 6, 'next': None})
    """
    if start < 0 or length < 1:
        raise InvalidValue(
            f"start={start}, length={length} is not a part of a text", hint="give start from 0, length from 1"
        )
    end = start + length
    return {"text": text[start:end], "length": len(text), "next": end if end < len(text) else None}
