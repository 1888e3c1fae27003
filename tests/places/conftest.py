"""What the tests of all places share: a world, the deaths in it, and programs that end with their test."""

import pytest

from holdfast.testing.crash.world import World
from tests.places.programs import Deaths, Program


@pytest.fixture
def world():
    with World() as started:
        yield started


@pytest.fixture
def deaths(tmp_path):
    return Deaths(tmp_path / "holders")


@pytest.fixture
def programs(postgres_url, world, deaths, tmp_path):
    """Start a program of tests/places: `programs(name, *command, broker=address)`. Its log has its name."""
    begun = []

    def start(name, *command, broker):
        given = {"PLACES_URL": postgres_url, "PLACES_WORLD": world.address, "PLACES_BROKER": broker}
        given["PLACES_HOLDERS"] = str(deaths.folder)
        begun.append(Program(*command, log=tmp_path / f"{name}.log", deaths=deaths, **given))
        return begun[-1]

    yield start
    for one in begun:
        one.kill()
