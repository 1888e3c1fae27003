"""Reaching a PostgreSQL server: its address, connections, every statement sent to it, and being known to it as alive.

Used from outside: `Connections`, `StatementRunner`, `connect`, and the queries by name.
"""
