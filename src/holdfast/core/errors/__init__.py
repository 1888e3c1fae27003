"""The errors people see, each with a stable code, the values concerned and a remedy.

HoldfastError
├── TaskNotFound          no task has this id
├── TaskExists            a task with this id already exists
├── TaskCollected         the task was removed by retention; its id is never used again
├── TaskFailed            a task has no result: it failed, was cancelled, or has not ended
├── TaskFinished          the task has ended and takes no further work
├── TaskBusy              another live worker has the task
├── QueueFull             a queue is full
├── ThreadBusy            another task of the thread has not ended
├── ThreadNotFound        no thread has this id
├── InputConflict         a task of this id was started with other input
├── StepFailed            a step failed for good, now or when it was recorded
│   └── ApprovalDenied    a person rejected the call, or no answer came in time
├── StepChanged           a recorded step is called with another input
├── ReplayDiverged        a replay reached a new step instead of the recorded one of that name
├── SelfApproval          an agent, or an actor that works for it, tried to decide for a person
├── NestedStep            a verb was used inside a step
├── EffectConflict        a unique key was used for another call
├── UnnamedThread         a verb was used in a bare thread without a name of its own
├── NotRecorded           a fork that only replays came to a call that was not recorded
├── NoMock                a mock task came to a call of a tool without a mock
├── ResumeExpired         the task is older than its agent resumes
├── ToolExited            a tool tried to end the process
├── NotDone               raised by a tool: nothing happened, so it may be tried again
├── RetriesExhausted      a function that holdfast.retry called raised in every attempt
├── TimeLimit             a deadline or a step's time limit has passed
├── TurnLimit             a loop did not come to an end
├── SeqOutOfRange         the log has no such position
├── StepNotFound          the task has no such step
├── Conflict              the log moved on; nothing was written
├── PatchConflict         a change conflicts with another writer's; shows both
├── StateMutated          a value that was read from the state was changed in place
├── KeyTaken              a unique key belongs to another call; nothing was written
├── InvalidEvent          this event may not follow what is in the log
│   └── InvalidTransition the phase or stage cannot be reached from here
├── InvalidValue          an argument is not what it must be
│   ├── InvalidInput      arguments do not fit the function they are for
│   ├── InvalidId         an id has characters or a length that is not allowed
│   ├── InvalidMessage    no provider would take this message; says where
│   ├── WindowTooSmall    what must be kept does not fit into the limit
│   ├── InvalidUrl        the store's address is not understood
│   ├── WebOpen           the page would be open to others
│   ├── InvalidState      a value does not fit the model of the state; says where
│   │   └── StateNotMigrated  the state is of another version than the agent's, and cannot become it
│   └── InvalidTemplate   a template cannot be read
│       └── UnknownName   a template names something that is not there
├── BudgetExceeded        a task, or one that pays for it, has used up its budget
├── UnknownPrice          a budget of money cannot be kept for a model without a price
├── ExportFailed          a collector did not take the spans that were sent to it
├── NotSerializable       a value is not JSON; says where
├── UnknownEvent          an event of a kind this version does not know
├── LogCorrupt            what is stored is not what was written; says where
├── ValueDamaged          a large value is missing or not what was written
└── StoreError            the store cannot do what was asked
    ├── NotAStore         the file is not a Holdfast database
    ├── StoreTooNew       written by a newer version
    ├── StoreReadOnly     the path cannot be written to
    ├── StoreFull         no room left
    ├── StoreBusy         other processes kept the store locked for too long
    ├── StoreUnreachable  the server does not answer, or refuses the login
    ├── StorePoisoned     whether a write was stored is unknown after an I/O error; reopen
    ├── Diverged          acknowledged events are gone; the task is frozen and not built upon
    ├── StoreClosed       the store was closed, or belongs to another process
    └── MissingExtra      an optional part is not installed
"""

from __future__ import annotations

from holdfast.core.errors.base import (
    HoldfastError as HoldfastError,
)
from holdfast.core.errors.control import (
    Cancelled as Cancelled,
    LeaseLost as LeaseLost,
    Stopped as Stopped,
    Suspended as Suspended,
    UnrecordedCall as UnrecordedCall,
    UnresolvedType as UnresolvedType,
)
from holdfast.core.errors.logs import (
    Conflict as Conflict,
    InvalidEvent as InvalidEvent,
    InvalidTransition as InvalidTransition,
    KeyTaken as KeyTaken,
    LogCorrupt as LogCorrupt,
    PatchConflict as PatchConflict,
    SeqOutOfRange as SeqOutOfRange,
    StateMutated as StateMutated,
    UnknownEvent as UnknownEvent,
    ValueDamaged as ValueDamaged,
)
from holdfast.core.errors.steps import (
    ApprovalDenied as ApprovalDenied,
    EffectConflict as EffectConflict,
    NestedStep as NestedStep,
    NoMock as NoMock,
    NotDone as NotDone,
    NotRecorded as NotRecorded,
    ReplayDiverged as ReplayDiverged,
    RetriesExhausted as RetriesExhausted,
    SelfApproval as SelfApproval,
    StepChanged as StepChanged,
    StepFailed as StepFailed,
    StepNotFound as StepNotFound,
    TimeLimit as TimeLimit,
    ToolExited as ToolExited,
    TurnLimit as TurnLimit,
    UnnamedThread as UnnamedThread,
)
from holdfast.core.errors.stores import (
    Diverged as Diverged,
    ExportFailed as ExportFailed,
    MissingExtra as MissingExtra,
    NotAStore as NotAStore,
    StoreBusy as StoreBusy,
    StoreClosed as StoreClosed,
    StoreError as StoreError,
    StoreFull as StoreFull,
    StorePoisoned as StorePoisoned,
    StoreReadOnly as StoreReadOnly,
    StoreTooNew as StoreTooNew,
    StoreUnreachable as StoreUnreachable,
)
from holdfast.core.errors.tasks import (
    InputConflict as InputConflict,
    QueueFull as QueueFull,
    ResumeExpired as ResumeExpired,
    TaskBusy as TaskBusy,
    TaskCollected as TaskCollected,
    TaskExists as TaskExists,
    TaskFailed as TaskFailed,
    TaskFinished as TaskFinished,
    TaskNotFound as TaskNotFound,
    ThreadBusy as ThreadBusy,
    ThreadNotFound as ThreadNotFound,
)
from holdfast.core.errors.values import (
    BudgetExceeded as BudgetExceeded,
    InvalidId as InvalidId,
    InvalidInput as InvalidInput,
    InvalidMessage as InvalidMessage,
    InvalidState as InvalidState,
    InvalidTemplate as InvalidTemplate,
    InvalidUrl as InvalidUrl,
    InvalidValue as InvalidValue,
    NotSerializable as NotSerializable,
    StateNotMigrated as StateNotMigrated,
    UnknownName as UnknownName,
    UnknownPrice as UnknownPrice,
    WebOpen as WebOpen,
    WindowTooSmall as WindowTooSmall,
)
