"""Loads, appends and caches logs. Imports the stores and core.

Used from outside: `Logs` (all logs of a store), `Log` (one of them), `Committer` (group commit) and `addresses`.
"""
