"""What a store must do for workers of all tenants."""

from __future__ import annotations

from holdfast.core import events as ev
from holdfast.store.protocol import Store
from holdfast.testing.conformance.queues import add, then
from holdfast.testing.conformance.samples import AT


class TenantsConformance:
    """Which tenants have something to take, and when the next of them will."""

    def test_tenants_with_something_to_take_are_found(self, store: Store) -> None:
        places = ("", "ready"), ("due", "due"), ("later", "later"), ("lost", "lost"), ("other", "other")
        for namespace, log in (*places, ("ended", "ended"), ("ready", "elsewhere"), ("", "more")):
            start_us = {"due": AT, "later": AT + 9}.get(log)
            queue = "elsewhere" if log == "elsewhere" else "default"
            add(store, log, namespace=namespace, queue=queue, start_us=start_us)
        then(store, "lost", ev.TaskClaimed(holder="x"))
        then(store, "other", ev.TaskClaimed(holder="y"))
        then(store, "ended", ev.TaskClaimed(holder="x"), ev.TaskCancelled())
        queues = store.queues
        assert queues.tenants(["default"], AT) == ["", "due"]
        assert queues.tenants(["default"], AT, ["x"]) == ["", "due", "lost"]
        assert queues.tenants(["default"], AT, ["nobody", "y", "x"]) == ["", "due", "lost", "other"]
        assert queues.tenants(["default", "elsewhere"], AT + 9) == ["", "due", "later", "ready"]
        assert queues.tenants(["elsewhere"], AT, ["x"]) == ["ready"] and queues.tenants([], AT, ["x"]) == []
        assert queues.next_wake(None, ["default"]) == AT and queues.next_wake(None, ["default"], AT) == AT + 9
        assert queues.next_wake(None, ["elsewhere"]) is None and queues.next_wake(None, []) is None
