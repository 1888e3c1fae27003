"""JSON for programs: what each face says of an entry of the inbox, and what data says of itself."""

import json

from holdfast.cli.input.suggestions import entry_json
from holdfast.engine.lists.deltas import Delta
from holdfast.engine.lists.watch import TaskChange
from holdfast.engine.maintenance.doctor import Finding
from holdfast.engine.maintenance.export import Copied
from holdfast.engine.maintenance.retention import Collected
from holdfast.engine.reading.audit import AuditRow
from holdfast.engine.reading.describe import EventLine
from holdfast.engine.reading.inbox import InboxItem
from holdfast.engine.reading.verify import Verification
from holdfast.engine.views.attempts import StepAttempt
from holdfast.engine.views.failures import FailureContext
from holdfast.mcp.reading.documents import inbox_document
from holdfast.web.reading.inbox import entry

SAME = ["task", "agent", "kind", "key", "name", "prompt", "tool", "risk", "arguments", "bound"]
"""What every face says first of an entry, in this order."""

APPROVAL = InboxItem(
    task="t",
    agent="shop",
    kind="approval",
    key="pay#1",
    name="pay",
    tool="pay",
    risk="money",
    arguments={"euros": 44},
    bound="0af1",
    since_us=1_700_000_000_000_000,
    until_us=1_700_000_060_000_000,
    expires_us=1_700_000_090_000_000,
)
BUDGET = InboxItem(
    task="t", agent="shop", kind="budget", key="tokens", name="tokens", owner="parent", used=10.0, of=12.0, ahead=3.0
)
QUESTION = InboxItem(
    task="t", agent="shop", kind="question", key="who#1", name="who", prompt="Who?", answer={"type": "string"}, why="no"
)


def test_an_entry_of_the_inbox_on_the_command_line(texts):
    for item in (APPROVAL, BUDGET, QUESTION):
        told = entry_json(item, "ana", "--store a.db")
        assert [*told] == [*SAME, "owner", "used", "of", "why", "ahead", "since", "until", "asks", "commands"]
        texts.check(json.dumps(told, indent=1))


def test_an_entry_of_the_inbox_on_the_page(texts):
    for item in (APPROVAL, BUDGET, QUESTION):
        told = entry(item)
        ends = ["owner", "used", "of", "ahead", "answer", "since_ms", "until_ms", "expires_ms", "commands", "exact"]
        assert [*told] == [*SAME, *ends]
        texts.check(json.dumps(told, indent=1))


def test_an_entry_of_the_inbox_for_an_mcp_client(texts):
    for item in (APPROVAL, BUDGET, QUESTION):
        told = inbox_document(item)
        assert [*told] == [*SAME, "used", "of", "command"]
        texts.check(json.dumps(told, indent=1))


def test_data_becomes_a_line_of_json_with_every_field():
    made = {
        Verification: {},
        InboxItem: {"task": "t", "agent": "a", "kind": "doubt", "key": "k", "name": "n"},
        AuditRow: {},
        EventLine: {"verb": "done"},
        StepAttempt: {},
        FailureContext: {},
        Delta: {},
        TaskChange: {},
        Copied: {},
        Finding: {},
        Collected: {},
    }
    for kind, given in made.items():
        fields = kind.__struct_fields__
        required = fields[: len(fields) - len(kind.__struct_defaults__)]
        one = kind(**dict.fromkeys(required) | given)
        line = one.to_json()
        assert "\n" not in line and [*json.loads(line)] == [*fields], kind
