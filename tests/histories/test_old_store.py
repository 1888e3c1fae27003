"""Tasks that were under way in an older version go on as before, with their old keys.

`store-0.1.db.gz` was written by that version, running `old_agents.py`; three of its processes were killed.
"""

import gzip
import shutil
from pathlib import Path

import pytest

import holdfast
from tests.histories import old_agents

FILE = Path(__file__).with_name("store-0.1.db.gz")
KEYS = {
    "charger": [("charge", "charger:charge#1:charge:cd52e0abbe41adc9")],
    "payer": [("pay", "payer:pay#1:pay:8bcbace4a85bfd65")],
    "refunder": [("refund", "refunder:refund#1:refund:b95b3e696468cec5")],
}
"""The idempotency keys that the older version would have used."""


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "store.db"
    with gzip.open(FILE) as packed, path.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    with holdfast.open(path, agents=old_agents.AGENTS) as opened:
        old_agents.CALLS.clear()
        yield opened


def test_an_old_file_is_whole(app):
    assert app.verify().ok and len(app.list()) == 6


@pytest.mark.parametrize(
    ("name", "result"), [("charger", "charged 7"), ("payer", "paid 7"), ("refunder", "refunded 44")]
)
def test_a_call_that_was_cut_off_or_approved_is_made_with_its_old_key(app, name, result):
    assert app.resume(name).result == result
    assert KEYS[name] == old_agents.CALLS


def test_a_recorded_call_with_a_secret_is_found(app):
    app.signal("sender", "go", 1)
    assert app.resume("sender").result == ["sent to ana", 1] and old_agents.CALLS == []


def test_branches_find_their_steps(app):
    for name in ("a", "b"):
        app.signal("racer", f"go {name}", name)
    assert app.resume("racer").result == [["a", "a"], ["b", "b"]]


def test_a_unique_key_with_a_secret_is_the_same_call(app):
    done = app.run(old_agents.mailer, id="new")
    assert done.result == "mailed 1" and old_agents.CALLS == []


def test_new_tasks_of_an_old_file_have_a_key_space(app):
    app.run(old_agents.sender, {"to": "ben"}, id="new")
    assert app.logs.load("new").state.key_space == app.logs.key_space != ""
    assert app.logs.load("sender").state.key_space == ""
