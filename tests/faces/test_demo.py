"""The demo, as a newcomer sees it."""

import os
import subprocess
import sys


def demo(folder, *options):
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "demo", *options], cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_the_demo_kills_a_process_and_loses_nothing(tmp_path):
    for _ in range(2):
        done = demo(tmp_path)
        assert done.returncode == 0, done.stderr
        assert "kill -9" in done.stdout
        assert "acknowledged 3 steps, found 3, lost 0" in done.stdout
        assert "its holder is dead" in done.stdout
        assert "3 steps were there, 3 ran" in done.stdout
        assert "intact" in done.stdout and "completed" in done.stdout
    assert set(os.listdir(tmp_path)) <= {"holdfast-demo.db", "holdfast-demo.db-holders"}


def test_the_demo_touches_no_store_but_its_own(tmp_path):
    import holdfast

    with holdfast.open(tmp_path / "mine.db") as app:
        app.start("precious", id="t")
    done = demo(tmp_path, "--store", "mine.db")
    assert done.returncode == 1
    assert "error[invalid-value]" in done.stderr and "help:" in done.stderr and "Traceback" not in done.stderr
    with holdfast.open(tmp_path / "mine.db") as app:
        assert app.get("t").status == "pending"


def test_a_place_that_is_not_there_is_one_clear_line(tmp_path):
    done = demo(tmp_path, "--store", "no/such/place.db")
    assert done.returncode == 1 and done.stderr.startswith("error[not-a-store]") and "Traceback" not in done.stderr


def test_the_command_says_its_version_and_helps():
    for option, text in (("--version", "holdfast 0."), ("--help", "demo")):
        done = subprocess.run([sys.executable, "-m", "holdfast", option], capture_output=True, text=True)
        assert done.returncode == 0 and text in done.stdout
