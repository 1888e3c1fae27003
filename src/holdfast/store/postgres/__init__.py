"""The store for several machines. Imports psycopg, so it is imported when a server is named.

Used from outside: `PostgresStore`.
"""
