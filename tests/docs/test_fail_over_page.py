"""The pages about servers say what the tests run with: docs/how-to/fail-over.md and docs/how-to/certify.md.

What fail-over.md types is typed here, at a server with a synchronous standby. tests/crash/test_fail_over.py kills the
cluster that it describes.
"""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from holdfast.store.postgres.server.connecting import parse
from holdfast.testing.certification import suite
from tests import patroni_cluster
from tests.docs.typist import Typist, blocks, shows
from tests.postgres_server import Server, Standby, binaries

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def first(page, language):
    """The first block of a language on a page."""
    return next(block.text for block in blocks(HOW_TO / page) if block.language == language)


def settings(text):
    """The leaves of some YAML that has nothing but names, numbers and true."""
    found = dict(re.findall(r"^ *(\w+): (\S+)$", text, re.M))
    return {name: value == "true" if value == "true" else int(value) for name, value in found.items()}


def test_the_settings_of_patroni_are_those_of_the_cluster_that_is_tested():
    dcs = patroni_cluster.DCS
    tested = {**dcs, **dcs["postgresql"]}
    assert settings(first("fail-over.md", "yaml")).items() <= tested.items()


def test_the_address_names_three_servers_of_which_one_takes_writes():
    address = parse(first("fail-over.md", "text").strip())
    assert "host=one,two,three" in address.conninfo and "target_session_attrs=read-write" in address.conninfo
    assert address.wait_seconds >= 5 * patroni_cluster.TTL


@pytest.fixture
def primary():
    """A server whose commits wait for a standby."""
    found = binaries()
    if found is None or not (Path(found) / "pg_basebackup").exists():
        pytest.skip("there is no PostgreSQL with pg_basebackup: apt-get install postgresql")
    server = Server(found, fsync="on", synchronous_standby_names="*")
    try:
        standby = Standby(server)
        try:
            standby.wait_until_followed(server)
            yield server
        finally:
            standby.stop()
    finally:
        server.stop()


def test_what_the_page_types_prints_what_it_shows(primary, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    typed = [*Typist(folder, DATABASE_URL=primary.url()).follow(HOW_TO / "fail-over.md")]
    assert [command.split()[:2] for _, command, *_ in typed] == [["holdfast", "migrate"], ["holdfast", "doctor"]]
    for _, command, expected, printed in typed:
        assert shows(expected, printed), (command, printed)


class Counted:
    """How many tests each part of the suite has: a plugin of pytest, which collects them."""

    def pytest_collection_modifyitems(self, items):
        self.parts = Counter(suite.PARTS[one.function.__qualname__.partition(".")[0]] for one in items)


def test_the_certificate_shown_has_a_line_for_each_part_of_the_suite_with_its_number_of_tests(monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    found, options = Counted(), ["--collect-only", "-p", "no:cacheprovider", "-c", os.devnull]
    assert pytest.main([*options, f"{suite.__file__}::TestServer"], plugins=[found]) == 0
    shown = re.findall(r"^ok +conformance: (\w+) +(\d+) of (\d+) tests passed", first("certify.md", "text"), re.M)
    assert shown == [(name, str(found.parts[name]), str(found.parts[name])) for name in suite.PARTS.values()]
