"""Flags that save a command: --param, ls, -q, --resume, --wait, examples for `holdfast test`; how values are shown."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import HoldfastError, SelfApproval, Task, TaskBusy, agent, tool
from holdfast.cli.failures.refusal import NOT_FOUND, USAGE, WAITING
from holdfast.cli.main import ALIASES, COMMANDS, cli
from holdfast.cli.show.style import bare
from holdfast.core import events
from holdfast.engine.reading import describe
from tests.cli import cli_agents
from tests.cli.test_hints import MORE
from tests.waiting import until


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("HOLDFAST_URL", "FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_BY", "ana")
    shutil.copy(cli_agents.__file__, tmp_path / "agents.py")
    yield tmp_path
    sys.modules.pop("agents", None)


def typed(line, *more, **environment):
    done = CliRunner().invoke(cli, [*line.split(), *more], env=environment)
    assert "Traceback" not in done.output, done.output
    return done


# --param, ls, -q


def test_a_parameter_may_be_given_by_its_long_name(folder):
    done = typed("run agents.py:greet --param name=Ana --param times:=2 --id hi")
    assert done.exit_code == 0 and done.stdout == "HELLO ANA HELLO ANA\n"
    assert typed("run agents.py:greet --param name=Ana -p name=Ben").exit_code == USAGE
    assert "has no value" in typed("run agents.py:greet --param name").stderr


def test_ls_is_list_and_quiet_prints_ids_for_shells(folder):
    for id in ("one", "two"):
        typed(f"run agents.py:asker --id {id}")
    assert typed("ls").stdout == typed("list").stdout and ALIASES["ls"] in COMMANDS
    assert typed("ls -q").stdout == "two\none\n"
    assert json.loads(typed("ls -q --json").stdout) == ["two", "one"]
    assert typed("ls -q --jsonl").stdout == '"two"\n"one"\n'
    assert typed("ls -q", FORCE_COLOR="1", COLUMNS="2").stdout == "two\none\n", "never cut, never coloured"
    assert typed("ls --status odd -q").exit_code == USAGE
    assert "list, ls" in typed("--help").stdout
    empty = typed("ls -q --status failed")
    assert (empty.exit_code, empty.output) == (0, "")


# approve --resume, resume --wait


def test_an_approval_resumes_the_task_at_once_if_asked_to(folder):
    assert typed("run agents.py:payer --id p").exit_code == WAITING
    done = typed("approve p pay agents.py --resume")
    assert done.exit_code == 0 and done.stdout == "receipt-1\n" and "approved pay" in done.stderr
    assert (folder / "payments").read_text() == "4400\n"


def test_answers_rejections_and_settlements_resume_too(folder):
    for id, one in (("a", "asker"), ("r", "payer"), ("s", "doubter")):
        typed(f"run agents.py:{one} --id {id}")
    (folder / "pyproject.toml").write_text('[tool.holdfast]\nagents = ["agents.py"]\n')
    assert typed("answer a seat aisle --resume").stdout == "answered aisle\n"
    assert json.loads(typed("reject r pay --resume --json").stdout)["status"] == "failed"
    settled = typed("settle s wobble#1 --happened --resume", "--result", '"sent"')
    assert settled.stdout == "sent\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("approve p pay agents.py", "add --resume"),
        ("approve p pay --resume", "needs the agent 'payer'"),
        ("approve p pay nothing.py --resume", "there is no file"),
        ("approve p pay agents.py:greet --resume", "belongs to the agent 'payer'"),
        ("approve nobody pay agents.py --resume", "no task 'nobody'"),
    ],
)
def test_an_approval_that_could_not_be_followed_by_a_resume_is_not_given(folder, line, told):
    typed("run agents.py:payer --id p")
    done = typed(line)
    assert done.exit_code in (USAGE, NOT_FOUND) and told in done.stderr.lower() and "help: " in done.stderr
    with holdfast.open("holdfast.db") as app:
        assert app.get("p").status == "waiting" and not (folder / "payments").exists()


def test_resume_waits_for_the_process_that_has_the_task(folder):
    command = [sys.executable, "-m", "holdfast", "run", "agents.py:slowly", "-p", "steps:=6", "--id", "s", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        with holdfast.open("holdfast.db", agents=[cli_agents.slowly]) as app:
            until(lambda: (folder / "slow").exists())
            with pytest.raises(TaskBusy):
                app.resume("s", cli_agents.slowly)
        done = typed("resume s agents.py --wait 30s")
        assert done.exit_code == 0 and done.stdout == "15\n", done.stderr
        assert other.wait(30) == 0
    assert (folder / "slow").read_text().split() == [*"012345"], "nothing was done twice"


def test_bad_times_to_wait_are_refused(folder):
    typed("run agents.py:failer --id bad")
    done = typed("resume bad agents.py --wait soon")
    assert done.exit_code == USAGE and "error[invalid-value]" in done.stderr and "help: " in done.stderr
    with holdfast.open("holdfast.db") as app, pytest.raises(HoldfastError, match="wait"):
        app.resume("bad", cli_agents.failer, wait=-1)


# holdfast test


def test_an_agent_with_an_example_is_tried_with_nothing_else(folder):
    (folder / "agents.py").write_text((folder / "agents.py").read_text() + MORE)
    done = typed("test agents.py --mock")
    assert done.exit_code == 0 and "polite (mock) is completed: 1 step" in done.stdout
    assert re.search(r"ok +check", done.stdout) and "greet" not in done.stdout
    assert json.loads(typed("test agents.py:polite --mock --json").stdout)["checks"]["check"] is True
    assert [one["agent"] for one in json.loads(typed("test agents.py --mock --json").stdout)] == ["polite"]
    other = typed("test agents.py:polite --mock --param name=Ben")
    assert other.exit_code == 1 and "FAIL  check: it returned False" in other.stdout
    assert typed("test agents.py:polite --mock --crash --sample 3").exit_code == 0


ODD = """
from holdfast import Task, agent

def wrong(done):
    assert done.result == 2, f"it is {done.result}"

@agent(example={"n": 1}, check=wrong)
def one(task: Task, n: int) -> int:
    return n

@agent(example={"m": 1})
def misspelt(task: Task, n: int) -> int:
    return n

@agent
def bare(task: Task, n: int) -> int:
    return n
"""


def test_a_check_that_fails_and_an_example_that_does_not_fit_are_told(folder):
    (folder / "odd.py").write_text(ODD)
    done = typed("test odd.py:one --mock")
    assert done.exit_code == 1 and "FAIL  check: AssertionError: it is 1" in done.stdout
    misspelt = typed("test odd.py:misspelt")
    assert misspelt.exit_code == USAGE and "fix example= of misspelt" in misspelt.stderr
    nothing = typed("test odd.py:bare")
    assert nothing.exit_code == USAGE and "@agent(example=" in nothing.stderr and "-p name=value" in nothing.stderr


@pytest.mark.parametrize("wrong", [{"example": ["a"]}, {"example": "a"}, {"check": 1}, {"check": "fn"}])
def test_an_odd_example_or_check_is_refused_where_it_is_declared(wrong):
    with pytest.raises(HoldfastError) as refused:
        agent(**wrong)(plain)
    assert next(iter(wrong)) in refused.value.message and refused.value.hint


def plain(task):
    return None


def test_an_async_check_is_refused():
    async def check(done):
        return True

    with pytest.raises(HoldfastError, match="async"):
        agent(check=check)(plain)


# Who acts


def test_the_name_in_the_environment_counts_in_python_too(monkeypatch):
    monkeypatch.setenv("HOLDFAST_BY", "ana")
    with holdfast.open("memory:") as app:
        app.run(cli_agents.payer, id="p")
        app.approve("p", "pay")
        app.run(cli_agents.asker, id="q")
        app.answer("q", "seat", "aisle", by="ben")
        assert [row.by for row in app.audit() if row.by] == ["ben", "ana"]


def test_what_an_agent_does_to_another_task_is_not_done_in_a_persons_name(monkeypatch):
    monkeypatch.setenv("HOLDFAST_BY", "ana")
    with holdfast.open("memory:") as app:
        app.run(cli_agents.listener, id="ears")

        @agent
        def caller(task: Task) -> str:
            app.signal("ears", "paid", {"cents": 1})
            with pytest.raises(SelfApproval):
                app.approve("ears", "pay")
            return "told"

        app.run(caller, id="c")
        assert not any(row.by == "ana" for row in app.audit())


# How things look


def test_every_verb_of_a_timeline_fits_into_its_column():
    assert all(len(verb) < 12 for verb in describe._SMALL.values())
    unnamed = [kind for kind in events.BY_KIND if kind not in describe._SMALL]
    plain = [kind for kind in unnamed if f"ev.{events.BY_KIND[kind].__name__}" not in _source(describe)]
    assert all(len(kind) < 12 for kind in plain), plain


def _source(module):
    with open(module.__file__, encoding="utf-8") as file:
        return file.read()


@tool(effect="read")
def search(city: str, limit: int) -> list:
    return ["a", "b"]


@agent(loop=True)
def talker(task: Task) -> str:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"city": "Oslo", "limit": 2}'}}
    task.message({"role": "user", "content": 'say "hi"'})
    reply = task.step(lambda: {"role": "assistant", "content": None, "tool_calls": [call]}, name="model")
    task.message(reply)
    task.call_tools(reply, [search])
    task.state.increment("attempts_to_reach_the_model", 2)
    task.state.append("seen", {"city": "Oslo", "tags": ["a", "b"]})
    task.decide("which of the many airlines that go there should be asked first?", "Northern", why="it is near")
    return "a long answer with many words in it, longer than any terminal of eighty columns can show in one line"


@pytest.mark.parametrize("columns", [40, 80])
def test_messages_and_calls_are_readable_aligned_and_no_word_is_broken(folder, columns):
    with holdfast.open("holdfast.db") as app:
        app.run(talker, id="t")
    for line in ("log t --full", "log t", "audit", "show t", "diff t 2 9", "list"):
        text = bare(typed(line, FORCE_COLOR="1", COLUMNS=str(columns)).output)
        assert '\\"' not in text and '{"' not in text and "tool_calls" not in text, line
        assert max(map(len, text.splitlines())) <= columns, line
        words = set(re.findall(r"[a-z]{4,}", _whole(line)))
        broken = [word for word in re.findall(r"([a-z]{4,})…", text) if word not in words]
        assert not broken, f"{line}: {broken}"
    full = bare(typed("log t --full", FORCE_COLOR="1", COLUMNS=str(columns)).output)
    assert "assistant → search(city=Oslo, limit=2)" in " ".join(full.split()) and 'user: say "hi"' in full
    assert "can show in one line" in " ".join(full.split()), "--full leaves nothing out"


def _whole(line):
    """What a command prints where nothing is cut."""
    return typed(line).output


def test_log_full_is_aligned_at_80_columns(folder):
    with holdfast.open("holdfast.db") as app:
        app.run(talker, id="t")
    lines = bare(typed("log t --full", FORCE_COLOR="1", COLUMNS="80").output).splitlines()
    about = lines[0].index("about")
    assert all(line[about - 1] == " " and line[about - 2] == " " for line in lines if len(line) > about), lines


def test_times_are_left_out_of_a_diff_unless_they_are_asked_for(folder):
    typed("run agents.py:greet -p name=Ana --id hi")
    short, whole = typed("diff hi 2 6").stdout, typed("diff hi 2 6 --times").stdout
    assert "_at" not in short and "/updated_at" in whole and "+ /state/tone  loud" in short
    patch = json.loads(typed("diff hi 2 6 --json").stdout)["patch"]
    assert any(change["path"] == "/updated_at" for change in patch), "a patch is whole"
    assert "no difference" in typed("diff hi 6 6").stderr
