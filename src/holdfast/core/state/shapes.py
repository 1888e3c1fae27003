"""The shapes of state: what a task needs in order to resume (law 6).

The bag, plan, facts, open things, the steps of this turn, totals. Values stay encoded; readers decode them.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from holdfast.core import codec
from holdfast.core.codec import Summary
from holdfast.core.events import ANNOUNCED, Blocker, Changes, Effect, Failure, Fields, Limits, Pins, Usage, WaitKind
from holdfast.core.phases import Moves

FOLD_VERSION = 5
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
    undo: str = ""
    deferred: bool = False
    announced_us: int = 0
    safe: bool = False
    estimate: Usage | None = None
    raised: Failure | None = None
    until_us: int = 0
    maybe_done: bool = False
    settled: bool = False

    @property
    def unsettled(self) -> bool:
        """Announced with effect `once`, and it is unknown whether it happened."""
        return self.effect in ANNOUNCED and self.status in ("running", "doubt")

    @property
    def done(self) -> bool:
        """Has its outcome."""
        return self.status in ("completed", "failed")

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
    answer: Raw | UnsetType = UNSET


class Approval(Struct, frozen=True, omit_defaults=True, gc=False):
    """A person's approval of one call: bound to it, used once."""

    key: str
    name: str
    status: Literal["asked", "given", "refused", "used", "expired"]
    bound: str
    seq: int
    asked_us: int
    tool: str = ""
    risk: str = ""
    input: Fields = {}
    prompt: Raw = codec.JSON_NULL
    wake_us: int | None = None
    until_us: int | None = None
    by: str = ""
    why: str = ""
    changed: bool = False
    """Whether it was asked for under this key before, for other arguments."""


class Undo(Struct, frozen=True, omit_defaults=True, gc=False):
    """Something done that would have to be undone, and by what."""

    name: str
    step: str = ""
    tool: str = ""
    idempotency_key: str = ""
    input: Fields = {}
    result: Raw = codec.JSON_NULL
    maybe_done: bool = False
    unique: str = ""


class Signal(Struct, frozen=True, omit_defaults=True, gc=False):
    """A signal that has not been taken yet."""

    name: str
    value: Raw
    by: str
    seq: int


class Lost(Struct, frozen=True, omit_defaults=True, gc=False):
    """Something that may have been paid for, though no usage of it is on record."""

    step: str
    why: str
    estimate: Usage
    at_us: int


class Spent(Struct, frozen=True, omit_defaults=True, gc=False):
    """What was used up, by the task and by the children it pays for; and what may have been, apart."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    lost: tuple[Lost, ...] = ()
    lost_count: int = 0
    lost_tokens: int = 0
    lost_cost: float = 0.0
    unpriced: str = ""


class Messages(Struct, frozen=True, omit_defaults=True, gc=False):
    """A conversation by its identity: how many messages, and their running digest."""

    count: int = 0
    digest: str = ""


class Summarised(Struct, frozen=True, omit_defaults=True, gc=False):
    """What stands for the messages at these positions (ranges, their ends not included), and what it took to make."""

    text: Raw
    covers: tuple[tuple[int, int], ...]
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    basis: str = "estimate"
    seq: int = 0


class Refusal(Struct, frozen=True, omit_defaults=True, gc=False):
    """A change that an agent asked for and that was not made, with both sides."""

    path: str
    mine: str
    theirs: str
    base: Raw
    by: str = ""
    required: bool = False
    user: bool = False
    seq: int = 0
    thread: bool = False


class Divergence(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a log has lost: from where to where, which calls, and up to which turn there may be more of them."""

    known_seq: int
    head_seq: int
    calls: tuple[str, ...] = ()
    unsure_upto: int = -1


class State(Struct, omit_defaults=True, kw_only=True):
    """The state of a task: what it needs in order to resume. Only `evolve` changes it; everyone else gets a copy."""

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
    phase_below: str = ""
    """The phase the agent itself is in, while its task asks, is completed or has failed."""
    phases: Moves | None = None
    constraints: Raw | UnsetType = UNSET
    risks: tuple[str, ...] = ()
    contract: str = ""
    begun: int = 0
    attempts: int = 0
    turn: int = 0
    turn_seq: int = 0
    effects: str = "live"
    result: Raw | UnsetType = UNSET
    failure: Failure | None = None
    failed_at: int = 0
    failed_step: str = ""
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
    state_version: int = 0
    messages: Messages = Messages()
    summarised: Summarised | None = None
    decisions: int = 0
    checkpoints: dict[str, int] = {}
    kept: dict[str, Step] = {}
    immediates: dict[str, int] = field(name="said", default_factory=dict)  # pyright: ignore
    steps_done: int = 0
    approvals: dict[str, Approval] = {}
    undo: list[Undo] = []
    undoing: bool = False
    block: bool = False
    prelude: dict[str, Step] = {}
    prelude_immediates: dict[str, int] = field(name="prelude_said", default_factory=dict)  # pyright: ignore
    refused: dict[str, Refusal] = {}
    """Changes refused in this turn, by their content; few tasks have any, so it is replaced, and never copied."""
    forked_from: str = ""
    forked_at: int = 0
    joint: tuple[int, int] = (0, 0)
    budget: Limits | None = None
    payers: tuple[str, ...] = ()
    spent: Spent = Spent()
    calls_done: int = 0
    held_us: int = 0
    held_since_us: int = 0
    pressed: tuple[str, ...] = ()
    pins: Pins = Pins()
    user_changes: tuple[Changes, ...] = ()
    thread_changes: tuple[Changes, ...] = ()
    deaths: int = 0
    died_at: int = -1
    silent_seq: int = 0
    wait_note: str = ""
    blockers: tuple[Blocker, ...] = ()
    divergence: Divergence | None = None
    maybe_done: dict[str, Step] = {}
    key_space: str = ""
    claimed_seq: int = 0
    answered_seq: int = 0
    looked: bool = False
    actors: tuple[str, ...] = ()
    """Who started, forked or patched the task through MCP: none of them may approve its calls."""
    metadata: dict[str, Raw] = {}
    expire_us: int = 0
    expired: bool = False
    cleared: int = 0
    popped: tuple[int, ...] = ()
    """Of a thread: up to which seq no message counts any more, and which of those after it do not."""

    @property
    def mock(self) -> bool:
        """True if every call of a tool is answered by its mock."""
        return self.summary.mock

    @property
    def own_phase(self) -> str:
        """The phase that the agent itself moved to."""
        return self.phase_below or self.phase

    def copy(self) -> State:
        """A state of its own: containers are copied, the frozen things in them are shared."""
        return replace(self, **dict(zip(CONTAINERS, [one.copy() for one in _containers(self)], strict=True)))

    @property
    def entries(self) -> int:
        """How many things its containers hold."""
        return sum(map(len, _containers(self)))

    def sketch(self) -> State:
        """A state that what an agent says may be applied to: only what sayings change is copied."""
        return replace(self, immediates={}, **{name: getattr(self, name).copy() for name in _SAID})

    def steps_of(self, turn: int) -> dict[str, Step]:
        """The steps of this turn; or, for a block that has reached its turns, those before the first."""
        return self.steps if turn == self.turn else self.prelude

    def joined(self, seq: int) -> int:
        """Return how far a branch sees that saw up to there. The last event a fork inherits shows its patch too."""
        return self.joint[1] if seq and seq == self.joint[0] else seq

    @property
    def ended(self) -> bool:
        """Completed, failed or cancelled."""
        return self.summary.status in ENDED


def goal_of(state: State, value: Callable[[Raw], Any]) -> str:
    """Return what a task is to reach: as a verb, its start or its contract says; or as its input does."""
    given: Any = state.goal or (value(state.input["goal"]) if "goal" in state.input else "")
    return given if isinstance(given, str) else codec.text(given)


_SAID = ("plan", "facts", "questions", "artifacts", "notes", "flags", "bag", "checkpoints", "undo")
"""The lists and dicts that immediate verbs change."""

CONTAINERS = tuple(name for name, kind in State.__annotations__.items() if kind.startswith(("dict[", "list[")))
"""Every list and dict of a state but `input`, which never changes."""

_containers: Callable[[State], tuple[Any, ...]] = attrgetter(*CONTAINERS)
