"""Pictures of the page, of real tasks, for README and docs: python -m tests.web.pictures docs/pictures."""

import subprocess
import sys
import tempfile
from pathlib import Path

import holdfast
from tests.web.browser import started, tab
from tests.web.trip import booked
from tests.web.world import fill, page_of

PICTURES = {
    "task": ("/tasks/order-7?step=charge_card%231", ".insp dd", 860, "light"),
    "tasks": ("/", "td .id", 740, "light"),
    "inbox": ("/inbox", ".card", 1010, "dark"),
    "conversation": ("/tasks/trip-oslo-14?tab=conversation", ".tool", 1060, "light"),
}
"""Address, what must be there, how many pixels high (so that all is seen that its description names), and theme."""


def main(folder):
    """Make each picture anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        store = f"{place}/holdfast.db"
        command = [sys.executable, "-m", "holdfast", "demo", "--store", store]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with holdfast.open(store) as app:
            fill(app)
            booked(app)
        with page_of(store) as page, started() as browser:
            for name, (path, wanted, high, theme) in PICTURES.items():
                with tab(browser, page, path, theme=theme) as opened:
                    opened.set_viewport_size({"width": 1280, "height": high})
                    opened.locator(wanted).first.wait_for()
                    opened.locator(".live:has-text('Live')").wait_for()
                    opened.wait_for_timeout(500)
                    opened.screenshot(path=folder / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
