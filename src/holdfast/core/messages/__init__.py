"""Typed messages, and the forms in which providers know them. Imports the codec and errors.

Used from outside: `Message Text ToolCall ToolResult`, `parse render check repair`, and `tokens` (counting).
"""

from __future__ import annotations

from holdfast.core.messages.conversation import (
    check as check,
    losses as losses,
    parse as parse,
    parse_all as parse_all,
    render as render,
    system as system,
)
from holdfast.core.messages.grouping import (
    NO_RESULT as NO_RESULT,
    Groups as Groups,
    groups as groups,
    repair as repair,
)
from holdfast.core.messages.message import (
    Form as Form,
    Image as Image,
    Message as Message,
    Other as Other,
    Part as Part,
    Reasoning as Reasoning,
    Text as Text,
    ToolCall as ToolCall,
    ToolResult as ToolResult,
    answer as answer,
    complete as complete,
)
from holdfast.core.messages.provider_rules import (
    problems as problems,
)
