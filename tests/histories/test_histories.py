"""Old logs fold to what they always did. The files beside this test are added to, never edited."""

import json
from pathlib import Path

import pytest

import holdfast
from holdfast.core.events import KIND

FOLDER = Path(__file__).parent
LOGS = sorted(FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_an_old_log_folds_to_what_it_did(path):
    with holdfast.open("memory:") as app:
        app.import_(path)
        remembered = json.loads(path.with_suffix(".json").read_text("utf-8"))
        for id, state in remembered.items():
            assert remembered_part(app.get(id).to_dict(), state) == state
        assert app.verify().ok


def remembered_part(now, then):
    """What a document of today has of one that was remembered: documents are added to, and never lose anything."""
    if isinstance(then, dict) and isinstance(now, dict):
        return {key: remembered_part(now[key], value) for key, value in then.items() if key in now} | {
            key: value for key, value in now.items() if key not in then and key not in ADDED
        }
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return [remembered_part(*pair) for pair in zip(now, then, strict=True)]
    return now


ADDED = {
    *("calls", "deadline", "digest", "failed_at", "holder", "phases", "state_version", "summarised"),
    *("after", "before", "failures", "idempotency_key", "maybe_done", "retry_at", "turn"),
    *("at", "seq", "step"),
}
"""Keys that documents have got since: of a task, of a step, of a decision."""


def test_every_kind_of_event_stands_in_some_old_log():
    seen = {json.loads(line).get("kind") for path in LOGS for line in path.read_bytes().splitlines()}
    assert set(KIND.values()) <= seen, f"add a history with {sorted(set(KIND.values()) - seen)}"


def test_the_summary_of_an_old_conversation_still_stands_for_what_it_covers():
    with holdfast.open("memory:") as app:
        app.import_(FOLDER / "0007_talk.jsonl")
        made = app.get("talk").summarised
        assert (made["text"], made["covers"], made["model"]) == ("They looked eight times.", [[1, 16]], "m-1")
        assert (made["tokens_in"], made["tokens_out"], made["basis"]) == (80, 6, "reported")
        assert len(app.get("talk").messages) == 25


def test_old_records_are_what_they_were():
    with holdfast.open("memory:") as app:
        app.import_(FOLDER / "0010_records.jsonl")
        records = app.records("langgraph")
        assert records.keys() == ['thread "1"!']
        found = records.read('thread "1"!')
        assert [(one.seq, one.data, one.user) for one in found] == [
            (3, b"\x00\xff\n with a value", "ana"),
            (5, b"", None),
            (9, b"last", None),
        ]
        assert dict(found[0].blobs) == {"state": b"large " * 1000, "none": b""}
        assert found[0].at_us == 1700000000000003 and records.head('thread "1"!') == 9
        verified = app.verify()
        assert (verified.ok, verified.events, verified.erased) == (True, 7, 2)
