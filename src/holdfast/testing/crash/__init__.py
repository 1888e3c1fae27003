"""Crashes agents at every point and checks what came of it. Imports the public face and the engine.

Others use `crash_everywhere CrashReport CrashFailed` and `World`.
"""
