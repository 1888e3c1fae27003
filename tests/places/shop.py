"""The agents that all places work for, and where their store and their world are: in the environment."""

import os

import holdfast
from tests.crash.storm import agents_at

URL, WORLD, BROKER = (os.environ.get(f"PLACES_{name}", "") for name in ("URL", "WORLD", "BROKER"))
PAUSE = float(os.environ.get("PLACES_PAUSE", "0.3"))


def open_shop():
    return holdfast.open(URL, agents=agents_at(WORLD, PAUSE, timeout=10.0))
