"""The serializer a saver has unless it is given one: it restores only types that are known to be safe.

What such a serializer does not know it would give back as a dict. That is refused when it is saved, by name.
"""

from __future__ import annotations

import threading
from typing import Any, cast

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast import NotSerializable
from holdfast.adapters.langgraph.values import Packed, typed

_EXTENSIONS = bytes([0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8])
"""What the msgpack of everything but plain values has in it somewhere."""


def strict_serializer() -> JsonPlusSerializer:
    """Return LangGraph's serializer, restricted to types that are safe to restore."""
    return JsonPlusSerializer(allowed_msgpack_modules=None)


def refuse_lossy(serde: SerializerProtocol, packed: Packed, what: str) -> None:
    """Refuse a value that the serializer would not restore as it was."""
    type, data = typed(packed)
    if type != "msgpack" or len(data.translate(None, _EXTENSIONS)) == len(data):
        return
    names: set[tuple[str, str]] = set()
    _find_names(data, names)
    if names <= _restored:
        return
    _blocked.names = blocked = list[str]()
    try:
        serde.loads_typed((type, data))
    finally:
        _blocked.names = None
    if blocked:
        name = blocked[0].rpartition(".")[2]
        raise NotSerializable(
            what,
            f"holds a {blocked[0]}, which would come back as a dict; nothing was saved",
            hint=f"allow it: HoldfastSaver(app, serde=JsonPlusSerializer(allowed_msgpack_modules=[{name}]))",
        )
    _restored.update(names)


_restored: set[tuple[str, str]] = set()
"""Types that the strict serializer was seen to restore. To look for them is much cheaper than to restore a value."""


def _find_names(data: bytes, found: set[tuple[str, str]]) -> None:
    """Add the module and name of each type that a packed value holds, at any depth."""

    def note(code: int, inner: bytes) -> None:
        what: Any = ormsgpack.unpackb(inner, ext_hook=note, option=ormsgpack.OPT_NON_STR_KEYS)
        if isinstance(what, list):
            module, name, *_ = cast("list[Any]", what) if len(cast("list[Any]", what)) > 1 else (None, None)
            if isinstance(module, str) and isinstance(name, str):
                found.add((module, name))

    ormsgpack.unpackb(data, ext_hook=note, option=ormsgpack.OPT_NON_STR_KEYS)


class _Blocked(threading.local):
    names: list[str] | None = None


_blocked = _Blocked()


def _note(event: SerdeEvent) -> None:
    if _blocked.names is not None and event["kind"] in ("msgpack_blocked", "msgpack_method_blocked"):
        _blocked.names.append(f"{event['module']}.{event['name']}")


register_serde_event_listener(_note)
