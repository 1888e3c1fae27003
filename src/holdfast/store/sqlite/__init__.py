"""The default store: one file, many processes. Imports apsw, so it is imported when a file is opened.

Others use `SqliteStore` and `read_only.ReadOnlyStore`.
"""
