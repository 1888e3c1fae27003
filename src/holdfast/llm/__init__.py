"""A ready loop for agents that a language model drives, over any OpenAI-compatible endpoint.

loop_agent("weather", "gpt-5", [look_up], "You know the weather.")
"""

from __future__ import annotations

from holdfast import ask_person, read_artifact
from holdfast.llm.chat import tool_schema
from holdfast.llm.loop import loop_agent
from holdfast.llm.models import Model, ModelError, ModelRefused
from holdfast.llm.openai import OpenAIModel
from holdfast.llm.scripted import ScriptedModel, say, use

__all__ = [
    "Model",
    "ModelError",
    "ModelRefused",
    "OpenAIModel",
    "ScriptedModel",
    "ask_person",
    "loop_agent",
    "read_artifact",
    "say",
    "tool_schema",
    "use",
]
