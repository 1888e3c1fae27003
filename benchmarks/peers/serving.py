"""How a peer is measured: a process of its own reads what to do, a line at a time, and answers with seconds.

Run in the peers' environment, which has no Holdfast; so nothing here imports it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

RESULT = "x" * 198
"""What a step gives: 200 bytes of JSON."""


def serve(**measures: Callable[..., float]) -> None:
    """Answer lines like {"what": "sequential", "steps": 100} until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    for line in sys.stdin:
        wanted = json.loads(line)
        measure = measures[wanted.pop("what")]
        print(json.dumps(measure(**wanted)), file=answers, flush=True)
