"""Fixtures of the page's tests."""

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


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "store.db"
    with holdfast.open(path) as app:
        fill(app)
    return path


@pytest.fixture(scope="module")
def page(store):
    """A page over tasks in every status, for tests that change nothing."""
    with page_of(store) as opened:
        yield opened
        assert opened.process.poll() is None, "it is alive after all of this"


@pytest.fixture
def own(tmp_path):
    """A page over a store of this test's own, and the app of that store."""
    path = tmp_path / "store.db"
    with holdfast.open(path) as app:
        fill(app)
        with page_of(path) as opened:
            opened.app = app
            yield opened


@pytest.fixture(scope="module")
def browser():
    with started() as opened:
        yield opened
