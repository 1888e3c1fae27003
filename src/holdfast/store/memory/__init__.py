"""A store in memory: the shortest reading of the protocol. Imports store/sqlite for transaction tools.

Used from outside: `MemoryStore`.
"""
