"""A store on a server: itself, its tables, and the same through a proxy that cuts connections."""

from urllib.parse import urlsplit

import pytest

from tests.postgres_proxy import Proxy


@pytest.fixture
def store(postgres_url):
    from holdfast.store.postgres.store import PostgresStore

    store = PostgresStore(postgres_url)
    yield store
    store.close()


@pytest.fixture
def raw(postgres_url):
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("set search_path = holdfast")
        yield connection


@pytest.fixture
def proxy(postgres_url):
    proxy = Proxy(urlsplit(postgres_url).port or 5432)
    yield proxy
    proxy.close()


@pytest.fixture
def through(postgres_url, proxy):
    """The address of the same database through the proxy."""
    parts = urlsplit(postgres_url)
    return parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{proxy.port}").geturl() + "?connections=2"
