"""The durable state layer for AI agents.

>>> import holdfast
>>> app = holdfast.open("memory:")
>>> app.start("greeter", {"name": "Ana"}, id="greet-1").status
'pending'
"""

from holdfast.core import events
from holdfast.core.errors import (
    Conflict,
    HoldfastError,
    InvalidEvent,
    InvalidId,
    InvalidInput,
    InvalidTransition,
    InvalidUrl,
    InvalidValue,
    KeyTaken,
    LogCorrupt,
    MissingExtra,
    NotAStore,
    NotSerializable,
    SeqOutOfRange,
    StepNotFound,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StorePoisoned,
    StoreReadOnly,
    StoreTooNew,
    TaskBusy,
    TaskCollected,
    TaskExists,
    TaskFinished,
    TaskNotFound,
    UnknownEvent,
    ValueDamaged,
)
from holdfast.core.events import Failure
from holdfast.core.patch import StatePatch
from holdfast.engine.app import App, open
from holdfast.engine.view import TaskState

__version__ = "0.1.0"

__all__ = [
    "App",
    "Conflict",
    "Failure",
    "HoldfastError",
    "InvalidEvent",
    "InvalidId",
    "InvalidInput",
    "InvalidTransition",
    "InvalidUrl",
    "InvalidValue",
    "KeyTaken",
    "LogCorrupt",
    "MissingExtra",
    "NotAStore",
    "NotSerializable",
    "SeqOutOfRange",
    "StatePatch",
    "StepNotFound",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StorePoisoned",
    "StoreReadOnly",
    "StoreTooNew",
    "TaskBusy",
    "TaskCollected",
    "TaskExists",
    "TaskFinished",
    "TaskNotFound",
    "TaskState",
    "UnknownEvent",
    "ValueDamaged",
    "__version__",
    "events",
    "open",
]
