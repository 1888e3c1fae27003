"""A pytest plugin for the session tests that OpenAI publishes: in place of the SDK's SQLite sessions, they get ours.

Tests of SQLite itself (its connections, tables and damaged rows) are left out: those whose code names `sqlite3`,
something private of the session, or say that they close it.
"""

import atexit
import inspect
import re

import agents
import agents.extensions.memory
import agents.memory

import holdfast
from holdfast.adapters.openai_agents import HoldfastSession

OF_SQLITE = re.compile(r"sqlite3|aiosqlite|\bsession(_\d)?\._|_await_mutation|SQLiteSession\._|_table\b|test_\w+_close")
_APPS = {}


class OurSession(HoldfastSession):
    """A session as the tests make it: by id and path."""

    def __init__(self, session_id, db_path=":memory:", *, session_settings=None):
        super().__init__(_app(str(db_path)), session_id, session_settings=session_settings)

    def close(self):
        """The store is closed when the tests have ended."""


class OurAsyncSession(OurSession):
    """The same, for tests that await its end."""

    async def close(self):
        """The store is closed when the tests have ended."""


def _app(path):
    if path == ":memory:":
        app = holdfast.open("memory:")
        atexit.register(app.close)
        return app
    if path not in _APPS:
        _APPS[path] = holdfast.open(f"{path}.holdfast")
        atexit.register(_APPS[path].close)
    return _APPS[path]


for module in (agents, agents.memory):
    module.SQLiteSession = OurSession
agents.extensions.memory.AsyncSQLiteSession = OurAsyncSession


def pytest_collection_modifyitems(config, items):
    about = [one for one in items if OF_SQLITE.search(inspect.getsource(one.function))]
    config.hook.pytest_deselected(items=about)
    items[:] = [one for one in items if one not in about]
