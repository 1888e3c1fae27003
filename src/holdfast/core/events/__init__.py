"""Every fact a log can hold. Imports only what stands beside it in core.

`base` has Event and the parts events are made of, `effects` what a tool may do to the world, `lifecycle` a task's
life, `steps` work, waits and approvals, `knowledge` what an agent learns, `changes` patches, `kinds` every event by
its stored name. Import it as `from holdfast.core import events as ev`.
"""

from __future__ import annotations

from holdfast.core.events.base import (
    FOR_PEOPLE as FOR_PEOPLE,
    Event as Event,
    Failure as Failure,
    Fields as Fields,
    Limits as Limits,
    Usage as Usage,
    Value as Value,
    WaitKind as WaitKind,
    kind_of as kind_of,
)
from holdfast.core.events.changes import (
    Changes as Changes,
    PatchedArtifact as PatchedArtifact,
    PatchedFact as PatchedFact,
)
from holdfast.core.events.effects import (
    ANNOUNCED as ANNOUNCED,
    CHANGING as CHANGING,
    REPEATABLE as REPEATABLE,
    TRANSACTIONAL as TRANSACTIONAL,
    Effect as Effect,
)
from holdfast.core.events.kinds import (
    BY_KIND as BY_KIND,
    KIND as KIND,
    Erased as Erased,
)
from holdfast.core.events.knowledge import (
    ArtifactAdded as ArtifactAdded,
    DecisionMade as DecisionMade,
    ExpirySet as ExpirySet,
    FactLearned as FactLearned,
    FlagCleared as FlagCleared,
    FlagRaised as FlagRaised,
    GoalSet as GoalSet,
    LogWritten as LogWritten,
    MessageAdded as MessageAdded,
    MessagesRemoved as MessagesRemoved,
    MessagesSummarised as MessagesSummarised,
    MetadataSet as MetadataSet,
    NoteSet as NoteSet,
    PatchRefused as PatchRefused,
    PlanSet as PlanSet,
    PlanStepDone as PlanStepDone,
    QuestionClosed as QuestionClosed,
    QuestionOpened as QuestionOpened,
    StateAppended as StateAppended,
    StateDeleted as StateDeleted,
    StateIncremented as StateIncremented,
    StateMigrated as StateMigrated,
    StatePatched as StatePatched,
    StateSet as StateSet,
    StateUpdated as StateUpdated,
    TaskJoined as TaskJoined,
    ThreadCreated as ThreadCreated,
    ThreadPatched as ThreadPatched,
    UserCreated as UserCreated,
    UserPatched as UserPatched,
)
from holdfast.core.events.lifecycle import (
    Blocker as Blocker,
    CancelRequested as CancelRequested,
    CheckpointMade as CheckpointMade,
    DivergenceAccepted as DivergenceAccepted,
    LostCall as LostCall,
    PhaseSet as PhaseSet,
    Pins as Pins,
    RolledBack as RolledBack,
    StageSet as StageSet,
    TaskCancelled as TaskCancelled,
    TaskClaimed as TaskClaimed,
    TaskCompleted as TaskCompleted,
    TaskCreated as TaskCreated,
    TaskDiverged as TaskDiverged,
    TaskFailed as TaskFailed,
    TaskForked as TaskForked,
    TaskReleased as TaskReleased,
    TaskReopened as TaskReopened,
    TaskSuspended as TaskSuspended,
    TurnStarted as TurnStarted,
    UndoStarted as UndoStarted,
)
from holdfast.core.events.steps import (
    ApprovalAsked as ApprovalAsked,
    ApprovalGiven as ApprovalGiven,
    ApprovalRefused as ApprovalRefused,
    AttemptFailed as AttemptFailed,
    BudgetRaised as BudgetRaised,
    ChildSpent as ChildSpent,
    CompensationAdded as CompensationAdded,
    SignalReceived as SignalReceived,
    StepCompleted as StepCompleted,
    StepDoubted as StepDoubted,
    StepFailed as StepFailed,
    StepObserved as StepObserved,
    StepSettled as StepSettled,
    StepStarted as StepStarted,
    StepVoided as StepVoided,
    WaitEnded as WaitEnded,
    WaitStarted as WaitStarted,
)
