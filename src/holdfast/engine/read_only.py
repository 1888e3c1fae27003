"""An app over a file that may only be read."""

from __future__ import annotations

from holdfast.engine.app import App
from holdfast.store.protocol import Store
from holdfast.store.sqlite.read_only import LookingStore


def look(path: str, namespace: str = "") -> App:
    """Open a SQLite file in order to look at it. Whatever would write is refused."""
    store: Store = LookingStore(path)
    if namespace:
        from holdfast.store.tenants import Tenant

        store = Tenant(store, namespace)
    return App(store, namespace=namespace)
