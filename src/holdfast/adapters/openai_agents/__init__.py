"""Agents of the OpenAI Agents SDK on a Holdfast store: sessions, and runs that are tasks.

done = DurableRunner(agent, app).run_sync("One book, please.", id="order-7")
"""

from __future__ import annotations

from holdfast.adapters.extras import unsupported

if refusal := unsupported("openai-agents", "openai-agents", at_least="0.22", below="0.25"):
    raise refusal

from holdfast.adapters.openai_agents.effects import effect
from holdfast.adapters.openai_agents.runner import DurableRunner
from holdfast.adapters.openai_agents.session import HoldfastSession
from holdfast.adapters.openai_agents.streams import DurableStream

__all__ = ["DurableRunner", "DurableStream", "HoldfastSession", "effect"]
