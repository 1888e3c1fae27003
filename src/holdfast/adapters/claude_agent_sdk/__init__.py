"""Agents of the Claude Agent SDK on a Holdfast store: transcripts, and tools that are not called twice.

options = ClaudeAgentOptions(
    session_store=HoldfastSessionStore(app), hooks=once_hooks(app, effects={"mcp__shop__charge": "once"})
)
"""

from __future__ import annotations

from holdfast.adapters.extras import unsupported

if refusal := unsupported("claude-agent-sdk", "claude-agent-sdk", at_least="0.2.150", below="0.3"):
    raise refusal

from holdfast.adapters.claude_agent_sdk.hooks import once_hooks
from holdfast.adapters.claude_agent_sdk.sessions import HoldfastSessionStore

__all__ = ["HoldfastSessionStore", "once_hooks"]
