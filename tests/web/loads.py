"""Which files of the front end a browser loads before a screen is first shown."""

import re
from pathlib import Path

from holdfast.web import page

STATIC = Path(page.__file__).parent / "static"
SCREENS = ("tasks.js", "task.js", "inbox.js", "workers.js", "audit.js", "compare.js", "people.js")


def loaded(*names):
    """Files that these modules load before they run, themselves included."""
    found, left = set(), [*names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += re.findall(r'^import .* from "\./([^"]+)"', (STATIC / name).read_text("utf-8"), re.M)
    return found


def first_loads():
    """The scripts and styles of each screen, if it is the first one to be shown."""
    return {screen: {*loaded("main.js", screen), "holdfast.css", "icon.svg"} for screen in SCREENS}
