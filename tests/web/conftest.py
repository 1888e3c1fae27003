"""Fixtures of the page's tests."""

import contextlib
import os

import pytest

import holdfast
from tests.web.browser import started
from tests.web.world import fill, page_of

WHOLE = "1" in (os.environ.get("HOLDFAST_TEST_ALL"), os.environ.get("HOLDFAST_TEST_PAGE"))


def pytest_collection_modifyitems(items):
    """What takes a browser long is left to make test-page; a few tests of it are in make test too."""
    for item in items:
        if item.get_closest_marker("page") and not WHOLE:
            item.add_marker(pytest.mark.skip(reason="only in make test-page and make test-all"))


def pytest_generate_tests(metafunc):
    """A module says `OVER = ("sqlite", "postgres")` if its tests hold over both; make test runs them over the first."""
    if "over" in metafunc.fixturenames:
        stores = getattr(metafunc.module, "OVER", ("sqlite",))
        wanted = [one for one in stores if one == "sqlite" or (WHOLE and not metafunc.config.option.quick)]
        metafunc.parametrize("over", wanted, scope="module")


@contextlib.contextmanager
def address_of(over, folder, request):
    """The address of a store of one's own."""
    if over == "sqlite":
        yield folder / "store.db"
        return
    databases = request.getfixturevalue("postgres_databases")
    url = databases.new()
    try:
        yield url
    finally:
        databases.drop(url)


@pytest.fixture(scope="module")
def shared_address(over, tmp_path_factory, request):
    """The address of a store for all tests of a module, with nothing in it."""
    with address_of(over, tmp_path_factory.mktemp("page"), request) as given:
        yield given


@pytest.fixture(scope="module")
def store(shared_address):
    with holdfast.open(shared_address) as app:
        fill(app)
    return shared_address


@pytest.fixture
def address(over, tmp_path, request):
    """The address of a store of this test's own, with nothing in it."""
    with address_of(over, tmp_path, request) as given:
        yield given


@pytest.fixture(scope="module")
def page(store):
    """A page over tasks in every status, for tests that change nothing."""
    with page_of(store) as opened:
        yield opened
        assert opened.process.poll() is None, "it is alive after all of this"


@pytest.fixture
def own(address):
    """A page over a store of this test's own, and the app of that store."""
    with holdfast.open(address) as app:
        fill(app)
        with page_of(address) as opened:
            opened.app = app
            yield opened


@pytest.fixture(scope="module")
def browser():
    with started() as opened:
        yield opened
