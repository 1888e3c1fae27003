"""Every kind of event, by its stored name. The tables fill themselves from the event classes of this package."""

from __future__ import annotations

from holdfast.core.events import base, knowledge, lifecycle, steps
from holdfast.core.events.base import Event, kind_of


class Erased(Event, frozen=True):
    """Stands in for an event whose body was erased. Never written: the row keeps its own kind."""


assert base and knowledge and lifecycle and steps

KIND: dict[type[Event], str] = {cls: kind_of(cls) for cls in Event.__subclasses__() if cls is not Erased}


BY_KIND: dict[str, type[Event]] = {kind: cls for cls, kind in KIND.items()}
