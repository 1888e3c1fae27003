"""What users and we ourselves test with. Imports the public names and the engine.

Public: `crash_everywhere`, `World`, `expect`, `check_upcasts`. For stores: `conformance`. From outside: `auditor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.crash.everywhere import CrashFailed, CrashReport, LostAnswer, crash_everywhere
    from holdfast.testing.crash.world import World
    from holdfast.testing.expectations import ANYTHING, Expect, expect
    from holdfast.testing.upcasts import UpcastFailed, check_upcasts, save_sample

__all__ = [
    "ANYTHING",
    "CrashFailed",
    "CrashReport",
    "Expect",
    "LostAnswer",
    "UpcastFailed",
    "World",
    "check_upcasts",
    "crash_everywhere",
    "expect",
    "save_sample",
]


def __getattr__(name: str) -> Any:
    """Load the harness when it is asked for."""
    if name == "World":
        from holdfast.testing.crash.world import World

        return World
    if name in ("UpcastFailed", "check_upcasts", "save_sample"):
        from holdfast.testing import upcasts

        return getattr(upcasts, name)
    if name in ("ANYTHING", "Expect", "expect"):
        from holdfast.testing import expectations

        return getattr(expectations, name)
    if name in __all__:
        from holdfast.testing.crash import everywhere

        return getattr(everywhere, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
