"""Answers what flows ask for: `driver` for def agents, `loop_driver` for async ones. Imports execution.

Used from outside: `drive`, `drive_async`, `Invocation` (a call of a user's function), `parallel`, and `abandonable`
(threads that can be left behind).
"""
