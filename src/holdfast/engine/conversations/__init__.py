"""The conversation a branch sees: its own messages and those of its thread. Imports logs.

Others use `Conversation`, `ThreadView` and what became of calls that were cut off (`call_outcomes`).
"""
