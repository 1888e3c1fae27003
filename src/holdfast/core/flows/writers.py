"""Changes that other writers may be faster than: read-modify-write, and what holds only if nothing came between.

A branch that has made such a change holds it back, and what it says after it, until its next waiting verb. There it is
written, or the refusal in its place; and that verb raises PatchConflict, on replay too, before it does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import Head, failures
from holdfast.core.errors import Conflict, InvalidEvent, PatchConflict, StoreError
from holdfast.core.events import Event
from holdfast.core.flows.requests import (
    Append,
    Branch,
    Flow,
    Held,
    Linked,
    LinkedNow,
    ReadLinked,
    Reads,
    Revise,
    Subflow,
    Surroundings,
    Unsettled,
)
from holdfast.core.flows.step import recorded_result
from holdfast.core.flows.stops import may_begin
from holdfast.core.names import own_name, thread_log, user_log
from holdfast.core.state import merge, paths, rules
from holdfast.core.state.fold import evolve
from holdfast.core.state.paths import Path
from holdfast.core.state.shapes import State

LINKED = (ev.UserPatched, ev.ThreadPatched)
"""Changes of a log beside the task's own."""

_WHOSE: tuple[Linked, ...] = ("user", "thread")


def linked_by(event: Event) -> Linked | None:
    """Whose state an event changes: the user's, the thread's, or none but the task's own."""
    if isinstance(event, ev.UserPatched):
        return "user"
    return "thread" if isinstance(event, ev.ThreadPatched) else None


def update(surroundings: Surroundings, branch: Branch, path: Path, make: Callable[[State, str], Event]) -> Flow:
    """Make a new value of the newest one. If another writer was faster, the function is called again.

    What it raises is recorded, as a step's failure is: a replay must not find that it has a value by now.
    """
    key = branch.key(f"update {'.'.join(path)}")
    of: Linked | None = next((one for one in _WHOSE if one == path[0]), None)
    for _ in range(limits.MAX_UPDATE_TRIES):
        known = surroundings.state.steps_of(branch.turn).get(key)
        if known is not None:
            return recorded_result(surroundings.state, branch, known)
        yield from may_begin(surroundings, branch, key)
        if surroundings.unwritten:
            yield Append()
        looked = surroundings.state.seq
        linked: LinkedNow | None = (yield ReadLinked(of)) if of is not None else None
        head = None if linked is None else linked.head
        try:
            event = yield Revise(
                lambda state: make(state, key), surroundings.state if linked is None else linked.state, key
            )
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 — whatever a user's function raises is how the verb ends
            event = _failed(key, error, surroundings)
        if isinstance(event, LINKED) and head is not None:
            event = replace(event, seen=head.seq + 1)
        reads = Reads(looked, (path if of is None else (of,),))
        heads: tuple[tuple[Linked, Head], ...] = ((of, head),) if of is not None and head is not None else ()
        yield Append((event,), decided=True, reads=reads, heads=heads)
    raise _overtaken(surroundings.state, of)


def _failed(key: str, error: Exception, surroundings: Surroundings) -> ev.StepFailed:
    failure = failures.failure(error, secrets=tuple(surroundings.secrets))
    return ev.StepFailed(key=key, name=own_name(key), failure=failure, attempts=1, effect="read")


def _overtaken(state: State, of: Linked | None) -> Conflict:
    """The error about a write that others were faster than every time."""
    if of == "user":
        return Conflict(user_log(state.summary.user or ""), state.pins.user, None)
    if of == "thread":
        return Conflict(thread_log(state.summary.thread or ""), state.pins.thread, None)
    return Conflict(state.summary.id, state.seq, None)


def unsettled(surroundings: Surroundings, branch: Branch) -> Unsettled:
    """Hold something back in a branch: it is settled before the next waiting verb, or at the end."""
    if branch not in surroundings.unsettled:
        surroundings.unsettled.append(branch)
    branch.unsettled = branch.unsettled or Unsettled({})
    return branch.unsettled


def settle(surroundings: Surroundings, branch: Branch) -> Subflow:
    """Write what a branch held back; PatchConflict if something of it was refused, now or when it was recorded."""
    unsettled = branch.unsettled
    if unsettled is None:
        return
    if unsettled.held:
        yield from _write_held(surroundings, unsettled)
    if unsettled.refused:
        refused, unsettled.refused = unsettled.refused, []
        (first, _), (last, said) = refused[0], refused[-1]
        branch.see_refused(last.seq, said)
        summary = surroundings.state.summary
        shown = {name: getattr(first, name) for name in ("mine", "theirs", "by", "required")}
        user = (summary.user or "") if first.user else ""
        thread = (summary.thread or "") if first.thread else ""
        base = surroundings.value(first.base)
        raise PatchConflict(summary.id, first.path, **shown, base=base, user=user, thread=thread)


def settle_all(surroundings: Surroundings) -> Subflow:
    """The same for every branch, when the agent's function has returned: a refusal is then how its task ends."""
    while surroundings.unsettled:
        yield from settle(surroundings, surroundings.unsettled.pop())


def write_all_held(surroundings: Surroundings) -> Subflow:
    """Write what branches held back when the agent's function has failed: the failure is what people see."""
    while surroundings.unsettled:
        unsettled = surroundings.unsettled.pop().unsettled
        if unsettled is not None and unsettled.held:
            yield from _write_held(surroundings, unsettled)


def _write_held(surroundings: Surroundings, unsettled: Unsettled) -> Subflow:
    held = tuple(unsettled.held)
    of: list[Linked] = [one for one in _WHOSE if any(linked_by(each.event) == one for each in held)]
    for _ in range(limits.MAX_UPDATE_TRIES):
        if surroundings.unwritten:
            yield Append()
        looked = surroundings.state.seq
        now: dict[Linked, LinkedNow] = {}
        for one in of:
            now[one] = yield ReadLinked(one, min(_since(held, one), default=None))
        events = _decided(surroundings, held, now)
        reads = Reads(looked, (*((one,) for one in _WHOSE), *_required(held)))
        heads: tuple[tuple[Linked, Head], ...] = tuple(
            (one, found.head) for one, found in now.items() if found.head is not None
        )
        if (yield Append(events, decided=True, reads=reads, heads=heads)):
            del unsettled.held[: len(held)]
            refused = surroundings.state.refused
            unsettled.refused += [(refused[one.key], one.said) for one in held if one.key in refused]
            return
    raise _overtaken(surroundings.state, of[0] if of else None)


def _since(held: Sequence[Held], of: Linked) -> list[int]:
    """The seqs at which fields were read that these changes of a linked state count on."""
    found = (one.condition for one in held if linked_by(one.event) == of)
    return [seq for condition in found if condition is not None for seq in condition.since.values()]


def _required(held: Sequence[Held]) -> list[Path]:
    """Return the values of the task's own state that these changes require."""
    patches = [one.event.patch for one in held if isinstance(one.event, ev.StatePatched)]
    return [("state", *paths.parts_of((), name)) for patch in patches for name in patch.require]


def _decided(surroundings: Surroundings, held: Sequence[Held], now: Mapping[Linked, LinkedNow]) -> tuple[Event, ...]:
    """What is written: each change that holds, and a refusal for each that does not."""
    state = surroundings.state.sketch()
    theirs: dict[Linked, State] = {of: found.state.copy() for of, found in now.items()}
    events: list[Event] = []
    changed: dict[Linked, int] = dict.fromkeys(now, 0)
    for one in held:
        event, of = one.event, linked_by(one.event)
        refusal = _refusal(surroundings, one, state, now, theirs)
        if refusal is not None:
            head = None if of is None else now[of].head
            seen = 0 if of is None or head is None else head.seq + changed[of]
            event = replace(refusal, branch=event.branch, seen=seen)
        elif isinstance(event, LINKED) and of is not None:
            changed[of] += 1
            other, patched = theirs[of], ev.StatePatched(patch=event.patch)
            theirs[of] = evolve(other, other.summary.id, other.seq, other.updated_us, patched)
        else:
            state = evolve(state, state.summary.id, state.seq, state.updated_us, replace(event, branch=""))
        events.append(event)
    return tuple(events)


def _refusal(
    surroundings: Surroundings,
    one: Held,
    state: State,
    now: Mapping[Linked, LinkedNow],
    theirs: Mapping[Linked, State],
) -> ev.PatchRefused | None:
    event, of = one.event, linked_by(one.event)
    if not isinstance(event, ev.StatePatched | ev.UserPatched | ev.ThreadPatched):
        return None
    whose: dict[str, Any] = {"user": of == "user", "thread": of == "thread"}
    for name, raw in event.patch.require.items():
        wanted = surroundings.value(raw)
        if of is None:
            found = surroundings.field(state, name)
        else:
            found = paths.plain_lookup(theirs[of].bag, name, surroundings.value)
        if not codec.same_json(wanted, found):
            shown: dict[str, Any] = {"mine": codec.text(wanted)[:80], "theirs": codec.text(found)[:80]}
            shown["base"] = codec.pack(found)
            return ev.PatchRefused(patch=event.patch, path=f"state.{name}", **shown, required=True, **whose)
    if one.condition is None:
        return None
    touched, own = list(merge.patch_touches(event.patch)), surroundings.state.summary.id
    clash = None if of is None else merge.stale_read(touched, one.condition.since, now[of].later, own)
    if clash is not None:
        told: dict[str, Any] = {"mine": str(clash.mine), "theirs": str(clash.theirs), "by": clash.by}
        where = ".".join(clash.mine.path)
        return ev.PatchRefused(patch=event.patch, path=where, **told, base=one.condition.base, **whose)
    unfit = _unfit(event.patch, touched, state if of is None else theirs[of])
    return None if unfit is None else replace(unfit, **whose)


def _unfit(patch: ev.Changes, touched: Sequence[merge.Touch], state: State) -> ev.PatchRefused | None:
    """A refusal if a change can't be made any more: what it adds to, or leads into, is another kind of thing by now."""
    try:
        rules.check(state, ev.StatePatched(patch=patch))
    except InvalidEvent as error:
        first = touched[0] if touched else merge.Touch(("state",), "change")
        told: dict[str, Any] = {"path": ".".join(first.path), "mine": str(first), "theirs": error.message}
        return ev.PatchRefused(patch=patch, **told, base=codec.JSON_NULL)
    return None
