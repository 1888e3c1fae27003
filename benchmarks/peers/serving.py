"""How a contender is measured: a process of its own reads what to do, a line at a time, and answers.

Run in the peers' environment, which has no Holdfast; so nothing here imports it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import string
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

RESULT = "x" * 198
"""What a step gives: 200 bytes of JSON."""

MESSAGE_BYTES = 1_024
_LETTERS = string.ascii_letters + string.digits + "  "


def serve(**measures: Callable[..., Any]) -> None:
    """Answer lines like {"what": "sequential", "steps": 100} until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        measure = measures[wanted.pop("what")]
        print(json.dumps(measure(**wanted)), file=answers, flush=True)


def message(role: str, number: int) -> dict[str, str]:
    """A message of a kilobyte that hardly compresses, the same one for the same number."""
    room = MESSAGE_BYTES - len(json.dumps({"role": role, "content": ""}, separators=(",", ":")))
    return {"role": role, "content": "".join(random.Random(f"{role} {number}").choices(_LETTERS, k=room))}


class Life:
    """A forked process that says something and is killed; nothing it opened outlives it but what it wrote."""

    def __init__(self, action: Callable[[Life], object]) -> None:
        self._answers, self._answer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._live(action)
        os.close(self._answer)

    def _live(self, action: Callable[[Life], object]) -> NoReturn:
        try:
            action(self)
        except BaseException:  # noqa: BLE001 — a fork must not come back to whoever made it
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)

    def says(self, value: object) -> NoReturn:
        """Answer, and be killed: at once, by the signal that nothing survives."""
        os.write(self._answer, json.dumps(value).encode())
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")

    def said(self) -> Any:
        """What it answered, when it is over."""
        os.waitpid(self.pid, 0)
        with os.fdopen(self._answers, "rb") as answers:
            heard = answers.read()
        if not heard:
            raise RuntimeError("a forked process failed; what it said is above")
        return json.loads(heard)


def forked(action: Callable[[Life], object]) -> Any:
    """Let a process live, and hear what it says."""
    return Life(action).said()
