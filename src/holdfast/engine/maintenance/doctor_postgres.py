"""What the doctor says of a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.engine.maintenance.doctor import Finding
from holdfast.store.postgres.checks import Server, look
from holdfast.store.postgres.server.connecting import LEASE_REMEDY

_FEW_CONNECTIONS = 10
_SKEW_SECONDS = 5.0
_SAFE_COMMITS = ("on", "remote_apply")


def findings(url: str) -> Iterator[Finding]:
    """Everything there is to look at in a server."""
    server = look(url)
    yield Finding("server", "ok", f"PostgreSQL {server.settings['server_version']} at {server.where}")
    yield from _durability(server)
    yield _standbys(server)
    yield _locks(server)
    yield _connections(server)
    yield _indexes(server)
    yield _clock(server)


def _durability(server: Server) -> Iterator[Finding]:
    for name, loss in (
        ("fsync", "a crash of the machine loses or damages what was acknowledged"),
        ("full_page_writes", "a crash of the machine can damage pages"),
    ):
        if server.settings[name] == "on":
            yield Finding(name, "ok", "on")
        else:
            yield Finding(name, "fail", f"{server.settings[name]}: {loss}", f"alter system set {name} = on")
    setting = server.settings["synchronous_commit"]
    ours = "" if setting in _SAFE_COMMITS else "; Holdfast sets it to on, unless durability=process"
    yield Finding("commit", "ok", f"synchronous_commit is {setting}{ours}")


def _standbys(server: Server) -> Finding:
    named = server.settings["synchronous_standby_names"]
    if named:
        return Finding("standbys", "ok", f"commits wait for {named}")
    return Finding("standbys", "ok", "commits wait for no standby: a failover to one may miss the last of them")


def _locks(server: Server) -> Finding:
    """Report whether the server can tell dead workers from living ones."""
    if server.by_lease:
        return Finding("locks", "ok", "none is used (presence=lease): who is silent for a lease is presumed dead")
    if server.false_locks:
        why = f"they can't tell who is alive: {server.false_locks}; the store is not opened"
        return Finding("locks", "fail", why, LEASE_REMEDY)
    return Finding("locks", "ok", "one that is taken can be seen: a dead worker's tasks are taken over at once")


def _connections(server: Server) -> Finding:
    most = int(server.settings["max_connections"]) - int(server.settings["superuser_reserved_connections"])
    left = most - server.connections
    said = f"{max(0, left)} of {most} left"
    if left < _FEW_CONNECTIONS:
        remedy = "raise max_connections, lower ?connections=, or put pgbouncer before it"
        return Finding("connections", "warn", said, remedy)
    return Finding("connections", "ok", said)


def _indexes(server: Server) -> Finding:
    if server.invalid:
        named = ", ".join(server.invalid[:3])
        return Finding("indexes", "fail", f"not valid: {named}", f"reindex index concurrently {server.invalid[0]}")
    return Finding("indexes", "ok", "all are valid")


def _clock(server: Server) -> Finding:
    ahead = server.ahead_us / 1_000_000
    way = "ahead of" if ahead > 0 else "behind"
    if abs(ahead) > _SKEW_SECONDS:
        why = f"the server's is {abs(ahead):,.1f} s {way} ours"
        return Finding("skew", "warn", why, "set the clocks; leases go by the server's, timed waits by the workers'")
    return Finding("skew", "ok", f"the server's clock is {abs(ahead) * 1000:,.0f} ms {way} ours")
