"""How far many logs have come, in one question."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.core import names
from holdfast.core.errors import InvalidValue
from holdfast.store.protocol import Store

_LOGS: dict[str, Callable[[str], str]] = {"tasks": names.task_log, "threads": names.thread_log}


def heads_of(store: Store, ids: Iterable[str], of: str) -> dict[str, int]:
    """The seqs of the last events of some tasks or threads, by id."""
    if of not in _LOGS:
        raise InvalidValue(f"of={of!r} is not understood", hint=f"use {' or '.join(map(repr, _LOGS))}")
    if isinstance(ids, str):
        raise InvalidValue(f"ids={ids!r} is one id", hint=f"give a list: [{ids!r}], or use app.head({ids!r})")
    logs = {id: _LOGS[of](id) for id in ids}
    found = store.heads(list(logs.values()))
    return {id: found.get(log, 0) for id, log in logs.items()}
