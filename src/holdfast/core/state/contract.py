"""The contract: what an agent is to do and knows, as JSON that agents and people hand to each other.

`read` makes sure that JSON is one, `beginning` gives the events a task begins with, `whole` those of a state that
stands alone, and `document` is the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from holdfast.core import codec, events as ev, limits
from holdfast.core.errors import InvalidValue
from holdfast.core.events import KIND, Effect, Event, Failure, Limits
from holdfast.core.phases import DEFAULT, Moves
from holdfast.core.state.shapes import State, Step, StepStatus, goal_of

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]


class HumanInTheLoop(Struct, frozen=True, omit_defaults=True):
    """Calls of tools with one of these risks wait for a person's approval."""

    required_for_risk_levels: tuple[str, ...] = ()


class Constraints(Struct, frozen=True, omit_defaults=True):
    """What the work must keep to. Fields of your own are kept as they are."""

    human_in_the_loop: HumanInTheLoop = HumanInTheLoop()


class ContractBudget(Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """How much the work may take; what is left out has no limit."""

    max_steps: Count | None = None
    max_wall_time_ms: Count | None = None
    max_llm_tokens: Count | None = None
    max_artifact_bytes_in_context: Count | None = None
    max_turns: Count | None = None
    max_calls: Count | None = None
    max_cost: Amount | None = None
    on_exceed: Literal["fail", "ask"] = "fail"


class KnownFact(Struct, frozen=True, forbid_unknown_fields=True):
    """Something learned, and from where."""

    key: str
    value: Any
    source: str = ""


class KnownArtifact(Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """Something made; its data may be left out."""

    artifact_id: str
    type: str
    summary: str = ""
    bytes: Count = 0
    step: str = ""
    data: Any = None


class Decision(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A choice, its reason and the options not taken."""

    question: str
    choice: Any
    why: str = ""
    options: Any = []


class KnownFailure(Failure, frozen=True, forbid_unknown_fields=True):
    """An exception as data: what, where, and because of what."""

    cause: KnownFailure | None = None
    group: tuple[KnownFailure, ...] = ()


class ContractCall(Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a tool and what became of it."""

    key: str
    tool: str
    status: StepStatus
    turn: Count = 0
    effect: Effect = "idempotent"
    arguments: dict[str, Any] = {}
    result: Any = UNSET
    error: KnownFailure | None = None
    attempts: Count = 1
    idempotency_key: str = ""


class Contract(Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent is to do and knows. Every section may be left out."""

    goal: str = ""
    constraints: Constraints = Constraints()
    budget: ContractBudget | None = None
    plan: list[str] = []
    known_facts: list[KnownFact] = []
    open_questions: list[str] = []
    artifacts: list[KnownArtifact] = []
    risk_flags: list[str] = []
    plan_done: list[str] = []
    notes: dict[str, Any] = {}
    stage: str | None = None
    phase: str = "idle"
    turn: Count = 0
    decisions: list[Decision] = []
    messages: list[Any] = []
    tool_calls: list[ContractCall] = []
    final_answer: Any = field(default=UNSET)
    error: KnownFailure | None = None
    state: dict[str, Any] = {}


class Reading(NamedTuple):
    """A contract that was read, and its constraints word for word."""

    contract: Contract
    constraints: Raw | UnsetType


class Beginning(NamedTuple):
    """What a contract adds to the first event of a task, and the events that follow it in the same write."""

    fields: dict[str, Any]
    then: tuple[Event, ...]


def schema() -> dict[str, Any]:
    """Return a contract's form, as JSON Schema."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **codec.schema(Contract)}


# Reading


def read(given: str | bytes | Mapping[str, Any]) -> Reading:
    """Read a contract from JSON text or a mapping; refuse anything else, with the place in it."""
    document = _parsed(given)
    try:
        contract: Contract = codec.load(codec.text(document).encode(), Contract)
    except ValueError as error:
        raise _refusal(str(error)) from None
    _check(contract)
    constraints = document.get("constraints")
    return Reading(contract, codec.pack(constraints, "constraints") if constraints else UNSET)


def _parsed(given: Any) -> dict[str, Any]:
    document = given
    if isinstance(given, str | bytes):
        try:
            document = codec.parse(given.decode() if isinstance(given, bytes) else given)
        except ValueError as error:
            raise InvalidValue(f"the contract is not JSON: {error}", hint="give JSON text, or a dict") from None
    if not isinstance(document, Mapping):
        raise InvalidValue(f"{str(given)[:80]!r} is not a contract", hint='give an object: {"goal": …, "plan": […]}')
    return dict(cast("Mapping[str, Any]", document))


def _refusal(why: str) -> InvalidValue:
    unknown = why.startswith("Object contains unknown field") and "- at" not in why
    if unknown:
        section = why.partition("`")[2].partition("`")[0]
        return InvalidValue(
            f"a contract has no section {section!r}",
            hint=f"rules of your own go into constraints, values into state; it has {list(Contract.__struct_fields__)}",
        )
    return InvalidValue(f"the contract is not valid: {why}", hint="its JSON Schema is docs/contract.schema.json")


def _check(contract: Contract) -> None:
    """Refuse what cannot be kept as it is."""
    _refuse_twice("known_facts", (fact.key for fact in contract.known_facts))
    _refuse_twice("artifacts", (one.artifact_id for one in contract.artifacts))
    _refuse_twice("tool_calls", (f"{call.turn}/{call.key}" for call in contract.tool_calls))
    for section in ("open_questions", "risk_flags", "plan_done"):
        _refuse_twice(section, getattr(contract, section))
    unplanned = [step for step in contract.plan_done if step not in contract.plan]
    if unplanned:
        raise InvalidValue(f"plan_done has {unplanned[0]!r}, which the plan has not", hint="add it to the plan")
    if contract.final_answer is not UNSET and contract.error is not None:
        raise InvalidValue("the contract has a final_answer and an error", hint="a task ends in one way: give one")
    last = 0
    for call in contract.tool_calls:
        _check_call(call, last, contract.turn)
        last = call.turn
    weight = contract.turn + sum(len(getattr(contract, section)) for section in _LISTED)
    if weight > limits.MAX_CONTRACT_ITEMS:
        raise InvalidValue(
            f"the contract has {weight:,} items", hint=f"give at most {limits.MAX_CONTRACT_ITEMS:,}; leave out messages"
        )


_LISTED = (
    *("known_facts", "artifacts", "tool_calls", "open_questions", "risk_flags", "plan_done"),
    *("notes", "state", "decisions", "messages"),
)


def _refuse_twice(section: str, given: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in given:
        if name in seen:
            raise InvalidValue(f"{section} has {name!r} twice", hint="give each once")
        seen.add(name)


def _check_call(call: ContractCall, last: int, turn: int) -> None:
    wrong = ""
    if not last <= call.turn <= turn:
        wrong = f"is of turn {call.turn}, which is not between {last} and {turn}"
    elif call.status in _OPEN and call.turn != turn:
        wrong = f"is {call.status}, and not of the last turn"
    elif (call.result is not UNSET) != (call.status == "completed"):
        wrong = "is completed without a result" if call.status == "completed" else f"is {call.status} with a result"
    elif call.error is None and call.status in ("failed", "retrying"):
        wrong = f"is {call.status} without an error"
    elif call.error is not None and call.status == "running":
        wrong = "is running with an error"
    if wrong:
        raise InvalidValue(f"call {call.key!r} {wrong}", hint="give calls in the order of turns, as they ended")


_OPEN = ("running", "retrying", "doubt")


# Into events


def beginning(reading: Reading) -> Beginning:
    """Return the first events of a new task. Phase, turn, calls and ending are its own, and are not taken over."""
    contract = reading.contract
    budget = contract.budget
    fields: dict[str, Any] = {
        "goal": contract.goal,
        "constraints": reading.constraints,
        "risks": contract.constraints.human_in_the_loop.required_for_risk_levels,
        "budget": _limits(budget) if budget is not None and budget != ContractBudget() else UNSET,
    }
    fields = {name: value for name, value in fields.items() if value is not UNSET}
    then = tuple(_known(contract))
    fields["contract"] = codec.fingerprint([fields, [[KIND[type(one)], one] for one in then]])[:32]
    return Beginning(fields, then)


_SAME = {
    "turns": "max_turns",
    "steps": "max_steps",
    "calls": "max_calls",
    "tokens": "max_llm_tokens",
    "cost": "max_cost",
    "artifact_bytes": "max_artifact_bytes_in_context",
    "on_exceed": "on_exceed",
}
"""What a budget's limits are called in a contract."""


def _limits(budget: ContractBudget) -> Limits:
    wall_us = None if budget.max_wall_time_ms is None else budget.max_wall_time_ms * 1_000
    return Limits(**{ours: getattr(budget, theirs) for ours, theirs in _SAME.items()}, wall_us=wall_us)


def _budget(limits: Limits) -> ContractBudget:
    wall_ms = None if limits.wall_us is None else limits.wall_us // 1_000
    return ContractBudget(**{theirs: getattr(limits, ours) for ours, theirs in _SAME.items()}, max_wall_time_ms=wall_ms)


def fold_contract(reading: Reading) -> list[Event]:
    """The events of a state that stands alone: what is known, and the life it describes."""
    contract = reading.contract
    fields, then = beginning(reading)
    events: list[Event] = [ev.TaskCreated(agent="nobody", phases=_standing(contract.phase), **fields), *then]
    calls = iter(contract.tool_calls)
    call = next(calls, None)
    for turn in range(contract.turn + 1):
        if turn:
            events.append(ev.TurnStarted(turn=turn))
        while call is not None and call.turn == turn:
            events += _called(call)
            call = next(calls, None)
    if contract.final_answer is not UNSET:
        events.append(ev.TaskCompleted(result=codec.pack(contract.final_answer, "final_answer")))
    if contract.error is not None:
        events.append(ev.TaskFailed(failure=contract.error))
    return events


def _known(contract: Contract) -> Iterator[Event]:
    if contract.plan:
        yield ev.PlanSet(steps=tuple(contract.plan))
    yield from (ev.PlanStepDone(step=step) for step in contract.plan_done)
    for fact in contract.known_facts:
        value = codec.pack(fact.value, f"known_facts[{fact.key!r}]")
        yield ev.FactLearned(key=fact.key, value=value, source=fact.source)
    yield from (ev.QuestionOpened(question=question) for question in contract.open_questions)
    for one in contract.artifacts:
        same: dict[str, Any] = {name: getattr(one, name) for name in _ARTIFACT}
        yield ev.ArtifactAdded(**same, step=one.step, data=codec.pack(one.data, f"artifacts[{one.artifact_id!r}]"))
    yield from (ev.FlagRaised(flag=flag) for flag in contract.risk_flags)
    yield from (ev.NoteSet(key=key, value=codec.pack(value)) for key, value in contract.notes.items())
    yield from (ev.StateSet(name=name, value=codec.pack(value)) for name, value in contract.state.items())
    if contract.stage is not None:
        yield ev.StageSet(stage=contract.stage)
    for made in contract.decisions:
        left = UNSET if made.options == [] else codec.pack(made.options)
        yield ev.DecisionMade(question=made.question, choice=codec.pack(made.choice), why=made.why, options=left)
    yield from (ev.MessageAdded(message=codec.pack(message)) for message in contract.messages)


_ARTIFACT = ("artifact_id", "type", "summary", "bytes")


def _standing(phase: str) -> Moves | None:
    """A machine that begins in a phase; one of an unknown phase leads nowhere."""
    if phase == DEFAULT.start:
        return None
    return Moves(DEFAULT.moves, phase, DEFAULT.events) if phase in DEFAULT.moves else Moves({phase: ()}, phase)


def _called(call: ContractCall) -> Iterator[Event]:
    """Describe a call's outcome in as few words as possible."""
    same: dict[str, Any] = {name: getattr(call, name) for name in ("key", "tool", "effect", "idempotency_key")}
    same |= {"name": call.tool, "input": {name: codec.pack(value) for name, value in call.arguments.items()}}
    result = UNSET if call.result is UNSET else codec.pack(call.result, f"the result of {call.key!r}")
    if call.status == "retrying" and call.error is not None:
        yield ev.AttemptFailed(**same, attempt=call.attempts, failure=call.error, retry_us=0)
        return
    if call.error is not None:
        yield ev.StepFailed(**same, attempts=call.attempts, failure=call.error)
    elif isinstance(result, Raw):
        yield ev.StepCompleted(**same, attempts=call.attempts, result=result)
        return
    else:
        yield ev.StepStarted(**same, attempt=call.attempts)
    if call.status == "doubt":
        yield ev.StepDoubted(key=call.key)
    elif call.status in ("completed", "void"):
        yield ev.StepSettled(key=call.key, happened=call.status == "completed", result=result)


# And back


def document(
    state: State,
    value: Callable[[Raw], Any],
    *,
    decisions: Sequence[Mapping[str, Any]],
    messages: Sequence[Any],
    calls: Iterable[tuple[int, Step]],
) -> dict[str, Any]:
    """A state as a contract: the sections everybody knows, and of the others those that have something to say."""
    known: dict[str, Any] = {
        "goal": goal_of(state, value),
        "constraints": {} if state.constraints is UNSET else value(state.constraints),
        "budget": {} if state.budget is None else codec.as_json(_budget(state.budget)),
        "plan": [step.text for step in state.plan],
        "known_facts": [
            {"key": key, "value": value(fact.value), "source": fact.source} for key, fact in state.facts.items()
        ],
        "open_questions": list(state.questions),
        "artifacts": [_artifact(id, one, value) for id, one in state.artifacts.items()],
        "risk_flags": list(state.flags),
    }
    further: dict[str, Any] = {
        "plan_done": list(dict.fromkeys(step.text for step in state.plan if step.done)),
        "notes": {key: value(raw) for key, raw in state.notes.items()},
        "stage": state.summary.stage,
        "phase": "" if state.phases is None and state.own_phase == DEFAULT.start else state.own_phase,
        "turn": state.turn,
        "decisions": [dict(made) for made in decisions],
        "messages": list(messages),
        "tool_calls": [_call(turn, step, value) for turn, step in calls],
        "error": None if state.failure is None else codec.as_json(state.failure),
        "state": {name: value(raw) for name, raw in state.bag.items()},
    }
    ended = {} if state.result is UNSET else {"final_answer": value(state.result)}
    return known | {name: one for name, one in further.items() if one not in _NOTHING} | ended


_NOTHING: tuple[Any, ...] = (None, "", 0, [], {})


def _artifact(id: str, one: Any, value: Callable[[Raw], Any]) -> dict[str, Any]:
    shown = {"artifact_id": id, "type": one.type, "summary": one.summary, "bytes": one.bytes}
    data = value(one.data)
    step = {"step": one.step} if one.step else {}
    return shown | step | ({} if data is None else {"data": data})


def _call(turn: int, step: Step, value: Callable[[Raw], Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {name: getattr(step, name) for name in ("key", "tool", "status", "effect")}
    shown["arguments"] = {name: value(raw) for name, raw in step.input.items()}
    if step.status == "completed":
        shown["result"] = value(step.result)
    if step.failure is not None:
        shown["error"] = codec.as_json(step.failure)
    more = {"turn": turn, "idempotency_key": step.idempotency_key}
    shown |= {name: given for name, given in more.items() if given}
    return shown if step.attempts == 1 else shown | {"attempts": step.attempts}
