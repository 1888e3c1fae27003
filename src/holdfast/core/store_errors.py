"""The errors of stores; `errors` draws the whole tree."""

from __future__ import annotations

from holdfast.core.error import HoldfastError


class StoreError(HoldfastError):
    """The store cannot do what was asked."""

    code = "store-error"


class NotAStore(StoreError):
    """The file is not a Holdfast database."""

    code = "not-a-store"


class StoreTooNew(StoreError):
    """Written by a newer version."""

    code = "store-too-new"


class StoreReadOnly(StoreError):
    """The place cannot be written to."""

    code = "store-read-only"


class StoreFull(StoreError):
    """No room left."""

    code = "store-full"


class StoreBusy(StoreError):
    """Others kept the store locked for too long."""

    code = "store-busy"


class StoreUnreachable(StoreError):
    """The server does not answer, or does not let us in."""

    code = "store-unreachable"


class StorePoisoned(StoreError):
    """A write's fate is unknown after an I/O error; reopen."""

    code = "store-poisoned"


class StoreClosed(StoreError):
    """The store was closed, or belongs to another process."""

    code = "store-closed"


class MissingExtra(StoreError):
    """An optional part is not installed."""

    code = "missing-extra"
