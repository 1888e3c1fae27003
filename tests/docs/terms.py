"""Words that the prose of Holdfast does not use, with the words to write instead.

They are plain in themselves; used for these meanings they made readers stop. Names stay: fields of events, columns,
functions. Text that is stored or sent to a model stays too, and is listed below with its reason.
"""

import re
from typing import NamedTuple


class Term(NamedTuple):
    """A pattern that prose may not match, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


def _term(pattern, instead):
    return Term(re.compile(pattern, re.IGNORECASE), instead)


TERMS = [
    _term(r"\b(go|goes|going|went|gone) on\b(?! its way)", "resume, continue, keep running"),
    _term(r"\bholders?\b", "worker, process"),
    _term(r"\bdoubts\b|\ba doubt\b", "call in doubt"),
    _term(r"\b(let|lets|letting) go\b", "release, close"),
    _term(r"\bmend(s|ed|ing)?\b", "fix"),
    _term(r"\bset(s|ting)? (\w+ )?aside\b", "quarantined, reserved"),
    _term(r"\bconsent(s|ed|ing)?\b", "approval, approve"),
    _term(r"\b(asks?( for)?|gives?|gave|given|without|needs?) leave\b", "approval, approve"),
    _term(r"\b(by|of|no|or|to|draws?|drawn) chance\b", "random, randomness"),
    _term(r"\bs[ai]t(s|ting)? out\b", "blocks while it sleeps"),
    _term(r"\b(is|are|was|were|be|been|not) waited for\b", "wait for, the inbox, tasks waiting for a person"),
    _term(r"\btoo late for\b", "the task is already completed"),
    _term(r"\btheir (life|lives)\b", "workers died"),
    _term(r"\bwhat was done was undone\b", "compensated"),
    _term(r"(?<!there )(?<!where )\b(is|are|was|were) no (?!longer\b|one\b)", "is not a, can't, isn't"),
    _term(r"\b(said|told|saying|telling)\b(?! apart)", "record, describe, report, notify; a noun"),
    _term(r"\bin silence\b|\bwithout a word\b", "silently"),
    _term(r"\bagents\.db\b", "holdfast.db"),
]

KEPT = {
    ("src/holdfast/core/messages/anthropic.py", "goes on"): "sent to models: other words would be other messages",
    ("src/holdfast/core/context/transcript.py", "go on"): "sent to models, and part of a recorded step's input",
    ("src/holdfast/testing/conformance/__init__.py", "goes on"): "a value that the suite stores",
    ("src/holdfast/testing/conformance/transact.py", "goes on"): "a value that the suite stores",
}
"""Where a term stays, and why."""
