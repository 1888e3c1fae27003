"""Changes that other writers may be faster than: read-modify-write, and what holds only if nothing came between.

A branch that has made such a change holds it back, and what it says after it, until its next waiting verb. There it is
written, or the refusal in its place; and that verb raises PatchConflict, on replay too, before it does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import failures
from holdfast.core.errors import Conflict, InvalidEvent, PatchConflict, StoreError
from holdfast.core.events import Event
from holdfast.core.flows.requests import (
    Append,
    Branch,
    Flow,
    Held,
    Reads,
    ReadUser,
    Revise,
    Subflow,
    Surroundings,
    Unsettled,
    UserNow,
)
from holdfast.core.flows.step import recorded_result
from holdfast.core.flows.stops import may_begin
from holdfast.core.names import own_name, user_log
from holdfast.core.state import merge, paths, rules
from holdfast.core.state.fold import evolve
from holdfast.core.state.paths import Path
from holdfast.core.state.shapes import State

_USER: Path = ("user",)


def update(surroundings: Surroundings, branch: Branch, path: Path, make: Callable[[State, str], Event]) -> Flow:
    """Make a new value of the newest one. If another writer was faster, the function is called again.

    What it raises is recorded, as a step's failure is: a replay must not find that it has a value by now.
    """
    key = branch.key(f"update {'.'.join(path)}")
    for _ in range(limits.MAX_UPDATE_TRIES):
        known = surroundings.state.steps_of(branch.turn).get(key)
        if known is not None:
            return recorded_result(surroundings.state, branch, known)
        yield from may_begin(surroundings, branch, key)
        if surroundings.unwritten:
            yield Append()
        looked = surroundings.state.seq
        user: UserNow | None = (yield ReadUser()) if path[0] == "user" else None
        head = None if user is None else user.head
        try:
            event = yield Revise(
                lambda state: make(state, key), surroundings.state if user is None else user.state, key
            )
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 — whatever a user's function raises is how the verb ends
            event = _failed(key, error, surroundings)
        if isinstance(event, ev.UserPatched) and head is not None:
            event = replace(event, seen=head.seq + 1)
        reads = Reads(looked, (_USER if user is not None else path,))
        yield Append((event,), decided=True, reads=reads, user_head=head)
    raise _overtaken(surroundings.state, of_user=path[0] == "user")


def _failed(key: str, error: Exception, surroundings: Surroundings) -> ev.StepFailed:
    failure = failures.failure(error, secrets=tuple(surroundings.secrets))
    return ev.StepFailed(key=key, name=own_name(key), failure=failure, attempts=1, effect="read")


def _overtaken(state: State, *, of_user: bool) -> Conflict:
    """The error about a write that others were faster than every time."""
    log = user_log(state.summary.user or "") if of_user else state.summary.id
    return Conflict(log, state.pins.user if of_user else state.seq, None)


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
        raise PatchConflict(summary.id, first.path, **shown, base=surroundings.value(first.base), user=user)


def settle_all(surroundings: Surroundings) -> Subflow:
    """The same for every branch, when the agent's function has returned: a refusal is then how its task ends."""
    while surroundings.unsettled:
        yield from settle(surroundings, surroundings.unsettled.pop())


def write_all_held(surroundings: Surroundings) -> Subflow:
    """Write what branches held back when the agent's function has failed: how it failed is what it is told by."""
    while surroundings.unsettled:
        unsettled = surroundings.unsettled.pop().unsettled
        if unsettled is not None and unsettled.held:
            yield from _write_held(surroundings, unsettled)


def _write_held(surroundings: Surroundings, unsettled: Unsettled) -> Subflow:
    held = tuple(unsettled.held)
    for _ in range(limits.MAX_UPDATE_TRIES):
        if surroundings.unwritten:
            yield Append()
        looked = surroundings.state.seq
        user: UserNow | None = None
        if any(isinstance(one.event, ev.UserPatched) for one in held):
            since = [seq for one in held if one.condition is not None for seq in one.condition.since.values()]
            user = yield ReadUser(min(since, default=None))
        events = _decided(surroundings, held, user)
        reads = Reads(looked, (_USER, *_required(held)))
        if (yield Append(events, decided=True, reads=reads, user_head=None if user is None else user.head)):
            del unsettled.held[: len(held)]
            refused = surroundings.state.refused
            unsettled.refused += [(refused[one.key], one.said) for one in held if one.key in refused]
            return
    raise _overtaken(surroundings.state, of_user=any(isinstance(one.event, ev.UserPatched) for one in held))


def _required(held: Sequence[Held]) -> list[Path]:
    """Return the values of the task's own state that these changes require."""
    patches = [one.event.patch for one in held if isinstance(one.event, ev.StatePatched)]
    return [("state", *paths.parts_of((), name)) for patch in patches for name in patch.require]


def _decided(surroundings: Surroundings, held: Sequence[Held], user: UserNow | None) -> tuple[Event, ...]:
    """Return the events to write: each change that holds, and a refusal for each that does not."""
    state, theirs = surroundings.state.sketch(), None if user is None else user.state.copy()
    events: list[Event] = []
    changed = 0
    for one in held:
        event = one.event
        refusal = _refusal(surroundings, one, state, user, theirs)
        if refusal is not None:
            seen = 0 if user is None or user.head is None or not refusal.user else user.head.seq + changed
            event = replace(refusal, branch=event.branch, seen=seen)
        elif isinstance(event, ev.UserPatched) and theirs is not None:
            changed += 1
            theirs = evolve(
                theirs, theirs.summary.id, theirs.seq, theirs.updated_us, ev.StatePatched(patch=event.patch)
            )
        else:
            state = evolve(state, state.summary.id, state.seq, state.updated_us, replace(event, branch=""))
        events.append(event)
    return tuple(events)


def _refusal(
    surroundings: Surroundings, one: Held, state: State, user: UserNow | None, theirs: State | None
) -> ev.PatchRefused | None:
    event = one.event
    if not isinstance(event, ev.StatePatched | ev.UserPatched):
        return None
    of_user = isinstance(event, ev.UserPatched)
    for name, raw in event.patch.require.items():
        wanted = surroundings.value(raw)
        bag = {} if theirs is None else theirs.bag
        found = paths.plain_lookup(bag, name, surroundings.value) if of_user else surroundings.field(state, name)
        if not codec.same_json(wanted, found):
            shown: dict[str, Any] = {"mine": codec.text(wanted)[:80], "theirs": codec.text(found)[:80]}
            shown["base"] = codec.pack(found)
            return ev.PatchRefused(patch=event.patch, path=f"state.{name}", **shown, required=True, user=of_user)
    if one.condition is None:
        return None
    touched, own = list(merge.patch_touches(event.patch)), surroundings.state.summary.id
    clash = None if user is None else merge.stale_read(touched, one.condition.since, user.later, own)
    if clash is not None:
        told: dict[str, Any] = {"mine": str(clash.mine), "theirs": str(clash.theirs), "by": clash.by}
        where = ".".join(clash.mine.path)
        return ev.PatchRefused(patch=event.patch, path=where, **told, base=one.condition.base, user=of_user)
    return _unfit(event.patch, touched, theirs if of_user else state, of_user)


def _unfit(
    patch: ev.Changes, touched: Sequence[merge.Touch], state: State | None, of_user: bool
) -> ev.PatchRefused | None:
    """A refusal if a change can't be made any more: what it adds to, or leads into, is another kind of thing by now."""
    try:
        rules.check(state, ev.StatePatched(patch=patch))
    except InvalidEvent as error:
        first = touched[0] if touched else merge.Touch(("state",), "change")
        told = {"path": ".".join(first.path), "mine": str(first), "theirs": error.message}
        return ev.PatchRefused(patch=patch, **told, base=codec.JSON_NULL, user=of_user)  # pyright: ignore[reportArgumentType]
    return None
