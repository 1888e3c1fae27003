"""Errors: every code of the tree is explained, in the command and in the docs, in one shape."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tools.reference import __main__ as reference
from tools.reference.contents import with_contents

import holdfast
from holdfast.cli.failures.codes import CODES, OWN
from holdfast.cli.failures.explanation import classes, explained, known
from holdfast.cli.failures.refusal import Refused, lines
from holdfast.cli.main import COMMANDS, cli
from holdfast.core.errors.commands import in_commands

ROOT = Path(__file__).parents[2]


def test_every_error_of_the_tree_is_explained_and_nothing_else_is():
    public = {
        one.code
        for one in (getattr(holdfast, name) for name in holdfast.__all__)
        if isinstance(one, type) and issubclass(one, holdfast.HoldfastError)
    }
    assert public <= set(classes())
    assert set(CODES) == set(known()) == {*classes(), *OWN}


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_code_says_what_was_written_and_what_to_do(code):
    one = explained(code)
    assert one.when.endswith(".") and one.written.endswith(".")
    assert re.search(r"written|on record|kept|touched|safe|changed|acknowledged", one.written)
    assert 1 <= one.exit <= 6
    if code != "invalid-value":  # whose own hint says it
        assert one.do
    for line in one.do:
        assert "app." not in line and "{" not in line.replace("{{", "").replace("{name}", "")
        for command in re.findall(r"holdfast ([a-z]+(?:-[a-z]+)*)\b(?!\[)", line):
            assert command in COMMANDS or command in ("doctor",) or "upgrade holdfast" in line, line
    done = CliRunner().invoke(cli, ["explain", code])
    assert done.exit_code == 0 and done.stdout.startswith(code) and one.written in done.stdout
    assert json.loads(CliRunner().invoke(cli, ["explain", code, "--json"]).stdout)["code"] == code


def test_all_codes_are_listed_and_a_wrong_one_is_told_which_is_close(texts):
    listed = [line.split()[0] for line in CliRunner().invoke(cli, ["explain"]).stdout.splitlines()]
    assert listed == known()
    assert [one["code"] for one in json.loads(CliRunner().invoke(cli, ["explain", "--json"]).stdout)] == known()
    done = CliRunner().invoke(cli, ["explain", "step-chnged"])
    assert done.exit_code == 2 and "'step-changed'" in done.stderr
    texts.check(done.stderr)


def test_the_pages_of_the_docs_are_those_of_the_code():
    for name, page in reference.PAGES.items():
        text = (ROOT / "docs" / name).read_text("utf-8")
        assert text == with_contents(page()), f"docs/{name}: python -m tools.reference docs"
        assert f"(docs/{name})" in (ROOT / "README.md").read_text("utf-8")
    commands = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert sorted(re.findall(r"^### (.+)$", commands, re.M)) == sorted(COMMANDS)


ERRORS = [
    holdfast.TaskNotFound("trip-1"),
    holdfast.TaskFinished("trip-1", "failed", "app.answer"),
    holdfast.TaskBusy("trip-1", "77-ab"),
    holdfast.InputConflict("trip-1", {"city": "Oslo"}, {"city": "x" * 500}),
    holdfast.StepChanged("draft#1", {"notes": "Q3"}, {"notes": "Q4"}),
    holdfast.BudgetExceeded("trip-1", "tokens", 10, 10),
    holdfast.SeqOutOfRange("trip-1", 9, 3),
    holdfast.StepNotFound("trip-1", "pay#1"),
    holdfast.PatchConflict("trip-1", "state.x", base=1, mine="set 2", theirs="set 3"),
    holdfast.NoMock("pay", "pay#1"),
    holdfast.ResumeExpired("too old", hint="start it again, or resume it anyway: app.resume(id, agent, anyway=True)"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_an_error_is_told_in_one_shape_with_what_to_type(error, texts):
    told = lines(Refused(error.code, in_commands(error.message), hint=error.hint, details=error.details))
    head, *rest = told
    assert head.startswith(f"error[{error.code}]: ") and in_commands(error.message).startswith(head.partition(": ")[2])
    assert "app." not in "\n".join(rest)
    texts.check("\n".join(told))
    assert re.search(r"written|on record|kept|not made", "\n".join(told), re.I)
    assert all(line.startswith("  ") for line in rest[:-1]) and rest[-1].startswith("help: ")
    assert len(told) <= 3 or error.details.keys() & {"recorded", "given", "mine", "theirs", "base"}
