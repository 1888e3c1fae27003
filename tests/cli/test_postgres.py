"""The command line on a server: what looks at a store of PostgreSQL, and writes nothing where it only looks."""

import json

import pytest
from click.testing import CliRunner

from holdfast.cli.failures.refusal import FAILED, STORE
from holdfast.cli.main import cli

psycopg = pytest.importorskip("psycopg")


@pytest.fixture
def empty(postgres_databases):
    url = postgres_databases.new(empty=True)
    yield url
    postgres_databases.drop(url)


def told(*arguments, code=0):
    done = CliRunner().invoke(cli, [*arguments, "--json"])
    assert done.exit_code == code, (done.stdout, done.stderr)
    return json.loads(done.stdout if code == 0 else done.stderr.strip().splitlines()[-1])


def schemas(url):
    with psycopg.connect(url) as raw:
        return raw.execute("select count(*) from pg_namespace where nspname = 'holdfast'").fetchone()[0]


def test_the_schema_of_a_server_is_looked_at_before_it_is_touched(empty):
    would = told("migrate", "--dry-run", "--store", empty)
    assert would["from"] == 0 and would["to"] == len(would["steps"]) > 0 and schemas(empty) == 0
    sql = CliRunner().invoke(cli, ["migrate", "--dump-sql", "--store", empty]).stdout
    assert "create table" in sql.lower() and schemas(empty) == 0
    assert told("migrate", "--store", empty)["steps"] == would["steps"] and schemas(empty) == 1
    assert told("migrate", "--store", empty)["steps"] == []
    doctor = CliRunner().invoke(cli, ["doctor", "--store", empty, "--json"])  # it may not like the server's settings
    found = {one["what"]: one["said"] for one in json.loads(doctor.stdout)}
    assert found["schema"].count(str(would["to"])) == 2


@pytest.mark.parametrize("command", [["list"], ["show", "t"], ["stats"], ["doctor"], ["verify"], ["inbox"]])
def test_whoever_only_looks_makes_no_schema(empty, command, texts):
    error = told(*command, "--store", empty, code=STORE)["error"]
    assert error["code"] == "not-a-store" and schemas(empty) == 0
    texts.check(error["message"])


def test_the_doctor_names_an_index_that_is_not_valid(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        [name] = raw.execute(
            "select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid "
            "join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'holdfast' order by 1 limit 1"
        ).fetchone()
        raw.execute("update pg_index set indisvalid = false where indexrelid = %s::regclass", [f"holdfast.{name}"])
    doctor = CliRunner().invoke(cli, ["doctor", "--store", postgres_url, "--json"])
    [found] = [one for one in json.loads(doctor.stdout) if one["what"] == "indexes"]
    assert found["level"] == "fail" and name in found["said"] and found["remedy"].startswith("reindex index")
    assert doctor.exit_code == FAILED


def test_a_schema_of_a_newer_version_is_refused_and_left_alone(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute("insert into holdfast.migrations values (99, 'later', 'x', 0)")
    assert told("migrate", "--dry-run", "--store", postgres_url, code=STORE)["error"]["code"] == "store-too-new"


def test_a_server_that_is_not_there_is_told_as_that():
    url = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=2"
    assert told("migrate", "--dry-run", "--store", url, code=STORE)["error"]["code"] == "store-unreachable"
