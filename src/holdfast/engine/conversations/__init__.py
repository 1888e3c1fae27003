"""The conversation a branch sees: its own messages and those of its thread. Imports logs.

Used from outside: `Conversation`, `ThreadView` and `CallOutcomes` (what became of calls that were cut off).
"""
