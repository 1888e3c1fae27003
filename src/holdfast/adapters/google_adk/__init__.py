"""Agents of Google's Agent Development Kit (ADK) on a Holdfast store: sessions, and tool calls made once.

shop = App(name="shop", root_agent=agent, plugins=[HoldfastPlugin(app)],
           resumability_config=ResumabilityConfig(is_resumable=True))
runner = Runner(app=shop, session_service=HoldfastSessionService(app))
"""

from __future__ import annotations

from holdfast.adapters.extras import unsupported

if refusal := unsupported("google-adk", "google-adk", at_least="2.10", below="3"):
    raise refusal

from holdfast.adapters.google_adk.plugin import HoldfastPlugin
from holdfast.adapters.google_adk.sessions import HoldfastSessionService

__all__ = ["HoldfastPlugin", "HoldfastSessionService"]
