"""Who is alive, as others see it. `presence` is this process's own side.

A worker is lost in one of two ways. It is *proven* that it is gone if it signed off, or if it ran on this machine and
no such process is left. It is *presumed* to be gone if there is no sign of life: its lock has been missing for a
second, or it was silent for longer than its lease. A process that was presumed dead may be alive, in the middle of a
call.

After a restart or a fail-over every lock is missing. So a worker whose lock was on another incarnation of the server
has some seconds to come back. They are counted from when the present incarnation was first noted in the database.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from holdfast.core import limits
from holdfast.store import processes
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.connections import Connections
from holdfast.store.postgres.server.presence import LEASE_PREFIX, LOCK_PREFIX
from holdfast.store.processes import ProcessName
from holdfast.store.queues import Loss, ServedRow

_LOOK_SECONDS = 0.1
_NAME = re.compile(f"({LOCK_PREFIX}|{LEASE_PREFIX})[0-9a-f]{{16}}")


class Sighting(NamedTuple):
    """What the database knows about one worker, at one moment."""

    name: str
    is_locked: bool
    is_settled: bool
    """Whether a missing lock means anything yet: the server is the same, or has been back for a while."""
    is_silent: bool
    is_gone: bool
    machine: str
    process: str
    beat_us: int

    @property
    def is_known(self) -> bool:
        """True if there can be a sign of life of it here: its name is one that this store gives."""
        return _NAME.fullmatch(self.name) is not None

    @property
    def is_proven_gone(self) -> bool:
        """True if it signed off, or was a process of this machine that has ended."""
        return self.is_gone or processes.is_gone(ProcessName(self.machine, self.process))

    @property
    def is_missed(self) -> bool:
        """True if it should hold a lock and does not."""
        return self.name.startswith(LOCK_PREFIX) and not self.is_locked


class Absences:
    """Since when locks are missing, as far as this process has looked. One that was taken again begins anew."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}

    def looked(self, sightings: list[Sighting]) -> None:
        """Note what is missing now, and forget everything else."""
        now = time.monotonic()
        missed = [(one.name, one.beat_us) for one in sightings if one.is_missed]
        self._since = {one: self._since.get(one, now) for one in missed}

    def have_lasted(self, one: Sighting) -> bool:
        """Return whether its lock was missing each time for long enough, and not because the server is new."""
        since = self._since.get((one.name, one.beat_us))
        return since is not None and one.is_settled and time.monotonic() - since >= limits.ABSENT_SECONDS


class Liveness:
    """Finds out which workers live."""

    def __init__(self, links: Connections) -> None:
        self._links = links
        self._absences = Absences()

    def lost(self) -> dict[str, Loss]:
        """Return the workers of running tasks that are lost, and how that is known. Called again and again."""
        address = self._links.address
        rows = self._links.rows(*((q.LOST_BY_LEASE, None) if address.by_lease else (q.LOST, _GRACE)))
        seen = [Sighting(*row) for row in rows]
        self._absences.looked(seen)
        found: dict[str, Loss] = {}
        for one in seen:
            loss = self._loss(one, self._absences)
            if loss is not None:
                found[one.name] = loss
        return found

    def loss(self, name: str, lease: float | None) -> Loss | None:
        """Return how it is known that one worker is lost, looking for as long as it takes to presume anything."""
        absences, until = Absences(), time.monotonic() + limits.RESTART_SECONDS + limits.ABSENT_SECONDS
        while True:
            one = self._sighted(name, lease)
            absences.looked([one])
            found = self._loss(one, absences)
            if found is not None or not (one.is_missed or self._is_new(one)) or time.monotonic() > until:
                return found
            time.sleep(_LOOK_SECONDS)

    def alive(self, name: str, lease: float | None) -> bool:
        """Return whether there is a sign of life now. It does not wait: it is for looking, not for taking over."""
        one = self._sighted(name, lease)
        is_absent = one.is_missed or not one.is_known or (name.startswith(LEASE_PREFIX) and not one.beat_us)
        return not (is_absent or one.is_silent or one.is_proven_gone)

    def announced(self) -> list[ServedRow]:
        """Return what living workers serve."""
        text = q.ANNOUNCED_BY_LEASE if self._links.address.by_lease else q.ANNOUNCED
        rows = self._links.rows(text, prepare=False)
        return [ServedRow(*row[:3]) for row in rows if not processes.is_gone(ProcessName(*row[3:]))]

    def _sighted(self, name: str, lease: float | None) -> Sighting:
        asked = {"name": name, "lease": lease}
        if self._links.address.by_lease:
            return Sighting(*self._links.rows(q.SIGHTED_BY_LEASE, asked, prepare=False)[0])
        return Sighting(*self._links.rows(q.SIGHTED, {**asked, **_GRACE}, prepare=False)[0])

    def _loss(self, one: Sighting, absences: Absences) -> Loss | None:
        if one.is_proven_gone:
            return "proven"
        if not one.is_known or (one.is_silent and not self._is_new(one)) or absences.have_lasted(one):
            return "presumed"
        return None

    def _is_new(self, one: Sighting) -> bool:
        """Return whether we came ourselves just now, and silence may only mean that the server was away.

        Where locks are not to be trusted, nothing else tells of a restart.
        """
        if not (one.is_silent and self._links.address.by_lease):
            return False
        return self._links.presence().lasted_seconds < limits.RESTART_SECONDS


_GRACE = {"grace": limits.RESTART_SECONDS}
