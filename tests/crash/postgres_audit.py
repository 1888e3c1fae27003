"""Lets the auditor, which reads files, look at a store on a server: its tables are copied as they lie there."""

import apsw
import psycopg

from holdfast.testing.auditor import audit

TABLES = {
    "logs": ("log, name, parent, base", "log, name, parent, base from logs"),
    "events": (
        "log, seq, kind, at, body, body_hash, digest",
        "log, seq, kind, at, body, body_hash, digest from events",
    ),
    "tasks": (
        "log, status, anchor_seq, anchor_digest",
        "log, status, logs.seq, logs.digest from tasks join logs using (log)",
    ),
    "snapshots": ("log, seq, digest", "log, seq, digest from snapshots"),
    "blobs": ("hash", "hash from blobs"),
    "blob_uses": ("hash, log", "hash, log from blob_uses"),
    "erasures": ("log, seq", "log, seq from erasures"),
    "tombstones": ("name, seq, digest", "name, seq, digest from tombstones"),
}
"""The columns the auditor reads, and what they are on a server. There a head stands in the log's own row."""


def audited(url, place):
    """What is wrong with the store at an address; a path is audited as it is."""
    if not url.startswith("postgres"):
        return audit(url)
    path = f"{place}/audited.db"
    copy = apsw.Connection(path)
    with psycopg.connect(url.partition("?")[0]) as server, copy:
        server.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        server.execute("set search_path to holdfast")
        for table, (columns, found) in TABLES.items():
            copy.execute(f"create table {table} ({columns})")
            marks = ", ".join("?" for _ in columns.split(","))
            rows = server.execute(f"select {found}", binary=True).fetchall()
            copy.executemany(f"insert into {table} values ({marks})", rows)
    copy.close()
    return audit(path)
