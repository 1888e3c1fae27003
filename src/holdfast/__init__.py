"""The durable state layer for AI agents.

>>> import holdfast
>>> app = holdfast.open("memory:")
>>> app.start("greeter", {"name": "Ana"}, id="greet-1").status
'pending'
"""

from holdfast.core import events
from holdfast.core.codec import pack
from holdfast.core.errors import (
    Cancelled,
    Conflict,
    HoldfastError,
    InputConflict,
    InvalidEvent,
    InvalidId,
    InvalidInput,
    InvalidTransition,
    InvalidUrl,
    InvalidValue,
    KeyTaken,
    LeaseLost,
    LogCorrupt,
    MissingExtra,
    NestedStep,
    NotAStore,
    NotDone,
    NotSerializable,
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
    Suspended,
    TaskBusy,
    TaskCollected,
    TaskExists,
    TaskFinished,
    TaskNotFound,
    TimeLimit,
    TurnLimit,
    UnknownEvent,
    ValueDamaged,
)
from holdfast.core.events import Failure
from holdfast.core.flows import DidNotHappen, Happened, Unknown
from holdfast.core.patch import StatePatch
from holdfast.core.policy import Retry
from holdfast.engine.agent import agent, tool
from holdfast.engine.app import App, open
from holdfast.engine.run import current_call
from holdfast.engine.task import Task
from holdfast.engine.view import TaskState

__version__ = "0.1.0"

__all__ = [
    "App",
    "Cancelled",
    "Conflict",
    "DidNotHappen",
    "Failure",
    "Happened",
    "HoldfastError",
    "InputConflict",
    "InvalidEvent",
    "InvalidId",
    "InvalidInput",
    "InvalidTransition",
    "InvalidUrl",
    "InvalidValue",
    "KeyTaken",
    "LeaseLost",
    "LogCorrupt",
    "MissingExtra",
    "NestedStep",
    "NotAStore",
    "NotDone",
    "NotSerializable",
    "Retry",
    "SeqOutOfRange",
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
    "Suspended",
    "Task",
    "TaskBusy",
    "TaskCollected",
    "TaskExists",
    "TaskFinished",
    "TaskNotFound",
    "TaskState",
    "TimeLimit",
    "TurnLimit",
    "Unknown",
    "UnknownEvent",
    "ValueDamaged",
    "__version__",
    "agent",
    "current_call",
    "events",
    "open",
    "pack",
    "tool",
]
