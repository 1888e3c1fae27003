"""Outcomes of tool calls as they are recorded: messages as JSON, whatever else LangGraph's serializer makes of them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, cast

from langchain_core.messages import ToolMessage

from holdfast import NotSerializable, pack
from holdfast.adapters.langgraph.strict import refuse_lossy, strict_serializer

INTERRUPTED = {"langgraph": "interrupted"}
"""The outcome of a call whose tool interrupted the graph. It is not the last one: the tool will be called again."""

_SERDE = strict_serializer()


def kept(outcome: Any) -> dict[str, Any]:
    """What is recorded of an outcome."""
    if type(outcome) is ToolMessage and outcome.artifact is None:  # an artifact may be anything
        fields = {name: getattr(outcome, name) for name in outcome.model_fields_set if name != "type"}
        try:
            pack(fields, "the message")
            return {"langgraph": "message", "message": fields}
        except NotSerializable:
            pass
    packed = _SERDE.dumps_typed(outcome)
    refuse_lossy(_SERDE, packed, "the tool's result")
    return {"langgraph": packed[0], "packed": b64encode(packed[1]).decode()}


def restored(recorded: Any, call: Mapping[str, Any]) -> Any:
    """Return the recorded outcome, or, if a person has settled the call, a message with their result."""
    given = cast("dict[str, Any]", recorded) if isinstance(recorded, dict) else {}
    match given.get("langgraph"):
        case None:
            content = recorded if isinstance(recorded, str) else bytes(pack(recorded, "the result")).decode()
            return ToolMessage(content, name=call["name"], tool_call_id=call["id"])
        case "message":
            return ToolMessage(**given["message"])
        case kind:
            return _SERDE.loads_typed((kind, b64decode(given["packed"])))
