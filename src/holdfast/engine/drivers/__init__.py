"""Answers what flows ask for, for def agents and for async ones. Imports execution.

Others use `drive`, `drive_async`, `Invocation`, `parallel` and threads that can be abandoned (`abandonable`).
"""
