"""Crashes agents at every point and checks what came of it. Imports the public names and the engine.

Used from outside: `everywhere.crash_everywhere`, `world.World` and `faults` (file systems that fail).
"""
