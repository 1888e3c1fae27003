"""What the shops of these tests do to the world: lines in files."""

import sys
import time


def line(path, text):
    """Write a line at once: it is there, or it is not. A slow program leaves time to be killed after it."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{text}\n".encode())
    if sys.argv[-1] == "slow":
        time.sleep(0.05)


def lines(path):
    return path.read_text().splitlines() if path.exists() else []
