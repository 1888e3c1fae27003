"""Every command, in one table: what it tells programs, and how it says no. A command without a row fails."""

import json
import shlex
import shutil
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli import commands
from holdfast.cli.failures.refusal import CONFLICT, FAILED, NOT_FOUND, STORE, USAGE, WAITING
from holdfast.cli.main import COMMANDS, cli
from tests.cli import cli_agents
from tests.cli.conftest import worked_in


class Row(NamedTuple):
    """A call of a command with --json: what it ends with and must tell. And one that is refused: code and error."""

    typed: str
    tells: Any
    refused: str
    code: int
    error: str
    ends: int = 0


ROWS = {
    "answer": Row("answer asked seat aisle", {"status": "pending"}, "answer hi seat aisle", CONFLICT, "task-finished"),
    "approve": Row("approve pays pay", {"id": "pays"}, "approve nobody pay", NOT_FOUND, "task-not-found"),
    "audit": Row("audit --tool pay", [{"task": "pays"}], "audit --since recently", USAGE, "invalid-value"),
    "backup": Row("backup copy.db", {"file": "copy.db"}, "backup holdfast.db", USAGE, "invalid-value"),
    "budget": Row("budget thrifty", {"limits": {"steps": 2}}, "budget thrifty tons=3", USAGE, "invalid-value"),
    "cancel": Row("cancel asked", {"status": "cancelled"}, "cancel hi", CONFLICT, "task-finished"),
    "completion": Row("completion bash", {"shell": "bash"}, "completion tcsh", USAGE, "usage"),
    "config": Row("config", {"by": {"value": "ana", "source": "HOLDFAST_BY"}}, "config --nope", USAGE, "usage"),
    "copy": Row("copy other.db", {"logs": 6}, "copy no/such/place.db", STORE, "not-a-store"),
    "demo": Row("demo --store demo.db", {"once": True, "kills": 1}, "demo --store no/such/x.db", STORE, "not-a-store"),
    "diff": Row("diff hi 2 5", {"task": "hi", "a": 2, "b": 5}, "diff hi 1 999", NOT_FOUND, "seq-out-of-range"),
    "doctor": Row("doctor", [{"what": "sqlite", "level": "ok"}], "doctor --store none.db", STORE, "not-a-store"),
    "explain": Row("explain conflict", {"code": "conflict"}, "explain nonsense", USAGE, "invalid-value"),
    "export": Row("export hi hi.jsonl", {"file": "hi.jsonl"}, "export nobody x.jsonl", NOT_FOUND, "task-not-found"),
    "fork": Row("fork hi --id hi-2", {"id": "hi-2", "from": "hi"}, "fork hi --at 99", NOT_FOUND, "seq-out-of-range"),
    "gc": Row("gc --keep 0 --dry-run", {"ids": ["bad", "hi"]}, "gc --keep -1", USAGE, "invalid-value"),
    "import": Row("import hi.out --store other.db", {"logs": 1}, "import missing.jsonl", USAGE, "invalid-value"),
    "inbox": Row("inbox --questions", [{"task": "asked"}], "inbox --store none.db", STORE, "not-a-store"),
    "list": Row("list --status failed", [{"id": "bad"}], "list --status odd", USAGE, "invalid-value"),
    "log": Row("log hi", [{"kind": "task_created"}], "log nobody", NOT_FOUND, "task-not-found"),
    "mcp": Row(
        "mcp config claude", {"mcpServers": {"holdfast": {"type": "stdio"}}}, "mcp config emacs", USAGE, "invalid-value"
    ),
    "migrate": Row("migrate --dry-run", {"steps": []}, "migrate --store agents.py", STORE, "not-a-store"),
    "migrate-states": Row(
        "migrate-states agents.py", {"seated": {"version": 2}}, "migrate-states agents.py:greet", USAGE, "invalid-value"
    ),
    "reject": Row("reject pays pay", {"id": "pays"}, "reject hi pay", CONFLICT, "task-finished"),
    "reopen": Row("reopen bad", {"status": "pending"}, "reopen hi", CONFLICT, "invalid-event"),
    "resume": Row(
        "resume bad agents.py", {"status": "failed"}, "resume none agents.py", NOT_FOUND, "task-not-found", FAILED
    ),
    "rollback": Row("rollback hi --yes", {"id": "hi"}, "rollback hi --to x --yes", USAGE, "invalid-value"),
    "run": Row("run agents.py:asker", {"status": "waiting"}, "run nothing.py", USAGE, "invalid-value", WAITING),
    "settle": Row(
        "settle lost wobble#1 --happened", {"id": "lost"}, "settle hi x --happened", CONFLICT, "invalid-event"
    ),
    "worker": Row("worker agents.py --drain", {"counts": {"failed": 0}}, "worker nothing.py", USAGE, "invalid-value"),
    "workers": Row("workers", [], "workers --store none.db", STORE, "not-a-store"),
    "show": Row("show hi", {"id": "hi", "result": "HELLO ANA"}, "show nobody", NOT_FOUND, "task-not-found"),
    "signal": Row("signal asked paid", {"id": "asked"}, "signal hi paid", CONFLICT, "task-finished"),
    "stats": Row("stats", {"tasks": 6}, "stats --store none.db", STORE, "not-a-store"),
    "test": Row("test agents.py:greet -p name=A", {"passed": True}, "test agents.py:greet", USAGE, "invalid-input"),
    "traces": Row(
        "traces tail --seconds 10ms --endpoint http://127.0.0.1:9",
        {"spans": 0, "dropped": 0, "endpoint": "http://127.0.0.1:9/v1/traces"},
        "traces export hi --endpoint ftp://here",
        USAGE,
        "invalid-value",
    ),
    "ui": Row("ui --no-open --port 0 --for 10ms", {"read_only": False}, "ui --link", USAGE, "invalid-value"),
    "verify": Row("verify", {"ok": True, "problems": []}, "verify nobody", NOT_FOUND, "task-not-found"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a store in which every command finds something to do."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copy(cli_agents.__file__, folder / "agents.py")
    with holdfast.open(folder / "holdfast.db") as app:
        app.run(cli_agents.greet, {"name": "Ana"}, id="hi")
        app.run(cli_agents.failer, id="bad")
        app.run(cli_agents.asker, id="asked")
        app.run(cli_agents.payer, id="pays")
        app.run(cli_agents.doubter, id="lost")
        app.run(cli_agents.thrifty, id="thrifty")
        app.export("hi", folder / "hi.out")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    return worked_in(shutil.copytree(made, tmp_path / "here"), monkeypatch)


def typed(line, *more):
    done = CliRunner().invoke(cli, [*shlex.split(line), *more])
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_every_command_has_a_row():
    assert sorted(ROWS) == sorted(COMMANDS), "add a row: what it tells programs, and how it says no"
    assert all(row.typed.split()[0] == row.refused.split()[0] == name for name, row in ROWS.items())


def test_a_command_may_have_a_hyphen_in_its_name(folder, monkeypatch):
    """Its module and its function have an underscore there, as Python wants it."""
    (folder / "more").mkdir()
    (folder / "more" / "greet_user_.py").write_text(
        "from holdfast.cli.command import command\n\n"
        '@command("greet-user", store=False)\n'
        "def greet_user_(environment):\n"
        '    """Greet."""\n'
        '    environment.data({"hello": "ana"})\n'
    )
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(folder / "more")])
    monkeypatch.setitem(COMMANDS, "greet-user", "Greet.")
    assert json.loads(typed("greet-user", "--json").stdout) == {"hello": "ana"}
    assert "'greet-user'" in typed("greet-usr").stderr, "and is found by a name that is close"


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_command_tells_programs_one_json_document(folder, name):
    row = ROWS[name]
    done = typed(row.typed, "--json")
    assert done.exit_code == row.ends, (done.stdout, done.stderr)
    assert has(json.loads(done.stdout), row.tells), done.stdout


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_command_that_says_no_ends_with_its_code_and_says_why(folder, name):
    row = ROWS[name]
    before = sorted(path.name for path in folder.iterdir())
    told = typed(row.refused)
    assert told.exit_code == row.code and told.stdout == "", (told.exit_code, told.stderr)
    assert f"error[{row.error}]: " in told.stderr and "help: " in told.stderr
    done = typed(row.refused, "--json")
    assert done.exit_code == row.code and done.stdout == ""
    error = json.loads(done.stderr.strip().splitlines()[-1])["error"]
    assert error["code"] == row.error and error["message"] and error["hint"]
    left = {path.name for path in folder.iterdir()} - set(before)
    assert {name for name in left if not name.startswith("holdfast.db-")} <= {"__pycache__"}, "it left something behind"


def has_tenants(name):
    """Whether a command is of one tenant at a time."""
    return any("--namespace" in option.opts for option in cli.get_command(click.Context(cli), name).params)


OF_THE_STORE = {"completion", "demo", "explain", "test"}


def test_every_command_that_sees_tasks_can_be_kept_to_one_tenant():
    assert {name for name in ROWS if not has_tenants(name)} == OF_THE_STORE


@pytest.mark.parametrize("name", sorted(set(ROWS) - OF_THE_STORE))
def test_a_command_for_one_tenant_neither_shows_nor_changes_what_is_anothers(folder, name):
    with holdfast.open("holdfast.db") as app:
        before = {row.id: list(app.events(row.id))[-1].digest for row in app.list()}
    row = ROWS[name]
    done = typed(row.typed, "--json", "--namespace", "stranger")
    names_a_task = any(word in before for word in row.typed.split())
    assert (done.exit_code == NOT_FOUND) == names_a_task, (done.stdout, done.stderr)
    shown = done.stdout if name != "import" else ""  # which is given what it brings in
    assert not any(f'"{word}"' in shown for word in (*before, "HELLO ANA")), shown
    with holdfast.open("holdfast.db") as app:
        assert {row.id: list(app.events(row.id))[-1].digest for row in app.list()} == before


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_command_has_help_with_an_example(name):
    done = typed(f"{name} --help")
    assert done.exit_code == 0 and done.stdout.startswith(f"Usage: holdfast {name} ") and "Example: " in done.stdout


def has(found, wanted):
    """Whether a document tells this, among other things; of a list, whether one of its entries does."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and has(found[key], one) for key, one in wanted.items())
    if isinstance(wanted, list):
        if not wanted:
            return found == []
        return isinstance(found, list) and all(any(has(one, part) for one in found) for part in wanted)
    return found == wanted
