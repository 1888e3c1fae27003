"""Three things to be done to the world, each once, by somebody who is killed on the way and goes on afterwards.

The world is a file beside the store, and every deed a line of it, which no kill takes back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import killing

DEEDS = ("pick", "pay", "pack")
LIVES = 3

Errand = Callable[[Path], object]
"""Begins what is in this folder, or goes on with it, until all of it is done."""


def measures(place: Path, prepare: Errand, errand: Callable[[str], Errand]) -> dict[str, Callable[..., Any]]:
    """What a contender answers about it: `prepare` a mode of the errand, then `calls`, then `trial` after `trial`."""
    chosen: list[Trials] = []

    def begin(mode: str) -> None:
        chosen.append(Trials(place / mode, prepare, errand(mode)))

    return {
        "prepare": begin,
        "calls": lambda: chosen[-1].calls(),
        "trial": lambda kill_at, side: chosen[-1].trial(kill_at, side),
    }


def act(folder: Path, deed: str) -> str:
    """Do it, as often as one is asked to."""
    _note(folder / "world", deed)
    return deed


def flag(folder: Path, deed: str) -> None:
    """Say that nobody knows whether it was done: whoever asks a person first does not repeat it silently."""
    _note(folder / "flags", deed)


def done(folder: Path, deed: str) -> int:
    """How often it was done."""
    return _notes(folder / "world").count(deed)


class Trials:
    """The same errand over and over, killed at another place each time."""

    def __init__(self, folder: Path, prepare: Errand, errand: Errand) -> None:
        self._fresh, self._folder, self._errand = folder / "fresh", folder / "trial", errand
        self._fresh.mkdir(parents=True)
        assert killing.live(lambda: prepare(self._fresh)).code == 0, "the store could not be made"

    def calls(self) -> int:
        """How many durable system calls an errand takes that nobody disturbs."""
        self._begin()
        end = killing.live(lambda: self._errand(self._folder))
        assert end.code == 0 and all(done(self._folder, deed) == 1 for deed in DEEDS), f"it ended with {end}"
        return end.calls

    def trial(self, kill_at: int, side: str) -> dict[str, Any]:
        """Be killed there, resume until it is done; report what became of it."""
        self._begin()
        first = killing.live(lambda: self._errand(self._folder), kill_at, side)
        ends = 0
        while first.killed and ends < LIVES and killing.live(lambda: self._errand(self._folder)).code != 0:
            ends += 1
        times = {deed: done(self._folder, deed) for deed in DEEDS}
        flagged = set(_notes(self._folder / "flags"))
        return {
            "killed": first.killed,
            "repeated": [deed for deed, number in times.items() if number > 1 and deed not in flagged],
            "flagged": sorted(flagged),
            "lost": [deed for deed, number in times.items() if number == 0] or ["its end"] * (ends == LIVES),
        }

    def _begin(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._fresh, self._folder)


def _note(path: Path, line: str) -> None:
    """One write, so that the line is there or is not."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def _notes(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []
