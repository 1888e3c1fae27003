"""LangGraph and LangChain agents on a Holdfast store: checkpoints, long-term memory, and tool calls made once.

graph = builder.compile(checkpointer=HoldfastSaver(app), store=HoldfastStore(app))
"""

from __future__ import annotations

from holdfast.adapters.extras import unsupported

if refusal := unsupported("langgraph", "langgraph", at_least="1.2", below="2"):
    raise refusal
if refusal := unsupported("langgraph", "langgraph-checkpoint", at_least="4.1", below="5"):
    raise refusal

from holdfast.adapters.langgraph.adoption import Adopted, adopt
from holdfast.adapters.langgraph.calls import OnceCalls, once_calls
from holdfast.adapters.langgraph.saver import CheckpointSummary, HoldfastSaver, SaverStats
from holdfast.adapters.langgraph.store import HoldfastStore

__all__ = [
    "Adopted",
    "CheckpointSummary",
    "HoldfastSaver",
    "HoldfastStore",
    "OnceCalls",
    "SaverStats",
    "adopt",
    "once_calls",
]
