"""What a tool does to the world, and what follows from that. A new effect begins with its row in the table here."""

from __future__ import annotations

from typing import Literal, NamedTuple

Effect = Literal["read", "idempotent", "once", "transaction"]


class Meaning(NamedTuple):
    """The answers to three questions about an effect. Every other rule follows from them.

    Does it change the world? May a call be made again when its answer is lost? Are its writes committed in one
    transaction with its record, so that no answer can be lost?
    """

    changes_world: bool = True
    may_repeat: bool = False
    with_record: bool = False


EFFECTS: dict[Effect, Meaning] = {
    "read": Meaning(changes_world=False, may_repeat=True),
    "idempotent": Meaning(may_repeat=True),
    "once": Meaning(),
    "transaction": Meaning(with_record=True),
}

# Code asks `effect in ANNOUNCED`: a step asks several times, and a set answers as fast as a comparison.

CHANGING = frozenset(effect for effect, one in EFFECTS.items() if one.changes_world)
"""Effects that change the world."""

REPEATABLE = frozenset(effect for effect, one in EFFECTS.items() if one.may_repeat)
"""Effects whose calls may be made again when an answer is lost. The record may then wait for the next write."""

TRANSACTIONAL = frozenset(effect for effect, one in EFFECTS.items() if one.with_record)
"""Effects whose writes and record are one transaction of the store."""

ANNOUNCED = frozenset(EFFECTS) - REPEATABLE - TRANSACTIONAL
"""Effects whose calls are announced (StepStarted) before they are made, and are in doubt if the answer is lost."""
