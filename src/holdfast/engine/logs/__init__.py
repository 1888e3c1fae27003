"""Loads, appends and caches logs. Imports the stores and core.

Others use `Logs` (all logs of a store), `Log` (one of them), `Committer` (group commit) and `addresses.open_store`.
"""
