"""The agents that all places work for, and where their store and their world are: in the environment."""

import os
from pathlib import Path

import holdfast
from tests.crash.storm import agents_at

URL, WORLD, BROKER, HOLDERS = (os.environ.get(f"PLACES_{name}", "") for name in ("URL", "WORLD", "BROKER", "HOLDERS"))
PAUSE = float(os.environ.get("PLACES_PAUSE", "0.5"))


def open_shop():
    """Open the store, and note in a folder under which name its logs will know this process."""
    app = holdfast.open(URL, agents=agents_at(WORLD, (PAUSE,), timeout=10.0))
    (Path(HOLDERS) / app.store.holder()).write_text(str(os.getpid()), "utf-8")
    return app
