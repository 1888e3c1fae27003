"""The errors of stores; `errors` draws the whole tree."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors.base import HoldfastError


class StoreError(HoldfastError):
    """The store cannot do what was asked."""

    code = "store-error"


class NotAStore(StoreError):
    """The file is not a Holdfast database."""

    code = "not-a-store"


class StoreTooNew(StoreError):
    """The store was written by a newer version."""

    code = "store-too-new"


class StoreReadOnly(StoreError):
    """The path cannot be written to."""

    code = "store-read-only"


class StoreFull(StoreError):
    """The store has no room left."""

    code = "store-full"


class StoreBusy(StoreError):
    """Other processes kept the store locked for too long."""

    code = "store-busy"


class StoreUnreachable(StoreError):
    """The server does not answer, or refuses the login."""

    code = "store-unreachable"


class StorePoisoned(StoreError):
    """After an I/O error it is unknown whether a write was stored."""

    code = "store-poisoned"


class StoreClosed(StoreError):
    """The store was closed, or belongs to another process."""

    code = "store-closed"


class MissingExtra(StoreError):
    """An optional part is not installed."""

    code = "missing-extra"


class ExportFailed(HoldfastError):
    """A collector did not take the spans that were sent to it."""

    code = "export-failed"


class Diverged(StoreError):
    """The store has lost acknowledged events; the task is frozen."""

    code = "diverged"

    def __init__(
        self,
        id: str,
        known_seq: int,
        head_seq: int,
        calls: Sequence[str] = (),
        *,
        frozen: bool = True,
        block: bool = False,
    ) -> None:
        several = f"events {head_seq + 1} to {known_seq}" if head_seq < known_seq else f"event {known_seq} and more"
        lost = f"event {known_seq}" if head_seq + 1 == known_seq else several
        where = f"what its log has up to {head_seq} is safe" if head_seq else "nothing is left of its log"
        made = f"; of what is lost, these calls may have happened: {', '.join(calls)}" if calls else ""
        anyway = "append a DivergenceAccepted and enter it again" if block else "app.resume(id, agent, anyway=True)"
        super().__init__(
            f"{lost} of task {id!r} had been acknowledged and cannot be found, as after a fail-over to a server that "
            f"lagged behind, or a restored backup; {where}, and nothing is built upon it{made}",
            hint=f"look at what is left, then roll it back, fork it or cancel it; or resume it from there: {anyway}"
            if frozen
            else "look at what it did to the world, then start it under another id",
            id=id,
            known_seq=known_seq,
            head_seq=head_seq,
            calls=list(calls),
        )

    @classmethod
    def of_records(cls, log: str, known_seq: int, head_seq: int) -> Diverged:
        """Records were acknowledged to this process, and are not there any more."""
        return cls._made(
            f"records {head_seq + 1} to {known_seq} of {log!r} had been acknowledged and cannot be found, as after a "
            "fail-over to a server that lagged behind, or a restored backup; nothing was written",
            hint="read the key again: what is left is intact, and the next append continues from there",
            id=log,
            known_seq=known_seq,
            head_seq=head_seq,
            calls=[],
        )
