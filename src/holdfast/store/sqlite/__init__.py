"""The default store: one file, many processes. Imports apsw, so it is imported when a file is opened.

Used from outside: `SqliteStore` and `ReadOnlyStore`.
"""
