"""Types in a page of the docs: files are written, edits made, commands typed at a terminal, in the order of the page.

A block says what it is by its first line:

    ```python title="trip.py"     a file to write, whatever its language
    ```diff title="trip.py"       an edit: lines with - go, lines with + come, the others stand around them
    ```console                    commands after $, and what they print; … stands for lines, or the rest of one,
                                  that depend on the machine; a trailing \\ goes on in the next line

`python -m tests.docs.typist docs/first-ten-minutes.md` types a page in and puts what was printed into it; NAME=VALUE
after it is given to the commands.
"""

import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COLUMNS = 100
SECONDS = 120
"""How long a command may take."""

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.S | re.M)


class Block(NamedTuple):
    """One fenced block of a page, and the line it begins in."""

    language: str
    title: str
    text: str
    line: int


def blocks(page):
    """Every fenced block of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Block(found[1], found[2] or "", found[3], text.count("\n", 0, found.start()) + 1)
        for found in _BLOCK.finditer(text)
    ]


def commands(block):
    """What is typed in a console block, each with the lines that it prints."""
    found = []
    for line in block.text.splitlines():
        if found and found[-1][0].endswith("\\"):
            found[-1][0] = found[-1][0][:-1].rstrip() + " " + line.strip().removeprefix("> ")
        elif line.startswith("$ "):
            found.append([line[2:], []])
        else:
            assert found, f"line {block.line}: {line!r} is printed by no command"
            found[-1][1].append(line)
    return [(command, [line for line in lines if line.strip()]) for command, lines in found]


def edited(text, change):
    """A file with an edit made. Each part of it must be found exactly once."""
    for part in re.split(r"^…\n", change, flags=re.M):
        lines = part.splitlines()
        old = "".join(f"{line[2:]}\n" for line in lines if not line.startswith("+"))
        new = "".join(f"{line[2:]}\n" for line in lines if not line.startswith("-"))
        assert text.count(old) == 1, f"the edit does not fit, or fits twice:\n{old}"
        text = text.replace(old, new)
    return text


def same(text):
    """Text without what differs from time to time: times, lengths, processes, columns, counts of crash points."""
    text = re.sub(r"\b\d\d\d\d-\d\d-\d\d(T[\d:.]+Z)?", "DAY", text)
    text = re.sub(r"^( +[a-z]+\.(?:after|before)) +\d+$", r"\1 COUNT", text)
    text = re.sub(r"\b\d+ (of \d+ faults|points|tried|calls in doubt)\b", r"COUNT \1", text)
    text = re.sub(r"of \d+ crashes", "of COUNT crashes", text)
    text = re.sub(r"\b\d\d:\d\d:\d\d\b", "TIME", text)
    text = re.sub(r"\b\d[\d,.]* ?(ms|s|seconds)\b", "LENGTH", text)
    text = re.sub(r"postgresql://[^\s)]+", "ADDRESS", text)
    text = re.sub(r"\bnow\b", "LENGTH ago", text)
    text = re.sub("─+", "─", text)
    text = re.sub(r"--bound [0-9a-f]{12}\b", "--bound DIGEST", text)
    text = re.sub(r"^( *\d+) +\d+\.\d{3} ", r"\1 LENGTH ", text)
    text = re.sub(r"\bprocess \d+", "process PID", text, flags=re.I)
    return re.sub(r" {2,}", " ", text).strip()


def shows(expected, printed):
    """Whether a page shows what was printed."""
    if not expected:
        return not printed
    line, *rest = expected
    if line == "…":
        return any(shows(rest, printed[count:]) for count in range(len(printed) + 1))
    return bool(printed) and _fits(line, printed[0]) and shows(rest, printed[1:])


def _fits(line, printed):
    if line.endswith(" …"):
        return same(printed).startswith(same(line[:-1]))
    if line.endswith("…") or printed.endswith("…"):  # cut by the terminal, a little earlier or later
        one, other = same(line).removesuffix("…"), same(printed).removesuffix("…")
        shared = min(len(one), len(other))
        return one[:shared] == other[:shared] and max(len(one), len(other)) - shared <= 4
    return same(line) == same(printed)


_DIGEST = re.compile(r"(?<=--bound )[0-9a-f]{12}\b")
"""What a person was shown. It differs from store to store: the one on the page stands for the one that is printed."""


def _digests(lines):
    return _DIGEST.findall("\n".join(lines))


class Typist:
    """Somebody at a terminal, in a folder, who types what a page says."""

    def __init__(self, folder, *, columns=COLUMNS, **environment):
        self._columns = columns
        self.folder, self._state, self._code = folder, folder.parent / "typist-state", 0
        self._digests = {}
        dropped = ("PYTEST_", "HOLDFAST_", "COV_")
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI", "BUILD_NUMBER"):  # pytest prints more in CI
            self._environment.pop(name, None)
        self._environment |= {"TERM": "xterm", "PYTHONDONTWRITEBYTECODE": "1"}
        self._environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment |= {"PYTHONPATH": str(ROOT / "src"), **environment}

    def follow(self, page):
        """Do all that a page says; gives each command with what it should print and what it did."""
        for block in blocks(page):
            for command, expected in commands(block) if block.language == "console" else ():
                printed = self.type(_DIGEST.sub(lambda found: self._digests.get(found[0], found[0]), command))
                self._digests |= zip(_digests(expected), _digests(printed), strict=False)
                yield block, command, expected, printed
            if block.title:
                path = self.folder / block.title
                text = edited(path.read_text("utf-8"), block.text) if block.language == "diff" else block.text
                path.write_text(text, "utf-8")

    def type(self, command):
        """Type a command; gives the lines that the terminal shows in the end."""
        state = shlex.quote(str(self._state))
        script = (
            f"[ -f {state} ] && . {state}\n(exit {self._code})\n{command}\ncode=$?\nexport -p > {state}\nexit $code"
        )
        ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 40, self._columns, 0, 0))
        given = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "cwd": self.folder, "env": self._environment}
        process = subprocess.Popen(["bash", "-c", script], **given)
        os.close(theirs)
        try:
            shown = _read(ours)
            self._code = process.wait(SECONDS)
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        return shown


def rewrite(page, folder, **environment):
    """Put what is printed now into a page."""
    fresh = {}
    for block, command, expected, printed in Typist(folder, **environment).follow(page):
        if shows(expected, printed):
            printed = expected
        fresh[block] = fresh.get(block, "") + "\n".join([f"$ {command}", *printed]) + "\n"
    text, at = page.read_text("utf-8"), 0
    for block, shown in fresh.items():
        old, new = f"```console\n{block.text}```", f"```console\n{shown}```"
        at = text.index(old, at)
        text = text[:at] + new + text[at + len(old) :]
        at += len(new)
    page.write_text(text, "utf-8")


def _read(terminal):
    """What a terminal shows when nobody writes to it any more: a line that was rewritten counts as it was last."""
    text, late = b"", time.monotonic() + SECONDS
    while select.select([terminal], [], [], max(0.0, late - time.monotonic()))[0]:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # a terminal says so when nobody is left at its other end
            more = b""
        if not more:
            break
        text += more
    lines = (line.rstrip("\r").rpartition("\r\x1b[K")[2] for line in text.decode().split("\n"))
    return [line.rstrip() for line in (re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in lines) if line.strip()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "here").mkdir()
        rewrite(Path(sys.argv[1]), Path(made) / "here", **dict(one.split("=", 1) for one in sys.argv[2:]))
