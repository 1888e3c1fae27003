"""Rules as data: which phase may follow which."""

from __future__ import annotations

PHASES: dict[str, tuple[str, ...]] = {
    "idle": ("planning", "error"),
    "planning": ("executing", "error"),
    "executing": ("reflecting", "waiting_feedback", "error"),
    "waiting_feedback": ("executing", "error"),
    "reflecting": ("planning", "executing", "done", "error"),
    "done": ("error",),
    "error": (),
}
"""The phases of an agent and where each may go."""
