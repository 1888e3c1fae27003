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
    from holdfast.core.codec import Secret, pack
    from holdfast.core.errors import (
        ApprovalDenied,
        BudgetExceeded,
        Cancelled,
        Conflict,
        Diverged,
        EffectConflict,
        ExportFailed,
        HoldfastError,
        InputConflict,
        InvalidEvent,
        InvalidId,
        InvalidInput,
        InvalidMessage,
        InvalidState,
        InvalidTemplate,
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
        ReplayDiverged,
        ResumeExpired,
        RetriesExhausted,
        SelfApproval,
        SeqOutOfRange,
        StateMutated,
        StateNotMigrated,
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
        TaskFailed,
        TaskFinished,
        TaskNotFound,
        ThreadBusy,
        ThreadNotFound,
        TimeLimit,
        ToolExited,
        TurnLimit,
        UnknownEvent,
        UnknownName,
        UnknownPrice,
        UnnamedThread,
        UnrecordedCall,
        UnresolvedType,
        ValueDamaged,
        WebOpen,
        WindowTooSmall,
    )
    from holdfast.core.events import Failure, Usage
    from holdfast.core.flows.requests import DidNotHappen, Happened, Unknown
    from holdfast.core.phases import Machine
    from holdfast.core.retries import Retry
    from holdfast.core.state.budget import Budget
    from holdfast.core.state.patch import StatePatch
    from holdfast.engine.app import App, doctor, open as open
    from holdfast.engine.conversations.plain_window import window
    from holdfast.engine.definitions.agent import Agent, agent
    from holdfast.engine.definitions.call import Call, current_call, report_usage, sending, streaming
    from holdfast.engine.definitions.prices import Price
    from holdfast.engine.definitions.queue import Queue
    from holdfast.engine.definitions.step import Step, step
    from holdfast.engine.definitions.tool import Tool, tool
    from holdfast.engine.drivers.retrying import retry
    from holdfast.engine.notices.webhook import Webhook
    from holdfast.engine.people.thread import Thread
    from holdfast.engine.people.thread_messages import ThreadMessage
    from holdfast.engine.people.user import User
    from holdfast.engine.people.user_model import UserModel
    from holdfast.engine.reading.task_state import TaskState
    from holdfast.engine.records.records import Records
    from holdfast.engine.records.values import Record, RecordChanges, RecordWrite
    from holdfast.engine.streams.watching import Chunk, ChunksCut, ChunksDropped
    from holdfast.engine.verbs.async_task import AsyncTask
    from holdfast.engine.verbs.task import Task
    from holdfast.engine.verbs.task_tools import ask_person, read_artifact
    from holdfast.engine.views.attempts import StepAttempt
    from holdfast.engine.views.failures import FailureContext, TaskFailure
    from holdfast.engine.workers.schedule import Schedule
    from holdfast.engine.workers.upkeep import Retention
    from holdfast.engine.workers.worker import Worker
    from holdfast.store.protocol import Connection

__version__ = "0.1.0"

_PLACES = {
    "core.codec": ("Secret", "pack"),
    "core.retries": ("Retry",),
    "core.events": ("Failure", "Usage"),
    "core.flows.requests": ("DidNotHappen", "Happened", "Unknown"),
    "core.phases": ("Machine",),
    "core.state.budget": ("Budget",),
    "core.state.patch": ("StatePatch",),
    "engine.app": ("App", "doctor", "open"),
    "engine.definitions.agent": ("Agent", "agent"),
    "engine.definitions.prices": ("Price",),
    "engine.definitions.queue": ("Queue",),
    "engine.definitions.step": ("Step", "step"),
    "engine.conversations.plain_window": ("window",),
    "engine.verbs.task_tools": ("ask_person", "read_artifact"),
    "engine.definitions.tool": ("Tool", "tool"),
    "engine.definitions.call": ("Call", "current_call", "report_usage", "sending", "streaming"),
    "engine.drivers.retrying": ("retry",),
    "engine.notices.webhook": ("Webhook",),
    "engine.reading.task_state": ("TaskState",),
    "engine.people.thread": ("Thread",),
    "engine.people.thread_messages": ("ThreadMessage",),
    "engine.people.user": ("User",),
    "engine.people.user_model": ("UserModel",),
    "engine.records.records": ("Records",),
    "engine.records.values": ("Record", "RecordChanges", "RecordWrite"),
    "engine.streams.watching": ("Chunk", "ChunksCut", "ChunksDropped"),
    "engine.verbs.async_task": ("AsyncTask",),
    "engine.verbs.task": ("Task",),
    "engine.views.attempts": ("StepAttempt",),
    "engine.views.failures": ("FailureContext", "TaskFailure"),
    "engine.workers.schedule": ("Schedule",),
    "engine.workers.upkeep": ("Retention",),
    "engine.workers.worker": ("Worker",),
    "store.protocol": ("Connection",),
}
"""Where public names live; all others are errors. They are loaded when asked for: importing holdfast costs nothing."""


def __getattr__(name: str) -> Any:
    if name not in __all__ and name != "open":  # `from holdfast import *` leaves Python's own open() alone
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    if name == "events":
        return import_module("holdfast.core.events")
    place = next((place for place, names in _PLACES.items() if name in names), "core.errors")
    found = globals()[name] = getattr(import_module(f"holdfast.{place}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Agent",
    "App",
    "ApprovalDenied",
    "AsyncTask",
    "Budget",
    "BudgetExceeded",
    "Call",
    "Cancelled",
    "Chunk",
    "ChunksCut",
    "ChunksDropped",
    "Conflict",
    "Connection",
    "DidNotHappen",
    "Diverged",
    "EffectConflict",
    "ExportFailed",
    "Failure",
    "FailureContext",
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
    "Record",
    "RecordChanges",
    "RecordWrite",
    "Records",
    "ReplayDiverged",
    "ResumeExpired",
    "Retention",
    "RetriesExhausted",
    "Retry",
    "Schedule",
    "Secret",
    "SelfApproval",
    "SeqOutOfRange",
    "StateMutated",
    "StateNotMigrated",
    "StatePatch",
    "Step",
    "StepAttempt",
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
    "TaskFailed",
    "TaskFailure",
    "TaskFinished",
    "TaskNotFound",
    "TaskState",
    "Thread",
    "ThreadBusy",
    "ThreadMessage",
    "ThreadNotFound",
    "TimeLimit",
    "Tool",
    "ToolExited",
    "TurnLimit",
    "Unknown",
    "UnknownEvent",
    "UnknownName",
    "UnknownPrice",
    "UnnamedThread",
    "UnrecordedCall",
    "UnresolvedType",
    "Usage",
    "User",
    "UserModel",
    "ValueDamaged",
    "WebOpen",
    "Webhook",
    "WindowTooSmall",
    "Worker",
    "__version__",
    "agent",
    "ask_person",
    "current_call",
    "doctor",
    "events",
    "pack",
    "read_artifact",
    "report_usage",
    "retry",
    "sending",
    "step",
    "streaming",
    "tool",
    "window",
]
