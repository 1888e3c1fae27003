"""What a call is known by: its place in the task, its arguments, its key."""

from __future__ import annotations

from holdfast.core import codec
from holdfast.core.flows.requests import StepRequest
from holdfast.core.state.fold import address
from holdfast.core.state.shapes import State


def idempotency_key(state: State, key: str, request: StepRequest) -> str:
    """A key that stays the same however often a call is tried: task, step, tool, arguments, and the key space."""
    if not request.tool:
        return ""
    covered = {"space": state.key_space, "input": request.input} if state.key_space else request.input
    return f"{state.summary.id}:{place_of(state, key)}:{request.tool}:{codec.fingerprint(covered)[:16]}"


def place_of(state: State, key: str) -> str:
    """A step's key as it is known from outside its turn."""
    return address(state.turn, key) if state.turn else key


def fingerprint(request: StepRequest) -> str:
    """Return the digest of a call's arguments."""
    return codec.fingerprint(request.input)


def known_by(request: StepRequest) -> set[str]:
    """Return the names of a call: a key taken by an older version covers fingerprints of secrets."""
    inputs = (request.input, request.old_input or request.input)
    return {codec.fingerprint(one) for one in inputs}
