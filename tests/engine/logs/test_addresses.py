"""Addresses of stores and caches: what is not understood is refused, and no password is shown."""

import logging
import os

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli.main import cli
from holdfast.core import urls

SECRET = "geheim-S3cret"
MALFORMED = [
    "postgresql:/app:{}@db/x",
    "postgresql:app:{}@db/x",
    "postgres//app:{}@db/x",
    "postgresq://app:{}@db/x",
    "postgresql+psycopg://app:{}@db/x",
    "POSTGRESQL://app:{}@db/x",
    " postgresql://app:{}@db/x",
    "\0postgresql://app:{}@db/x",
    "postgresql://app:{}@db/x\0",
    "\udcffpostgresql://app:{}@db/x",
    "postgresql://app:{}",
    "postgresql://app:{}/x",
    "postgresql://app:{}@db:port/x",
    "postgresql://app:{}@[::1/x",
    "postgresql://app:{}@db:5432:99/x",
    "postgresql://app:{}/with/slash@db/x",
    "postgresql://app:{}?question@db/x",
    "postgresql://app:1234?{}@db/x",
    "postgresql://app:at@{}@db/x",
    "postgresql://app:{}%zz@db/x",
    "postgresql://app:{}@db/x?speed=high",
    "postgresql://db/x?password={}&speed=high",
    "postgresql://db/x?PASSWORD={}",
    "postgresql://db/x?pooled=transaction&direct=postgresql:/app:{}@db",
    "mysql://app:{}@db/x",
    "mysql://db/x?pwd={}",
    "https://{}@db/x",
    "app:{}@db/x",
    "host=db password={} dbname=x",
    "host=db password='a b {}' dbname=x",
    "sqlite://app:{}@db/x",
    "sqlite:///x.db?password={}",
    "sqlite:///x.db?key={}",
    "redis://:{}@h/0",
]


def told(error):
    """Everything an error says, with its causes, as a log or a traceback would show it."""
    said = []
    while error is not None:
        said += [str(error), repr(error), repr(error.args), repr(getattr(error, "details", ""))]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(said)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert os.listdir(tmp_path) == [], "nothing was made: no file is named after a password"


@pytest.mark.parametrize("form", MALFORMED)
@pytest.mark.parametrize("ask", [holdfast.open, holdfast.doctor], ids=["open", "doctor"])
def test_an_address_that_is_not_understood_is_refused_without_its_password(form, ask, caplog):
    with caplog.at_level(logging.DEBUG), pytest.raises(holdfast.InvalidUrl) as refused:
        ask(form.format(SECRET))
    assert refused.value.hint
    assert SECRET not in told(refused.value) and SECRET not in caplog.text


@pytest.mark.parametrize("form", [one for one in MALFORMED if not one.startswith("redis")])
def test_so_is_that_of_a_cache(form):
    with pytest.raises(holdfast.InvalidUrl) as refused:
        holdfast.open("memory:", cache=form.format(SECRET))
    assert SECRET not in told(refused.value)


@pytest.mark.parametrize("form", MALFORMED)
@pytest.mark.parametrize("command", [["list"], ["list", "--json"], ["doctor", "--debug"], ["config"], ["migrate"]])
def test_the_command_line_shows_none_either(form, command):
    done = CliRunner().invoke(cli, [*command, "--store", form.format(SECRET)])
    assert SECRET not in done.output + done.stderr


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://app:{SECRET}@127.0.0.1:1/x",
        f"postgresql://127.0.0.1:1/x?user=app&password={SECRET}",
        f"postgresql://app:{SECRET}@/x?host=/nonexistent",
        f"postgresql://app:{SECRET}@127.0.0.1:1/x?sslmode=bogus",
    ],
)
def test_a_server_that_does_not_answer_is_named_without_the_password(url):
    with pytest.raises((holdfast.StoreUnreachable, holdfast.InvalidUrl, holdfast.MissingExtra)) as refused:
        holdfast.open(url)
    assert SECRET not in told(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://app:geheim@db:5432/x?schema=a", "postgresql://app:***@db:5432/x?schema=a"),
        ("postgresql://geheim@db/x", "postgresql://***@db/x"),
        ("postgresql://db/x?presence=lease&lease_seconds=9", "postgresql://db/x?presence=lease&lease_seconds=9"),
        ("postgresql://db/x?pooled=transaction&direct=geheim", "postgresql://db/x?pooled=transaction&direct=***"),
        ("postgresql://app:ge@he/im@db/x", "postgresql://app:***@db/x"),
        ("postgresql://db/x?password=ge&heim", "postgresql://db/x?password=***&***"),
        ("postgresql://app:geheim/x", "postgresql://app:***/x"),
        ("postgresql://[::1]:5432/x", "postgresql://[::1]:5432/x"),
        ("postgresql://h1:1,h2:2/x", "postgresql://h1:1,h2:2/x"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("/data/a@b:c.db", "/data/a@b:c.db"),
        ("data@v2/a.db", "data@v2/a.db"),
        ("memory:", "memory:"),
    ],
)
def test_what_is_shown_of_an_address(url, shown):
    assert urls.shown(url) == shown


@pytest.mark.parametrize("name", ["a@b.db", "a:b.db", "dir/a:b@c.db", "./x:y@z.db"])
def test_an_odd_name_of_a_file_is_still_one(name, tmp_path, monkeypatch):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "dir").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    with holdfast.open(name) as app:
        app.start("a")
        assert os.path.exists(name)
    for root, folders, files in os.walk(tmp_path, topdown=False):
        for file in files:
            os.unlink(os.path.join(root, file))
        for folder in folders:
            os.rmdir(os.path.join(root, folder))
    monkeypatch.chdir(tmp_path)
