"""One suite, every store."""

import pytest

from holdfast.store.memory.store import MemoryStore
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.conformance import StoreConformance


class TestMemory(StoreConformance):
    @pytest.fixture
    def opener(self):
        store = MemoryStore()
        return lambda: store


@pytest.mark.parametrize("durability", ["full", "process"])
class TestSqlite(StoreConformance):
    @pytest.fixture
    def opener(self, tmp_path, durability):
        return lambda: SqliteStore(str(tmp_path / "log.db"), durability=durability)


@pytest.mark.parametrize("durability", ["full", "process"])
class TestPostgres(StoreConformance):
    @pytest.fixture
    def opener(self, postgres_url, durability):
        from holdfast.store.postgres.store import PostgresStore

        return lambda: PostgresStore(postgres_url, durability=durability)


class TestPostgresWithoutLocksAndNotices(StoreConformance):
    """As a role that may call neither the functions of advisory locks nor pg_notify."""

    @pytest.fixture
    def opener(self, postgres_databases, bare_role):
        from holdfast.store.postgres.store import PostgresStore

        url = postgres_databases.new(empty=True)
        opened = bare_role(url)
        yield lambda: PostgresStore(f"{opened}?presence=lease&wakeups=poll")
        postgres_databases.drop(url)


class TestPostgresBehindPgbouncer(StoreConformance):
    @pytest.fixture
    def opener(self, pooled_url):
        from holdfast.store.postgres.store import PostgresStore

        return lambda: PostgresStore(pooled_url)
