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


class TestPostgresByLease(StoreConformance):
    """On a server whose advisory locks are not asked for: asking would fail."""

    @pytest.fixture
    def opener(self, postgres_url, monkeypatch):
        from holdfast.store.postgres import queries
        from holdfast.store.postgres.store import PostgresStore

        for name in ("HOLD", "IS_HELD", "LOCK_QUEUE"):
            monkeypatch.setattr(queries, name, "select 1 / 0")
        return lambda: PostgresStore(postgres_url + "?presence=lease")


class TestPostgresBehindPgbouncer(StoreConformance):
    @pytest.fixture
    def opener(self, pooled_url):
        from holdfast.store.postgres.store import PostgresStore

        return lambda: PostgresStore(pooled_url)
