"""Final answers: how their form is described to a model, and whether a reply has it."""

from __future__ import annotations

import re
from typing import Any

from holdfast.core.errors import InvalidValue
from holdfast.engine.definitions import signature
from holdfast.engine.definitions.declared.convert import convert
from holdfast.engine.reading import values
from holdfast.llm import chat

_FENCED = re.compile(r"\s*```[a-zA-Z]*\n(.*?)\n?```\s*", re.S)


class Answers:
    """The answers an agent may give: text, or JSON of a type."""

    def __init__(self, wanted: Any) -> None:
        self.wanted = wanted
        self._is_text = wanted is str

    @property
    def request(self) -> str:
        """The instructions to a model about the form of its answer; none if any text will do."""
        if self._is_text:
            return ""
        schema = values.text(signature.json_schema(self.wanted))
        return f"When you are done, give your final answer as JSON of this schema, and nothing else:\n{schema}"

    def read(self, reply: chat.Message) -> Any:
        """The answer a reply gives. InvalidValue says what keeps it from being one."""
        text = chat.text_of(reply)
        if reply.get("finish_reason") == "length":
            raise InvalidValue("it was cut off: there is a limit to its length", hint="say it in fewer words")
        if not text.strip():
            raise InvalidValue("it is empty", hint="give an answer, or use a tool")
        return text if self._is_text else self._typed(text)

    def _typed(self, text: str) -> Any:
        fenced = _FENCED.fullmatch(text)
        try:
            value = values.parse(fenced[1] if fenced else text)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"it is not JSON: {error}", hint="give JSON and nothing else") from None
        answer = convert(value, self.wanted, "the answer")
        if answer is None:
            raise InvalidValue("null is not an answer", hint="give a value")
        return answer
