"""The slips of a first day with the command line: each error names what is wrong and one command that works."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import tool
from holdfast.cli.failures.refusal import FAILED, NOT_FOUND, USAGE, WAITING
from holdfast.cli.main import cli
from holdfast.cli.show.catalog import COMMANDS, PLACEHOLDERS
from tests.cli.test_cli import call, data, refused
from tests.cli.test_pictures import bare

SHOP = """
from holdfast import Task, agent, tool

@tool(effect="once")
def charge(order: int) -> dict:
    raise ConnectionError("lost")

@tool(effect="once", risk="money")
def refund(order: int) -> str:
    return "refunded"

@agent
def shop(task: Task, order: int) -> str:
    return task.call(charge, order=order)["id"]

@agent(required_for_risk_levels=["money"])
def back(task: Task, order: int) -> str:
    task.decide("which?", "all", why="broken")
    return task.call(refund, order=order)
"""


@pytest.fixture
def shop(folder):
    Path("shop.py").write_text(SHOP)
    yield folder
    sys.modules.pop("shop", None)


# Calls in doubt


def test_a_settlement_without_the_result_that_is_needed_says_so_until_it_is_given(shop):
    _, err = call("run", "shop.py:shop", "-p", "order=7", "--id", "o7", code=WAITING)
    assert "VALUE is what charge returned (dict)" in err, "the type is known where the tool is"
    call("settle", "o7", "charge#1", "--happened")
    _, err = call("resume", "o7", "shop.py", code=WAITING)
    why = "it was settled as happened, but the result of charge() does not fit: Expected `object`, got `null`"
    for told in (err, call("show", "o7")[0], call("inbox")[0]):
        assert why in told and "it must be dict" in told
    assert why in data("inbox")[0]["why"]
    call("settle", "o7", "charge#1", "--happened", "--result", '{"id": "ch-1"}')
    assert call("resume", "o7", "shop.py")[0] == "ch-1\n"


def test_a_rejected_call_has_the_effect_its_tool_declares(shop):
    call("run", "shop.py:back", "-p", "order=7", "--id", "b7", code=WAITING)
    call("reject", "b7", "refund")
    _, err = call("resume", "b7", "shop.py", code=FAILED)
    out, _ = call("show", "b7")
    assert re.search(r"refund#1 +failed +0 +\S+ ms +once +ApprovalDenied", out)
    assert data("show", "b7")["steps"]["refund#1"]["effect"] == "once"
    for told in (err, out):  # and the way out of it is one command
        found = re.search(r"to start from before it: holdfast (fork b7 --at \d+)", told)
        assert found
    fork = call(*found[1].split())[0].strip()
    call("resume", fork, "shop.py", code=WAITING)
    assert [one["kind"] for one in data("inbox") if one["task"] == fork] == ["approval"]


# Tasks of programs


def test_a_task_of_a_program_is_not_said_to_be_resumable_by_a_file(folder):
    @tool(effect="once")
    def charge(order: int) -> dict:
        raise ConnectionError("lost")

    with holdfast.open("holdfast.db") as app:
        with pytest.raises(holdfast.Suspended), app.task("triage", id="langgraph:t1:call_7") as task:
            task.call(charge, order=1)
        seq = app.get("langgraph:t1:call_7").seq
    for words in (["show", "langgraph:t1:call_7"], ["settle", "langgraph:t1:call_7", "charge#1", "--did-not-happen"]):
        told = "".join(call(*words))
        assert "holdfast resume" not in told and "run your program again" in told, words
        seq += words[0] == "settle"
    code, told = refused("resume", "langgraph:t1:call_7", "agents.py", code=USAGE)
    assert code == "invalid-value" and "run that program again" in told and "Nothing was written." in told
    with holdfast.open("holdfast.db") as app:
        assert app.get("langgraph:t1:call_7").seq == seq, "and nothing was"


def test_a_task_whose_agent_is_not_known_is_not_said_to_be_resumed(folder):
    call("run", "agents.py:asker", "--id", "h1", code=WAITING)
    _, told = refused("resume", "h1", code=USAGE)
    assert told.splitlines() == [
        "error[invalid-value]: the agent 'asker' of task 'h1' is not known here",
        "  Name the file it is in. Nothing was written.",
        "help: holdfast resume h1 FILE",
    ]


# Placeholders


@pytest.mark.parametrize(
    "line",
    [
        *("resume h1 FILE", "answer h1 seat VALUE", "answer h1 seat aisle --by YOU", "cancel h1 --why WHY"),
        *("run FILE", "worker FILE", "settle h1 CALL --did-not-happen", "list --store PATH", "run -p VALUE"),
        *("show ID", "fork h1 --set VALUE", "resume h1 agents.py --deadline TIME"),
    ],
)
def test_a_word_of_a_hint_that_is_pasted_as_it_is_is_refused(folder, line):
    call("run", "agents.py:asker", "--id", "h1", code=WAITING)
    before = data("show", "h1")["seq"]
    code, told = refused(*line.split(), code=USAGE)
    word = next(word for word in line.split() if word in PLACEHOLDERS)
    meaning = PLACEHOLDERS[word].partition(";")[0]
    assert code == "usage" and f"{word} is a placeholder: give {meaning}" in told
    assert data("show", "h1")["seq"] == before
    call("answer", "h1", "seat", '"VALUE"')  # who means the word quotes it


# What is shown


def test_a_diff_has_no_times_unless_it_is_asked_for_them(shop):
    with holdfast.open("holdfast.db") as app, app.task("plans", id="d") as task:
        task.state.set("at", "noon")
        task.decide("which?", "this", why="cheap")
    out, _ = call("diff", "d", "1")
    assert "question=which?" in out and not re.search(r"\d{4}-\d\d-\d\dT", out)
    assert "/state/at  noon" in out, "a name of the agent's own is not a time"
    assert re.search(r"\bat=\d{4}-", call("diff", "d", "1", "--times")[0])


def test_a_failed_task_is_shown_with_what_to_type_next(folder):
    call("run", "agents.py:failer", "--id", "f", code=FAILED)
    out, _ = call("show", "f")
    assert "to try again: holdfast resume f FILE" in out and "holdfast reopen f" in out
    call("cancel", "f", code=4)


def test_tasks_without_a_worker_are_one_entry_for_each_agent(folder):
    with holdfast.open("holdfast.db") as app:
        from tests.cli import cli_agents

        for n in range(3):
            app.start(cli_agents.flaky, id=f"later-{n}")
        app.start(cli_agents.asker, id="asks")
    out, _ = call("inbox")
    assert "3 tasks of flaky  no worker" in out and out.count("holdfast worker FILE") == 2
    assert "asks  no worker" in out
    assert len(data("inbox")) == 4, "programs get each of them"


# Settings


def test_a_misspelled_key_of_the_settings_is_named_with_the_right_one(folder):
    Path("pyproject.toml").write_text('[tool.holdfast]\nagent = ["agents.py"]\n')
    for words in (["run", ":greet", "-p", "name=Ana"], ["worker"], ["config"]):
        _, told = refused(*words, code=USAGE)
        assert "unknown key 'agent'" in told and "did you mean 'agents'?" in told.lower()


# Flags


def test_errors_and_help_speak_of_flags(folder):
    with holdfast.open("holdfast.db"):
        pass
    _, told = refused("gc", "--older-than", "30", code=USAGE)
    assert "--older-than '30'" in told and "age=" not in told
    with holdfast.open("holdfast.db") as app, app.task("plans", id="d") as task:
        task.fact("a", 1, source="b")
    _, told = refused("rollback", "d", "--yes", code=4)
    assert "--to …" in told and "--versions 1" in told and "to=" not in told and "versions=" not in told
    for name in ("run", "resume"):
        words = ("agents.py:asker",) if name == "run" else ("d", "agents.py")
        assert "--hold 'soon' is not a length of time" in refused(name, *words, "--hold", "soon", code=USAGE)[1]
    for name in COMMANDS:
        told = call(name, "--help")[0]
        python = re.findall(r"(?<![@(\[\w])\b[a-z_]+=(?![a-zA-Z\"'\d])", told)
        assert not python or name == "test", (name, python)


def test_a_completed_task_is_not_reopened_and_the_error_says_once_that_nothing_was_written(folder):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "g")
    _, told = refused("reopen", "g", code=4)
    assert told.lower().count("nothing was written") == 1 and "help: holdfast fork g --at SEQ" in told


@pytest.mark.parametrize(
    "line",
    ["run agents.py:greet --name Ana", "run agents.py:greet name=Ana", "run agents.py:greet --name=Ana"],
)
def test_a_parameter_without_its_flag_gets_a_command_that_works(folder, line):
    code, told = refused(*line.split(), code=USAGE)
    assert code == "usage" and "-p" in told
    command = told.splitlines()[-1].removeprefix("help: holdfast ")
    assert command == "run agents.py:greet -p name=Ana"
    assert call(*command.split())[0] == "HELLO ANA\n"


def test_a_file_without_its_ending_is_named_with_it(folder):
    assert "help: add its ending: agents.py" in refused("run", "agents", code=USAGE)[1]
    assert "Python files here: agents.py" in refused("run", "trip", code=USAGE)[1]
    assert "did you mean agents.py?" in refused("run", "agent.py", code=USAGE)[1]


def test_the_store_may_stand_before_the_command_and_help_may_be_asked_for_in_words(folder):
    call("run", "agents.py:greet", "-p", "name=Ana", "--id", "g", "--store", "other.db")
    assert "g " in call("--store", "other.db", "list")[0]
    assert "g " in call("--store", "wrong.db", "list", "--store", "other.db")[0], "the command's own wins"
    assert call("--namespace", "acme", "--store", "other.db", "list")[0] == ""
    assert call("help")[0] == call("--help")[0]
    assert call("help", "run")[0] == call("run", "--help")[0]
    assert refused("help", "fly", code=USAGE)[0] == "usage"


def test_one_rule_for_values_holds_in_every_flag(folder):
    for n, (given, meant) in enumerate(
        (("12", 12), ("aisle", "aisle"), ('"12"', "12"), (":=[1]", [1]), ("007", "007"))
    ):
        call("run", "agents.py:asker", "--id", f"a{n}", code=WAITING)
        call("answer", f"a{n}", "seat", given)
        call("fork", f"a{n}", "--id", f"f{n}", "--set", f"seat={given}" if given[:2] != ":=" else f"seat{given}")
        call("signal", f"a{n}", "paid", given)
        assert data("show", f"f{n}")["state"]["seat"] == meant
        events = data("log", f"a{n}")
        assert [one["value"] for one in events if one["kind"] in ("wait_ended", "signal_received")] == [meant] * 2


def test_an_answer_stays_text_where_the_question_takes_text(folder):
    @holdfast.agent
    def asks(task: holdfast.Task) -> str:
        return task.ask("Which code?", name="code", answer=str) + task.ask("Sure?", name="sure", answer=str)

    with holdfast.open("holdfast.db") as app:
        app.run(asks, id="typed")
    call("answer", "typed", "code", "12")
    assert data("log", "typed")[-1]["value"] == "12"


def test_completion_is_a_script_that_a_shell_takes_whatever_the_terminal(folder):
    given = {"FORCE_COLOR": "1", "COLUMNS": "40"}
    out, err = call("completion", "bash", **given)
    assert out == call("completion", "bash")[0]
    assert subprocess.run(["bash", "-n"], input=out, text=True, check=False).returncode == 0
    assert "  " not in call("completion", "bash")[1].strip() and err


# Narrow terminals


def test_at_forty_columns_no_line_of_an_error_is_wider_but_a_command(folder):
    narrow = {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "40"}
    slips = ["run agents.py:greet --city oslo", "show", "flyy", "answer a b --by", "settle a b", "resume x FILE"]
    for line in slips:
        done = CliRunner().invoke(cli, line.split(), env=narrow)
        for part in done.stderr.splitlines():
            assert len(bare(part)) <= 40 or part.strip().removeprefix("help: ").startswith("holdfast "), (line, part)


def test_a_sentence_about_holdfast_is_not_taken_for_a_command():
    from holdfast.cli.show.style import fold

    assert max(map(len, fold("upgrade holdfast because a newer version of it has written this store", 30))) <= 30
    assert (
        fold("now type this one here: holdfast show trip-oslo --at 7", 30)[-1].strip()
        == "holdfast show trip-oslo --at 7"
    )


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_breaks_no_word_at_forty_columns(folder, name):
    words = set(call(name, "--help", COLUMNS="200", TERMINAL_WIDTH="200")[0].split())
    done = CliRunner().invoke(cli, [name, "--help"], terminal_width=40)
    assert done.exit_code == 0
    broken = [word for word in done.stdout.split() if word not in words]
    assert not broken, broken
    assert "HOLDFAST_NAMESPACE" in done.stdout or "HOLDFAST_NAMESPACE" not in " ".join(words)


# Explanations


def test_an_explanation_has_all_that_the_error_has_and_more(folder):
    call("run", "agents.py:greet", "-p", "name=Ana")
    _, told = refused("show", "nobody", code=NOT_FOUND)
    out, _ = call("explain", "task-not-found")
    command = told.splitlines()[-1].removeprefix("help: ")
    assert command in out and "Nothing was written." in out
    for head in ("What failed", "Why", "What is on record", "What to do", "In a program", "In a shell"):
        assert f"{head}\n" in out
    assert json.loads(call("explain", "task-not-found", "--json")[0])["why"]


def test_the_plain_name_of_an_inbox_filter_and_the_old_one_mean_the_same(folder):
    call("run", "agents.py:asker", "--id", "h1", code=WAITING)
    assert data("inbox", "--quarantined") == data("inbox", "--set-aside") == []
    assert "--quarantined" in call("inbox", "--help")[0] and "--set-aside" not in call("inbox", "--help")[0]


def test_the_order_of_the_demo_has_a_plan_that_is_done(folder):
    subprocess.run([sys.executable, "-m", "holdfast", "demo"], check=True, capture_output=True, env={**os.environ})
    out, _ = call("--store", "holdfast-demo.db", "show", "order-7")
    assert out.count("[x]") == 3 and "[ ]" not in out


def test_a_pending_task_is_not_reopened_and_the_error_names_the_command_that_resumes_it(folder):
    call("run", "agents.py:asker", "--id", "a", code=WAITING)
    call("answer", "a", "seat#1", "aisle")
    _, told = refused("reopen", "a", code=4)
    assert "task 'a' is pending" in told and told.endswith("help: holdfast resume a FILE\n")


def test_an_option_without_its_value_points_to_the_help_of_its_command(folder):
    told = call("approve", "a", "pay#1", "--bound", code=USAGE)[1]
    assert told.endswith("help: holdfast approve --help\n")
