"""What tests/snapshots.py promises: a text that differs, is missing or is kept for nothing fails its test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snapshots import Texts, load, merged, save, steady

CONFTEST = """
from pathlib import Path
from tests.snapshots import Library, texts

def pytest_addoption(parser):
    parser.addoption("--write-texts", action="store_true")
    parser.addoption("--quick", action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(Library(config, Path(__file__).parent), Library.NAME)
"""
TESTS = """
import pytest

@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("verb", ["stop", "go"])
def test_both(texts, store, verb):
    with texts.raises(ValueError):
        raise ValueError(f"cannot {verb}")

def test_skipped(texts):
    SKIP
    texts.check("seen")

def test_gone(texts):
    texts.check("gone")
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
ONE = "the task 't' is completed\nfork it to go on"


def checking(*kept, writing=False):
    return Texts("test_it", list(kept), writing=writing)


def failure(work):
    with pytest.raises(pytest.fail.Exception) as failed:
        work()
    return str(failed.value)


def test_a_text_that_is_kept_passes():
    texts = checking(ONE, "another")
    for text in (ONE, "another", ONE):  # what was seen before is the same text
        texts.check(text)
    texts.finish()


def test_a_text_that_differs_fails_and_shows_both():
    told = failure(lambda: checking(ONE).check(ONE.replace("completed", "done")))
    assert "make texts" in told and "- the task 't' is completed" in told and "+ the task 't' is done" in told


def test_a_text_that_is_missing_fails_and_names_the_command():
    told = failure(lambda: checking().check(ONE))
    assert "make texts" in told and ONE in told


def test_a_text_that_nobody_checks_any_more_fails():
    texts = checking(ONE, "another")
    texts.check(ONE)
    assert "make texts" in failure(texts.finish)


def test_an_error_is_of_its_class_and_has_its_text():
    texts = checking("no")
    with texts.raises(ValueError) as caught:
        raise ValueError("no")
    assert caught.value.args == ("no",)
    with pytest.raises(TypeError), texts.raises(ValueError):
        raise TypeError("no")
    with pytest.raises(pytest.fail.Exception), texts.raises(ValueError):
        raise ValueError("never")


def test_what_differs_from_run_to_run_is_named_instead(tmp_path):
    told = f"{tmp_path}/a.db at 127.0.0.1:54321, <object at 0x7fdcd6b0d7b0>, 17 of 93"
    assert steady("run 293 of 93", {"count": 93}) == "run 293 of <count>"
    assert steady(told, {"count": 93}) == "<tmp>/a.db at 127.0.0.1:<port>, <object at <address>>, 17 of <count>"


def test_parameters_that_make_no_difference_are_left_out():
    stores = ("memory", "sqlite")
    assert merged({(store,): ["a"] for store in stores}) == {"": ["a"]}
    told = {(store, case): [case] for store in stores for case in ("x", "y")}
    assert merged(told) == {"*-x": ["x"], "*-y": ["y"]}
    assert merged({**told, ("sqlite", "y"): ["z"]}) == {
        f"{store}-{case}": told[store, case] for store, case in told
    } | {"sqlite-y": ["z"]}


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        'it\'s "quoted"',
        'only "double"',
        "back\\slash",
        "two\nlines\n",
        "'''\n\"\"\"'",
        "\x1b[32mgreen\x1b[0m\ttab\x7f\r\n",
        "",
        "ä✂水",
    ],
)
def test_any_text_is_read_as_it_was_written(tmp_path, text):
    kept = {
        ("engine/test_a.py", "test_it"): {"": [text]},
        ("engine/test_a.py", "test_many"): {"memory-[x y]": [text, "other"], "*-2": [], "*-10": [text]},
        ("cli/test_b.py", "TestIt::test_it"): {"": [text, text + "!"]},
    }
    save(tmp_path, kept)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cli.toml", "engine.toml"]
    assert load(tmp_path) == kept
    save(tmp_path, {})
    assert load(tmp_path) == {}


@pytest.fixture
def project(tmp_path):
    """Tests of their own, and a way to run them."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)

    def run(source, *options):
        (tmp_path / "tests" / "test_it.py").write_text(source)
        command = [sys.executable, "-m", "pytest", "tests", "-p", "no:cacheprovider", *options]
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
        kept = tmp_path / "tests" / "texts" / "test_it.toml"
        return done.returncode, done.stdout, kept.read_text() if kept.exists() else ""

    return run


def test_one_command_writes_them_all_and_drops_what_no_test_checks(project):
    source = TESTS.replace("SKIP", "pass")
    code, out, _ = project(source)
    assert code == 1 and "6 failed" in out and "run `make texts`" in out
    code, out, kept = project(source, "--write-texts", "-n", "2")
    assert code == 0 and "6 passed" in out
    assert '"*-go" = "cannot go"' in kept or '"go-*" = "cannot go"' in kept
    assert 'test_gone = "gone"' in kept and project(source)[0] == 0
    reworded = (
        source.replace("cannot {verb}", "you can't {verb}").replace("pass", "pytest.skip()").split("def test_gone")[0]
    )
    assert "4 failed, 1 skipped" in project(reworded)[1]
    code, _, kept = project(reworded, "--write-texts")
    assert code == 0 and "you can't go" in kept and "cannot" not in kept and "test_gone" not in kept
    assert 'test_skipped = "seen"' in kept, "what is not seen here may be seen elsewhere"
    assert project(reworded, "--write-texts", "-k", "both")[0] == pytest.ExitCode.USAGE_ERROR
