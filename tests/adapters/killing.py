"""Kill a program with SIGKILL at random moments until it is done, many times over, and count what it did.

A trial is a child of this process, which has imported everything already: so a life costs milliseconds.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

MOST_LIVES = 60


def trials(program, mode, *, seed, count, kills):
    """Run so many trials of a program in a process of its own, which is not this one: it forks."""
    command = [sys.executable, "-m", program, mode, str(seed), str(count), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == count and not [one for one in found if "failed" in one], (found, done.stderr[-3000:])
    return found


def life(work, log, rng, kills):
    """One life: it ends by itself, or is killed at a random moment, often just after something happened."""
    pid = os.fork()
    if pid == 0:
        try:
            work(log)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    watched = _watched(log, rng)
    until = time.monotonic() + (3.0 if watched else rng.uniform(0.02, 0.8))
    before = _sizes(watched)
    while kills:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > until or (watched and _sizes(watched) != before):
            time.sleep(rng.choice((0, 0, 0.0005, 0.002)))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return signal.SIGKILL
        time.sleep(0.0002)
    return os.waitpid(pid, 0)[1]


def _watched(log, rng):
    """The files whose change is the moment to kill; none for a moment that only chance decides."""
    return [log / name for name in ("charge", "ship", "mail")] if rng.random() < 0.75 else []


def _sizes(paths):
    return [path.stat().st_size if path.exists() else 0 for path in paths]


def trial(work, seed, most_kills):
    """Work in lives until it is done; gives how often each thing happened, and how many lives were killed."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        log, killed = Path(place), 0
        for _ in range(MOST_LIVES):
            status = life(work, log, rng, kills=killed < most_kills)
            if status == 0:
                break
            if status != signal.SIGKILL:
                return {"seed": seed, "failed": status}
            killed += 1
        return {
            "seed": seed,
            "killed": killed,
            **{path.name: len(_lines(path)) for path in log.iterdir() if _is_count(path)},
        }


def _is_count(path):
    return path.is_file() and not path.name.startswith("store")


def _lines(path):
    return path.read_text().splitlines()


def main(work):
    """`python -m … MODE SEED TRIALS KILLS`: one line of JSON a trial."""
    mode, seed, trials, kills = sys.argv[1], *map(int, sys.argv[2:])
    for number in range(trials):
        print(json.dumps(trial(lambda log: work(log, mode), seed * 1000 + number, kills)), flush=True)
