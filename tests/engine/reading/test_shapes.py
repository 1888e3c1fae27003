"""JSON for programs: what each face says of an entry of the inbox, and what data says of itself."""

import json

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Budget, StatePatch, Task, agent
from holdfast.cli.input.suggestions import entry_json
from holdfast.cli.main import cli
from holdfast.engine.lists.deltas import Delta
from holdfast.engine.lists.watch import TaskChange
from holdfast.engine.maintenance.doctor import Finding
from holdfast.engine.maintenance.export import Copied
from holdfast.engine.maintenance.retention import Collected
from holdfast.engine.reading.audit import AuditRow
from holdfast.engine.reading.describe import EventLine
from holdfast.engine.reading.inbox import InboxItem
from holdfast.engine.reading.values import text
from holdfast.engine.reading.verify import Verification
from holdfast.engine.views.attempts import StepAttempt
from holdfast.engine.views.failures import FailureContext
from holdfast.mcp.reading.documents import inbox_document, log_document, row_document, task_document
from holdfast.web.reading.inbox import entry
from holdfast.web.reading.places import act_json

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


@agent(budget=Budget(steps=9))
def recap(task: Task, n: int) -> str:
    task.state.city = "Oslo"
    task.fact("pop", n, source="census")
    task.decide("how?", "by hand", why="small", options=["by hand", "with a tool"])
    task.plan(["look", "write"])
    task.done("look")
    task.note("told", ["ana"])
    task.artifact("a draft", type="text", summary="short")
    task.step(str.upper, "done", name="work")
    return task.ask("send it?", name="send")


@pytest.fixture
def waiting(tmp_path):
    """A task that waits and has something in every section, and the address of its store."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with holdfast.open(url) as app:
        app.start(recap, {"n": 7}, id="t", goal="a recap", user="ana", thread="chat", expire="30d")
        app.patch("t", StatePatch(add_questions=["which year?"], raise_flags=["late"]), by="ben")
        app.resume("t", recap)
        yield app, url


def typed(url, *words):
    """What a command prints for programs."""
    made = CliRunner().invoke(cli, [*words, "--store", url, "--json"], catch_exceptions=False)
    return json.loads(made.stdout)


ACT = ["task", "seq", "kind", "what", "about", "tool", "by"]


def test_an_act_of_the_audit_on_the_command_line_and_on_the_page(waiting):
    app, url = waiting
    rows = [*app.audit()]
    for row, told in zip(rows, typed(url, "audit"), strict=True):
        assert {*told} == {"at", *ACT, "value", "answered_by", "cursor"}
        assert [told[name] for name in ACT] == [getattr(row, name) for name in ACT]
        assert (told["value"], told["cursor"]) == (row.value, row.cursor)
        assert [*act_json(row)] == [*ACT, "at_ms", "value"]
    assert {row.kind for row in rows} == {"state_patched", "decision_made"}


ROW = ["id", "agent", "status", "stage", "user", "thread", "parent", "waiting", "holder", "queue", "priority", "mock"]
ROW += ["interrupted", "doubts", "wake_at", "deadline", "expires_at", "created_at", "changed_at"]


def test_a_row_of_a_list_on_the_command_line_and_for_an_mcp_client(waiting):
    app, url = waiting
    (told,) = typed(url, "list")
    assert {*told} == {*ROW, "why"} and told["user"] == "ana"
    assert [*row_document(app.row("t"))] == [
        *("uri", "agent_id", "task_id", "status", "stage", "waiting", "thread", "parent", "created_at", "changed_at")
    ]


EVENT = ["task", "seq", "at", "kind", "verb", "about", "value", "by", "source"]
EVENT += ["took_ms", "attempt", "tokens", "cost", "event"]


def test_an_event_on_the_command_line_and_for_an_mcp_client(waiting):
    app, url = waiting
    told = typed(url, "log", "t")
    assert told and all({*one} == {*EVENT} for one in told)
    assert log_document(app, app.row("t"), 0, 500)["events"] == told


OF_TASK = [
    "uri",
    "agent_id",
    "task_id",
    "seq",
    "status",
    "stage",
    "position",
    "goal",
    "input",
    "state",
    "plan",
    "facts",
]
OF_TASK += ["questions", "artifacts", "flags", "notes", "constraints", "waiting", "budget", "result", "failure"]
OF_TASK += ["user", "thread", "parent", "continued_by", "created_at", "updated_at", "log", "notice"]


def test_a_task_on_the_command_line_and_for_an_mcp_client(waiting):
    app, url = waiting
    state = app.get("t")
    shown = typed(url, "show", "t")
    whole = json.loads(state.to_json())
    assert {*shown} == {*whole, "interrupted", "expires_at", "waiting_on"}
    assert {name: shown[name] for name in whole} == whole
    (row,) = typed(url, "list")
    assert shown["expires_at"] == row["expires_at"]
    told = json.loads(text(task_document(state)))
    assert {*told["waiting"]} == {"kind", "why", "on"} and whole["waiting"] == told["waiting"]["kind"] == "person"
    assert {*told} == {*OF_TASK}
    same = ("seq", "status", "stage", "goal", "input", "state", "plan", "facts", "questions", "flags", "notes")
    same += ("budget", "result", "failure", "user", "parent")
    assert {name: told[name] for name in same} == {name: whole[name] for name in same}
    assert told["constraints"] == {} and told["thread"] == "state://threads/chat"
    assert (told["created_at"], told["updated_at"]) == (state.created_at.isoformat(), state.updated_at.isoformat())
    (id,) = state.artifacts
    artifact = {"id": id, "uri": f"{told['uri']}/artifacts/{id}", **whole["artifacts"][id]}
    assert told["artifacts"] == [artifact]


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
