"""`python -m holdfast.testing` certifies a server, and says what does not hold."""

import json
import subprocess
import sys
import threading

import psycopg
import pytest

import holdfast
from holdfast.core.errors import InvalidUrl
from holdfast.store.postgres.queues import PostgresQueues
from holdfast.testing.certification import certificate, storm, suite
from holdfast.testing.certification.place import TrialServer
from holdfast.testing.crash.world import World


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(certificate, "CRASH_POINTS", 8)
    monkeypatch.setattr(certificate, "KILLS", 2)


def schemas(url):
    with psycopg.connect(url) as link:
        return {name for (name,) in link.execute("select nspname from pg_namespace").fetchall()}


def lines_of(printed):
    return {line[6:32].strip(): line[:5].strip() for line in printed.splitlines() if line[:5].strip() in ("ok", "fail")}


def test_a_server_without_locks_and_notices_is_certified_and_left_as_it_was(postgres_url, bare_role, small, capsys):
    before = schemas(postgres_url)
    url = f"{bare_role(postgres_url)}?presence=lease&wakeups=poll"
    assert certificate.main([url, "--only", "heard"]) == 0
    printed = capsys.readouterr().out
    parts = (
        "server",
        "schema",
        "conformance: queues",
        "crash points",
        "living workers",
        "killed workers",
        "left behind",
    )
    assert lines_of(printed) == dict.fromkeys(parts, "ok")
    assert "0 payments twice" in printed and "2 workers killed" in printed
    assert ": holds (" in printed and "only tests with 'heard' in their name were run" in printed
    assert schemas(postgres_url) == before


def test_a_role_that_may_not_lock_is_told_that_no_store_can_be_made(postgres_url, bare_role, capsys):
    assert certificate.main([bare_role(postgres_url), "--json"]) == 1
    done = json.loads(capsys.readouterr().out)
    assert not done["holds"] and [line["level"] for line in done["lines"]] == ["ok", "fail", "ok"]
    assert "presence=lease" in done["lines"][1]["failures"][0]


def test_a_role_that_may_make_no_schema_is_no_verdict_on_its_server(postgres_url, bare_role, capsys):
    poor, database = bare_role(postgres_url), postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as link:
        link.execute(f"revoke create on database {database} from {poor.partition('//')[2].partition('@')[0]}")
    assert certificate.main([f"{poor}?presence=lease"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: the role of the address may not create schemas: permission denied"), told
    assert "\nhelp: grant create on database" in told


def test_a_text_that_no_test_has_in_its_name_is_no_verdict(postgres_url, capsys):
    assert certificate.main([postgres_url, "--only", "nothing-of-the-kind"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: no conformance test has 'nothing-of-the-kind' in its name\nhelp: "
    )


def test_ctrl_c_within_the_suite_is_no_verdict_and_leaves_nothing(postgres_url, monkeypatch, capsys):
    def interrupted(*_):
        monkeypatch.setattr(TrialServer, "_drop", lambda *_: monkeypatch.undo())  # a second one comes at the first drop
        raise KeyboardInterrupt

    before = schemas(postgres_url)
    monkeypatch.setattr(PostgresQueues, "ready", interrupted)
    assert certificate.main([postgres_url, "--only", "depths_and_wakes"]) == 130
    seen = capsys.readouterr()
    assert "no verdict" in seen.err and "conformance" not in seen.out
    assert schemas(postgres_url) == before


def test_a_test_that_fails_is_named_with_its_error(postgres_url, monkeypatch):
    monkeypatch.setattr(PostgresQueues, "ready", lambda *_: 17)
    parts = {part.name: part for part in suite.run(TrialServer(postgres_url), "depths_and_wakes")}
    assert parts["queues"].failed
    assert all("17" in why for why in parts["queues"].failed.values())
    assert not any(part.failed for name, part in parts.items() if name != "queues")


def test_a_payment_that_was_made_twice_does_not_hold(postgres_url):
    with World() as world, holdfast.open(postgres_url) as app:
        ids = storm.begin(app, 1, 2)
        worker = app.worker([storm.payer(world, 0)])
        threading.Thread(target=lambda: (storm.wait_for(app, ids), worker.stop())).start()
        worker.run()
        assert storm.wrong(app, postgres_url, world, ids, 2) == []
        world.request("pay", key=world.requests("pay")[0].key, n=0)
        assert storm.wrong(app, postgres_url, world, ids, 2) == ["1 payments were made twice"]


def test_an_address_that_names_a_schema_is_refused_and_one_that_answers_nothing_is_no_verdict(postgres_url, capsys):
    with pytest.raises(InvalidUrl):
        TrialServer(f"{postgres_url}?schema=holdfast")
    assert certificate.main([f"{postgres_url}?schema=holdfast"]) == 2
    assert certificate.main(["postgresql://postgres@127.0.0.1:1/none"]) == 2
    assert "schema" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["pytest", "psycopg"])
def test_what_is_not_installed_is_named_with_how_to_get_it(package):
    program = (
        f"import runpy, sys; sys.modules[{package!r}] = None; runpy.run_module('holdfast.testing', alter_sys=True)"
    )
    done = subprocess.run([sys.executable, "-c", program, "postgresql://h/d"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {package} is not installed\nhelp: "), done.stderr
    assert "[postgres,testing]" in done.stderr
