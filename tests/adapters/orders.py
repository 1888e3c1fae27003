"""What the shops of all frameworks do: the tools that a model calls in turn, and files in which effects are lines."""

import sys
import time

EFFECTS = ("charge", "ship", "mail")
REPLIES = ((("charge", {"euros": 5}),), (("ship", {"item": "book"}), ("mail", {"to": "ana"})), ())


def line(path, text):
    """Write a line at once: it is there, or it is not. A slow program leaves time to be killed after it."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{text}\n".encode())
    if sys.argv[-1] == "slow":
        time.sleep(0.05)


def lines(path):
    return path.read_text().splitlines() if path.exists() else []
