"""The outside world of `holdfast demo`: a pretend warehouse, bank and mail server that share one plain file.

They are careless on purpose: a program that asks the bank twice pays twice, and it can be counted. What they saw stays,
whatever becomes of the process that asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

HEADER = "# What the pretend world of `holdfast demo` has seen: what, receipt, key, details\n"


class DemoWorld:
    """Everything that happened outside, a line each."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def happen(self, what: str, key: str, details: str) -> str:
        """Let something happen; gives its receipt. It is one write, so it happens as a whole or not at all."""
        receipt = f"{what}-{os.urandom(2).hex()}"
        line = "\t".join((what, receipt, key, details)) + "\n"
        if not self.path.exists():
            line = HEADER + line
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)
        return receipt

    def receipt(self, key: str) -> str | None:
        """The receipt of what was asked for with this key, None if it never happened."""
        return next((line[1] for line in self._lines() if line[2] == key), None)

    def count(self, what: str) -> int:
        """Count how often it happened."""
        return sum(line[0] == what for line in self._lines())

    def _lines(self) -> Iterator[list[str]]:
        if self.path.exists():
            for line in self.path.read_text("utf-8").splitlines():
                if line.count("\t") == 3:
                    yield line.split("\t")
