"""The read side: what every face shows, as data. Imports logs and definitions.

Others, faces included, use `TaskState`, `describe.EventLine`, `inbox`, `audit`, `timeline`, `verify` and `serving`.
"""
