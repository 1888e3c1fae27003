"""One process works, another watches, and the one that works may be killed."""

import json
import signal
import subprocess
import sys
import threading

import pytest

import holdfast
from tests.engine.both import KINDS
from tests.engine.streams.speaker import speaker_of
from tests.waiting import PATIENCE_SECONDS

STORES = ("sqlite", "postgres")


class Program:
    """A Python program of this package, ended with the test."""

    def __init__(self, name, *args):
        command = [sys.executable, "-m", f"tests.engine.streams.{name}", *map(str, args)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines = []
        self._new = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._new:
                self.lines.append(json.loads(line))
                self._new.notify_all()

    def until(self, wanted, seconds=PATIENCE_SECONDS):
        with self._new:
            assert self._new.wait_for(lambda: wanted(self.lines), seconds), self.lines

    def end(self, seconds=PATIENCE_SECONDS):
        self.process.wait(seconds)
        self._reader.join(seconds)
        return self.lines

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture
def programs():
    begun = []

    def begin(*given):
        begun.append(Program(*given))
        return begun[-1]

    yield begin
    for one in begun:
        if one.process.poll() is None:
            one.kill()
        one.end()
        one.process.stdout.close()


def told(lines):
    return [(one["kind"], one["attempt"], one.get("data")) for one in lines if one["kind"].startswith("chunk")]


def started(url, folder, kind):
    with holdfast.open(url) as app:
        app.start(speaker_of(folder, kind), id="t")


FIRST = [("chunk", 1, "It "), ("chunk", 1, "is ")]


@pytest.mark.parametrize("kind", KINDS)
def test_another_process_watches_while_the_step_is_under_way(url, tmp_path, programs, kind):
    started(url, tmp_path, kind)
    watcher = programs("watcher", url)
    programs("speaker", url, tmp_path, kind)
    watcher.until(lambda lines: told(lines) == FIRST)
    assert "step_completed" not in [one["kind"] for one in watcher.lines]
    (tmp_path / "go").touch()
    lines = watcher.end()
    assert told(lines) == [*FIRST, ("chunk", 1, "sunny.")]
    kinds = [one["kind"] for one in lines]
    assert kinds.index("step_completed") > max(index for index, kind in enumerate(kinds) if kind == "chunk")
    with holdfast.open(url) as app:
        assert app.get("t").result == "It is sunny."


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_of_a_killed_process_are_dropped_and_the_next_one_begins_anew(url, tmp_path, programs, kind):
    started(url, tmp_path, kind)
    watcher = programs("watcher", url)
    first = programs("speaker", url, tmp_path, kind)
    watcher.until(lambda lines: told(lines) == FIRST)
    first.kill()
    late = programs("watcher", url)
    late.until(lambda lines: told(lines) == FIRST)
    assert "chunks_dropped" not in [one["kind"] for one in watcher.lines], "whether it comes back is not known yet"
    second = programs("speaker", url, tmp_path, kind)
    again = [*FIRST, ("chunks_dropped", 1, None), *FIRST]
    for one in (watcher, late):
        one.until(lambda lines: told(lines) == again)
    newcomer = programs("watcher", url)
    newcomer.until(lambda lines: told(lines) == FIRST)
    (tmp_path / "go").touch()
    assert second.end() == []
    for one, seen in ((watcher, again), (late, again), (newcomer, FIRST)):
        lines = one.end()
        assert told(lines) == [*seen, ("chunk", 1, "sunny.")]
        assert [line["kind"] for line in lines][-1] == "task_completed"
    (why,) = [one["why"] for one in watcher.lines if one["kind"] == "chunks_dropped"]
    assert why == "another process took the task over"
    with holdfast.open(url) as app:
        assert app.get("t").result == "It is sunny."
        assert app.verify("t").ok and app.store.chunks.read("t", {}) == []
