"""Every kind of event, by its stored name. An event class counts once the module that holds it is imported here."""

from __future__ import annotations

from holdfast.core.events import base, knowledge, lifecycle, steps
from holdfast.core.events.base import Event, kind_of


class Erased(Event, frozen=True):
    """Stands in for an event whose body was erased. Never written: the row keeps its own kind."""


assert base and knowledge and lifecycle and steps

KIND: dict[type[Event], str] = {cls: kind_of(cls) for cls in Event.__subclasses__() if cls is not Erased}


BY_KIND: dict[str, type[Event]] = {kind: cls for cls, kind in KIND.items()}


COLD_KINDS = ("checkpoint_made", "decision_made", "message_added", "rolled_back", "turn_started")
"""Kinds read by index when someone asks, since the hot state keeps only their count (law 6)."""
