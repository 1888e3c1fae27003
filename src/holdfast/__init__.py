"""The durable state layer for AI agents.

>>> import holdfast
>>> app = holdfast.open("memory:")
>>> app.start("greeter", {"name": "Ana"}, id="greet-1").status
'pending'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.core import events
    from holdfast.core.budget import Budget
    from holdfast.core.codec import pack
    from holdfast.core.errors import (
        ApprovalDenied,
        Cancelled,
        Conflict,
        EffectConflict,
        HoldfastError,
        InputConflict,
        InvalidEvent,
        InvalidId,
        InvalidInput,
        InvalidMessage,
        InvalidTransition,
        InvalidUrl,
        InvalidValue,
        KeyTaken,
        LeaseLost,
        LogCorrupt,
        MissingExtra,
        NestedStep,
        NoMock,
        NotAStore,
        NotDone,
        NotRecorded,
        NotSerializable,
        PatchConflict,
        QueueFull,
        ResumeExpired,
        SeqOutOfRange,
        StepChanged,
        StepFailed,
        StepNotFound,
        StoreBusy,
        StoreClosed,
        StoreError,
        StoreFull,
        StorePoisoned,
        StoreReadOnly,
        StoreTooNew,
        StoreUnreachable,
        Suspended,
        TaskBusy,
        TaskCollected,
        TaskExists,
        TaskFinished,
        TaskNotFound,
        TimeLimit,
        ToolExited,
        TurnLimit,
        UnknownEvent,
        UnnamedThread,
        ValueDamaged,
        WindowTooSmall,
    )
    from holdfast.core.events import Failure, Usage
    from holdfast.core.patch import StatePatch
    from holdfast.core.phases import Machine
    from holdfast.core.policy import Retry
    from holdfast.core.secrets import Secret
    from holdfast.core.state_errors import (
        BudgetExceeded,
        InvalidState,
        InvalidTemplate,
        StateNotMigrated,
        UnknownName,
        UnknownPrice,
    )
    from holdfast.core.wishes import DidNotHappen, Happened, Unknown
    from holdfast.engine.agent import agent, tool
    from holdfast.engine.app import App, open
    from holdfast.engine.calls import Call, current_call, report_usage
    from holdfast.engine.prices import Price
    from holdfast.engine.queue import Queue
    from holdfast.engine.schedule import Schedule
    from holdfast.engine.task import AsyncTask, Task
    from holdfast.engine.view import TaskState
    from holdfast.engine.worker import Worker
    from holdfast.store.protocol import Connection

__version__ = "0.1.0"

_PLACES = {
    "budget": ("Budget",),
    "codec": ("pack",),
    "events": ("Failure", "Usage"),
    "patch": ("StatePatch",),
    "phases": ("Machine",),
    "policy": ("Retry",),
    "secrets": ("Secret",),
    "state_errors": (
        *("BudgetExceeded", "InvalidState", "InvalidTemplate", "StateNotMigrated", "UnknownName", "UnknownPrice"),
    ),
    "wishes": ("DidNotHappen", "Happened", "Unknown"),
    "engine.agent": ("agent", "tool"),
    "engine.app": ("App", "open"),
    "engine.calls": ("Call", "current_call", "report_usage"),
    "engine.prices": ("Price",),
    "engine.queue": ("Queue",),
    "engine.schedule": ("Schedule",),
    "engine.task": ("AsyncTask", "Task"),
    "engine.view": ("TaskState",),
    "engine.worker": ("Worker",),
    "store.protocol": ("Connection",),
}
"""Where public names live; all others are errors. They are loaded when asked for: importing holdfast costs nothing."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    if name == "events":
        return import_module("holdfast.core.events")
    place = next((place for place, names in _PLACES.items() if name in names), "errors")
    module = import_module(f"holdfast.{place}" if "." in place else f"holdfast.core.{place}")
    found = globals()[name] = getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "App",
    "ApprovalDenied",
    "AsyncTask",
    "Budget",
    "BudgetExceeded",
    "Call",
    "Cancelled",
    "Conflict",
    "Connection",
    "DidNotHappen",
    "EffectConflict",
    "Failure",
    "Happened",
    "HoldfastError",
    "InputConflict",
    "InvalidEvent",
    "InvalidId",
    "InvalidInput",
    "InvalidMessage",
    "InvalidState",
    "InvalidTemplate",
    "InvalidTransition",
    "InvalidUrl",
    "InvalidValue",
    "KeyTaken",
    "LeaseLost",
    "LogCorrupt",
    "Machine",
    "MissingExtra",
    "NestedStep",
    "NoMock",
    "NotAStore",
    "NotDone",
    "NotRecorded",
    "NotSerializable",
    "PatchConflict",
    "Price",
    "Queue",
    "QueueFull",
    "ResumeExpired",
    "Retry",
    "Schedule",
    "Secret",
    "SeqOutOfRange",
    "StateNotMigrated",
    "StatePatch",
    "StepChanged",
    "StepFailed",
    "StepNotFound",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StorePoisoned",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnreachable",
    "Suspended",
    "Task",
    "TaskBusy",
    "TaskCollected",
    "TaskExists",
    "TaskFinished",
    "TaskNotFound",
    "TaskState",
    "TimeLimit",
    "ToolExited",
    "TurnLimit",
    "Unknown",
    "UnknownEvent",
    "UnknownName",
    "UnknownPrice",
    "UnnamedThread",
    "Usage",
    "ValueDamaged",
    "WindowTooSmall",
    "Worker",
    "__version__",
    "agent",
    "current_call",
    "events",
    "open",
    "pack",
    "report_usage",
    "tool",
]
