"""The examples, as a newcomer uses them: run, run again, killed in the middle and run again, crashed everywhere."""

import ast
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.engine.definitions.tool import Tool
from holdfast.testing import expect

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples").glob("*.py"))
SAMPLE = None if os.environ.get("HOLDFAST_TEST_ALL") == "1" else 28
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "HOLDFAST_"))}
ENVIRONMENT = {**PLAIN, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "error", "PYTHONDONTWRITEBYTECODE": "1"}
CITIES = ["Oslo", "Rome", "Lima", "Bern", "Kyiv", "Bonn", "Cork", "Nice", "Graz"]
REPAIRS = ["release v41", "replicas 6", "replicas 2", "release v42", "new_search off"]
TICKET = "Express to oslo, aisle seat"
LIKES = {"seat": "aisle", "max_price": 400}


def test_there_are_six():
    names = [path.stem for path in FILES]
    assert names == ["disk_space", "flight_booking", "incident_triage", "invoice", "meeting_recap", "research"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows_and_how_to_run_it(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) < 60
    docstring = " ".join(text.split('"""')[1].split())
    assert f"python examples/{path.name}" in docstring and "Shows " in docstring and "run it again" in docstring


def test_the_invoice_agent_takes_at_most_25_lines_of_one_statement_each():
    """Six steps, two `once` tools with business keys, an approval, a compensation; imports counted too."""
    tree = ast.parse((ROOT / "examples" / "invoice.py").read_text("utf-8"))
    docstring, *code = [one for one in tree.body if not (isinstance(one, ast.If) and "__name__" in ast.unparse(one))]
    assert isinstance(docstring, ast.Expr)
    lines = {line for one in code for line in range(_first_line(one), one.end_lineno + 1)}
    text = (ROOT / "examples" / "invoice.py").read_text("utf-8").splitlines()
    assert len([line for line in lines if text[line - 1].strip()]) <= 25
    statements = [one.lineno for one in ast.walk(tree) if isinstance(one, ast.stmt)]
    assert len(statements) == len(set(statements)), "one statement a line"


def _first_line(node):
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])


def test_an_invoice_is_paid_once_after_approval_whoever_asks_again(example, holdfast_app):
    module, app = example("invoice"), holdfast_app
    done = app.run(module.invoice, {"number": "A-7"}, id="first")
    assert done.waiting.on[0]["tool"] == "pay" and "approval requested: pay(number=A-7" in str(done.waiting)
    app.approve("first", "pay", by="ana")
    done = app.resume("first", module.invoice)
    expect(done).completed("archived invoice A-7: transfer of 12400 to Acme-001")
    assert [step.name for step in done.all_steps()] == ["read", "sum", "account_of", "pay", "book", "archive"]
    again = app.run(module.invoice, {"number": "A-7"}, id="second")
    if again.waiting:
        app.approve("second", "pay", by="ana")
        again = app.resume("second", module.invoice)
    assert again.result == done.result


def test_an_invoice_that_cannot_be_booked_is_paid_back(example, holdfast_app, capsys, monkeypatch):
    module, app = example("invoice"), holdfast_app

    def broken(number, transfer):
        raise holdfast.NotDone("the ledger is closed")

    monkeypatch.setattr(module.book, "fn", broken)
    app.run(module.invoice, {"number": "A-7"}, id="bad")
    app.approve("bad", "pay", by="ana")
    assert app.resume("bad", module.invoice).status == "failed"
    assert capsys.readouterr().out == "recalled transfer of 12400 to Acme-001\n"


def test_an_invoice_survives_a_crash_anywhere(example, crash_everywhere):
    module = example("invoice")

    def finish(app, state):
        for one in state.waiting.on:
            if one["kind"] == "doubt":
                app.settle(state.id, one["key"], happened=False, by="ana")
            else:
                app.approve(state.id, one["key"], by="ana")

    report = crash_everywhere(module.invoice, {"number": "A-7"}, finish=finish, sample=SAMPLE)
    assert report.survived + report.missed == report.tried > 0 and report.in_doubt == 0


def test_the_readme_names_every_example():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert all(f"(examples/{path.name})" in readme for path in FILES)


# As programs: stories of real processes. They mostly sleep, so they are told all at once.


def command(name, *options):
    return [sys.executable, str(ROOT / "examples" / f"{name}.py"), *options]


def run(folder, name, *options, logged=""):
    """Run an example to its end; gives what it printed. A task that fails is logged."""
    given = {"capture_output": True, "text": True, "timeout": 60, "env": ENVIRONMENT}
    done = subprocess.run(command(name, *options), cwd=folder, **given)
    assert done.returncode == 0 and (logged in done.stderr if logged else done.stderr == "")
    return done.stdout


def killed(folder, name, *options, at):
    """Run an example and kill it with SIGKILL as soon as it prints this; gives what it printed until then."""
    told = []
    given = {"stdout": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    with subprocess.Popen(command(name, *options), cwd=folder, **given) as process:
        for line in process.stdout:
            told.append(line)
            if at in line:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL, f"{''.join(told)!r} has no {at!r}"
    return "".join(told)


@contextmanager
def store_of(folder, name):
    with holdfast.open(folder / f"{name}.db") as app:
        assert app.verify().ok
        yield app


def mails(folder):
    return [mail.read_text("utf-8") for mail in sorted((folder / "meeting-outbox").glob("*.eml"))]


def tickets(folder):
    return [one.read_text("utf-8").splitlines()[0] for one in sorted((folder / "airline-tickets").glob("*.txt"))]


def repairs(folder):
    return (folder / "incident-cloud.log").read_text("utf-8").splitlines()


def kept(folder):
    return sorted(os.listdir(folder / "disk-space-files"))


def cities(told):
    return re.findall(r"reading about (\w+)", told)


def the_recap_is_sent_once_however_often_it_is_started(folder):
    first = run(folder, "meeting_recap")
    assert "sending msg-1" in first and "recap-1 is completed" in first and "recap-2 is completed" in first
    second = run(folder, "meeting_recap")
    assert "drafting" not in second and "sending" not in second and "recap-1 is completed" in second
    (mail,) = mails(folder)
    assert "Subject: Recap: planning" in mail and "- Ben fixes the login" in mail


def a_recap_killed_after_it_was_sent_is_not_sent_again(folder):
    killed(folder, "meeting_recap", at="sending msg-1")
    assert len(mails(folder)) == 1
    with store_of(folder, "meeting_recap") as app:
        assert app.get("recap-1").interrupted
    told = run(folder, "meeting_recap")
    assert "in doubt: was it sent? ['msg-1']" in told and "sending" not in told
    assert len(mails(folder)) == 1
    with store_of(folder, "meeting_recap") as app:
        done = app.get("recap-1")
        expect(done).completed().stages("drafting", "sending", "complete")
        expect(done).state(message_id="msg-1")
        assert {step.name: step.attempts for step in done.all_steps()} == {"write_draft": 1, "send_email": 1}


def a_flight_is_booked_when_a_person_agrees_and_the_next_trip_knows_the_first(folder):
    asked = run(folder, "flight_booking")
    assert "approval requested: book_flight(trip=oslo, airline=Express, seat=aisle)" in asked
    assert "holdfast approve trip-oslo 'book_flight#1' --bound" in asked and "--store flight_booking.db" in asked
    assert run(folder, "flight_booking") == asked and tickets(folder) == []
    assert f"completed: {TICKET}" in run(folder, "flight_booking", "--approve")
    assert f"completed: {TICKET}" in run(folder, "flight_booking", "--approve")
    assert tickets(folder) == [TICKET]
    assert "Express to rome" in run(folder, "flight_booking", "rome", "--approve")
    with store_of(folder, "flight_booking") as app:
        expect(app.get("trip-rome")).decided("which flight?", "Express", why="flown before")
        assert app.user("ana").state.all() == {"airline": "Express"}


def a_flight_that_a_person_refused_is_never_booked(folder):
    assert "trip-oslo is failed: call 'book_flight#1' was not approved" in run(
        folder, "flight_booking", "--reject", logged="task trip-oslo of agent travel failed in step book_flight#1"
    )
    run(folder, "flight_booking", "--approve")
    assert tickets(folder) == []


def a_booking_killed_after_the_airline_took_it_is_not_made_again(folder):
    killed(folder, "flight_booking", "--approve", at="booking with")
    assert tickets(folder) == [TICKET]
    told = run(folder, "flight_booking")
    assert f"completed: {TICKET}" in told and "booking with" not in told
    assert tickets(folder) == [TICKET]
    with store_of(folder, "flight_booking") as app:
        assert app.user("ana").state.airline == "Express"


def an_attempt_that_did_not_help_is_undone_and_the_next_one_is_made(folder):
    told = run(folder, "incident_triage")
    assert "checkout is well, it was the new search" in told and "the error rate is still 12 %" in told
    assert repairs(folder) == REPAIRS
    assert "checkout is well" in run(folder, "incident_triage") and repairs(folder) == REPAIRS


def a_triage_killed_while_it_acts_makes_every_change_once_and_in_order(folder):
    killed(folder, "incident_triage", at="replicas = 6")
    assert repairs(folder) in (REPAIRS[:2], REPAIRS[:3])
    run(folder, "incident_triage")
    assert repairs(folder) == REPAIRS


def a_triage_killed_while_it_undoes_makes_every_change_once_and_in_order(folder):
    killed(folder, "incident_triage", at="replicas = 2")
    assert repairs(folder) in (REPAIRS[:3], REPAIRS[:4])
    run(folder, "incident_triage")
    assert repairs(folder) == REPAIRS


def research_is_done_once_in_a_store_of_ones_choice(folder):
    assert cities(run(folder, "research", "elsewhere.db")) == CITIES
    second = run(folder, "research", "elsewhere.db")
    assert cities(second) == [] and "9 facts, 10 turns" in second
    assert (folder / "elsewhere.db").exists() and not (folder / "research.db").exists()


def research_killed_after_some_sources_goes_on_with_the_turn_it_was_in(folder):
    assert cities(killed(folder, "research", at="Bern")) == CITIES[:4]
    told = run(folder, "research")
    again = cities(told)
    assert 1 < len(again) <= 6 and again == CITIES[-len(again) :]
    assert "9 facts, 10 turns" in told and " of 20,000 tokens" in told
    report = (folder / "research-report.md").read_text("utf-8")
    assert report.splitlines()[2] == "- Lima: +22 %" and report.count("\n- ") == 9
    with store_of(folder, "research") as app:
        done = app.get("research-1")
        expect(done).completed("research-report.md").fact("Lima", "rose by 22 % in Lima")
        assert done.artifacts[done.facts["Lima"].source].data.startswith("Where lanes were built")
        names = [step.name for step in done.all_steps()]
        assert names.count("model") == 9 and names.count("summary") >= 2


def the_disk_agent_deletes_what_a_person_agreed_to_and_nothing_else(folder):
    asked = run(folder, "disk_space")
    assert "approval requested: delete(name=app.log.1)" in asked and len(kept(folder)) == 3
    assert run(folder, "disk_space") == asked
    assert "clean-1 is completed" in run(folder, "disk_space", "--approve")
    assert kept(folder) == ["orders.csv"]
    assert "approval requested" not in run(folder, "disk_space")
    with store_of(folder, "disk_space") as app:
        expect(app.get("clean-1")).called("delete", times=2).turns(4)


def the_disk_agent_killed_while_it_deletes_needs_no_second_consent(folder):
    killed(folder, "disk_space", "--approve", at="deleted")
    assert 1 <= len(kept(folder)) < 3
    told = run(folder, "disk_space")
    assert "clean-1 is completed" in told and "approval requested" not in told
    assert kept(folder) == ["orders.csv"]


STORIES = [
    the_recap_is_sent_once_however_often_it_is_started,
    a_recap_killed_after_it_was_sent_is_not_sent_again,
    a_flight_is_booked_when_a_person_agrees_and_the_next_trip_knows_the_first,
    a_flight_that_a_person_refused_is_never_booked,
    a_booking_killed_after_the_airline_took_it_is_not_made_again,
    an_attempt_that_did_not_help_is_undone_and_the_next_one_is_made,
    a_triage_killed_while_it_acts_makes_every_change_once_and_in_order,
    a_triage_killed_while_it_undoes_makes_every_change_once_and_in_order,
    research_is_done_once_in_a_store_of_ones_choice,
    research_killed_after_some_sources_goes_on_with_the_turn_it_was_in,
    the_disk_agent_deletes_what_a_person_agreed_to_and_nothing_else,
    the_disk_agent_killed_while_it_deletes_needs_no_second_consent,
]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Every story, each in a folder of its own; its future raises what it found wrong."""
    with ThreadPoolExecutor(6) as pool:
        yield {story: pool.submit(story, tmp_path_factory.mktemp("story")) for story in STORIES}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_as_a_program(story, told):
    told[story].result()


# Crashed everywhere


@pytest.fixture
def example(tmp_path, monkeypatch):
    """An example as a module, in a folder of its own, without what it waits for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def load(name):
        spec = importlib.util.spec_from_file_location(f"examples_{name}", ROOT / "examples" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        module.PAUSE = 0
        for tool in (thing for thing in vars(module).values() if isinstance(thing, Tool)):
            tool.reconcile_after = 0
        return module

    return load


def survived(report):
    assert report.survived + report.missed == report.tried > 0
    assert (report.in_doubt, report.duplicates) == (0, 0)


@pytest.mark.parametrize(("mode", "sample"), [("process", SAMPLE), ("kill", SAMPLE and 8)])
def test_the_recap_survives_a_crash_anywhere(example, crash_everywhere, tmp_path, mode, sample):
    module = example("meeting_recap")

    def check(state, world):
        expect(state).completed().stages("drafting", "sending", "complete").state(message_id="msg-1")
        assert len(mails(tmp_path)) == 1

    given = {"setup": lambda app: shutil.rmtree(module.OUTBOX, ignore_errors=True), "check": check}
    survived(crash_everywhere(module.recap, module.NOTES, **given, mode=mode, sample=sample))


def test_the_recap_can_be_tested_without_a_mail_server(example, holdfast_app):
    module = example("meeting_recap")
    done = holdfast_app.run(module.recap, module.NOTES, mock=True)
    expect(done).completed().called(module.send_email, times=1, to="team@example.com").state(message_id="msg-0")
    assert not module.OUTBOX.exists()


def test_a_booking_survives_a_crash_anywhere(example, crash_everywhere, tmp_path):
    module = example("flight_booking")

    def setup(app):
        shutil.rmtree(module.TICKETS, ignore_errors=True)
        module.TICKETS.mkdir()
        app.user("ana").patch(holdfast.StatePatch(set=LIKES))

    def drive(app):
        done = app.run(module.travel, {"trip": "oslo"}, id="crash-test", user="ana")
        if done.status == "completed":
            assert app.user("ana").state.all() == {**LIKES, "airline": "Express"}
        return done

    def check(state, world):
        assert state.result == TICKET and tickets(tmp_path) == [TICKET]

    given = {"setup": setup, "finish": lambda app, state: app.approve(state.id, "book_flight#1", by="ana")}
    survived(crash_everywhere(drive=drive, **given, check=check, sample=SAMPLE))


def test_a_triage_survives_a_crash_anywhere(example, crash_everywhere, tmp_path):
    module = example("incident_triage")

    def check(state, world):
        expect(state).completed("checkout is well, it was the new search").fact("error rate", 12)
        expect(state).decided("what is the cause?", "the release").decided("what is the cause?", "the new search")
        assert repairs(tmp_path) == REPAIRS

    given = {"setup": lambda app: module.CLOUD.unlink(missing_ok=True), "check": check}
    survived(crash_everywhere(module.triage, {"service": "checkout"}, **given, sample=SAMPLE))


def test_research_survives_a_crash_anywhere(example, crash_everywhere):
    module = example("research")

    def check(state, world):
        assert len(state.facts) == 5 and len(state.messages) == 10 and state.summarised is not None
        assert module.REPORT.read_text("utf-8").count("\n- ") == 5

    given = {"setup": lambda app: module.REPORT.unlink(missing_ok=True), "check": check}
    goal = {"goal": "How much did cycling rise?", "cities": CITIES[:5]}
    survived(crash_everywhere(module.research, goal, **given, sample=SAMPLE))


def test_the_disk_agent_survives_a_crash_anywhere(example, crash_everywhere, tmp_path):
    module = example("disk_space")

    def setup(app):
        module.FOLDER.mkdir(exist_ok=True)
        for name in ("app.log", "app.log.1", "app.log.2", "orders.csv"):
            (module.FOLDER / name).write_text("x")
            os.utime(module.FOLDER / name, None if name == "app.log" else (0, 0))

    def finish(app, state):
        for one in state.waiting.on:
            app.approve(state.id, one["key"], by="you")

    def check(state, world):
        expect(state).completed().called("delete", times=1, name="app.log.1").called("delete", times=2)
        assert kept(tmp_path) == ["app.log", "orders.csv"]

    given = {"setup": setup, "finish": finish, "check": check}
    survived(crash_everywhere(module.cleaner, {"goal": "Free some space."}, **given, sample=SAMPLE))
