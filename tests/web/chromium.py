"""Gets a Chromium for the tests of the page, once: Debian's where we are root, else what Playwright downloads.

python -m tests.web.chromium

Without one, those tests are skipped, and say so.
"""

import os
import shutil
import subprocess
import sys

from tests.web.browser import NONE, chromium

WAYS = {
    "Debian's package chromium": [
        ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"],
        ["apt-get", "update", "--quiet"],
        ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"],
    ],
    "Playwright's download": [[sys.executable, "-m", "playwright", "install", "chromium"]],
}


def main():
    """Try each way until there is one."""
    if chromium():
        return
    for name, commands in WAYS.items():
        if "apt-get" in commands[0] and (os.geteuid() != 0 or not shutil.which("apt-get")):
            continue
        print(f"getting a browser for the tests of the page: {name} …", flush=True)
        for command in commands:
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)
            if done.returncode == 0 and (chromium() or "playwright" in command):
                return
    print(f"*** {NONE}")


if __name__ == "__main__":
    main()
