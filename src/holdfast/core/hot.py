"""The shapes of state: what a task needs in order to go on (law 6).

The bag, plan, facts, open things, the steps of this turn, totals. Values stay encoded; whoever looks decodes them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from holdfast.core import codec
from holdfast.core.events import Effect, Failure, Fields, WaitKind
from holdfast.core.records import Summary

FOLD_VERSION = 1
"""Changes when the same events fold to something else; older snapshots are then ignored."""

ENDED = ("completed", "failed", "cancelled")

StepStatus = Literal["running", "retrying", "completed", "failed", "doubt", "void"]


class Step(Struct, frozen=True, omit_defaults=True, gc=False, array_like=True):
    """One step of the current turn and what became of it."""

    key: str
    name: str
    status: StepStatus
    first_seq: int
    last_seq: int
    started_us: int
    ended_us: int = 0
    attempts: int = 1
    input: Fields = {}
    result: Raw = codec.JSON_NULL
    failure: Failure | None = None
    tool: str = ""
    effect: Effect = "idempotent"
    idempotency_key: str = ""
    unique: str = ""
    risk: str = ""
    retry_us: int = 0
    failures: tuple[Failure, ...] = ()

    @property
    def open(self) -> bool:
        """Announced, without an outcome."""
        return self.status in ("running", "retrying", "doubt")


class Fact(Struct, frozen=True, omit_defaults=True, gc=False):
    value: Raw
    source: str
    at_us: int


class Artifact(Struct, frozen=True, omit_defaults=True, gc=False):
    type: str
    summary: str
    bytes: int
    step: str
    seq: int
    data: Raw = codec.JSON_NULL


class PlanStep(Struct, frozen=True, omit_defaults=True, gc=False):
    text: str
    done: bool = False


class Wait(Struct, frozen=True, omit_defaults=True, gc=False):
    key: str
    kind: WaitKind
    name: str
    prompt: Raw
    since_us: int
    wake_us: int | None = None


class Signal(Struct, frozen=True, omit_defaults=True, gc=False):
    """A signal nobody has taken yet."""

    name: str
    value: Raw
    by: str
    seq: int


class Messages(Struct, frozen=True, omit_defaults=True, gc=False):
    """A conversation by its identity: how many messages, and their running digest."""

    count: int = 0
    digest: str = ""


class Hot(Struct, omit_defaults=True, kw_only=True):
    """The hot state of a task. Private to whoever evolves it; everybody else gets a copy."""

    summary: Summary
    seq: int = 0
    updated_us: int = 0
    log_created_us: int = 0
    input: Fields = {}
    seed: str = ""
    salt: str = ""
    version: str = ""
    stages: tuple[str, ...] = ()
    goal: str = ""
    phase: str = "idle"
    turn: int = 0
    turn_seq: int = 0
    effects: str = "live"
    result: Raw | UnsetType = UNSET
    failure: Failure | None = None
    cancel: tuple[str, str] | None = None
    steps: dict[str, Step] = {}
    waits: dict[str, Wait] = {}
    signals: list[Signal] = []
    plan: list[PlanStep] = []
    facts: dict[str, Fact] = {}
    questions: list[str] = []
    artifacts: dict[str, Artifact] = {}
    notes: dict[str, Raw] = {}
    flags: list[str] = []
    bag: dict[str, Raw] = {}
    messages: Messages = Messages()
    decisions: int = 0
    checkpoints: dict[str, int] = {}
    kept: dict[str, Step] = {}
    said: dict[str, int] = {}
    steps_done: int = 0

    def copy(self) -> Hot:
        """A state of its own: containers are copied, the frozen things in them are shared."""
        return replace(self, **{name: getattr(self, name).copy() for name in _CONTAINERS})

    @property
    def ended(self) -> bool:
        """Completed, failed or cancelled."""
        return self.summary.status in ENDED


_CONTAINERS = (
    *("steps", "waits", "signals", "plan", "facts", "questions", "artifacts"),
    *("notes", "flags", "bag", "checkpoints", "kept", "said"),
)
