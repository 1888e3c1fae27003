"""The outside world as a process of its own: it records every request, and outlives the processes that crash.

    with World() as world:
        world.request("pay", key="order-17", amount=3)      # {"number": 1, "receipt": "pay-1"}
        world.find("order-17").receipt                      # "pay-1"

It speaks lines of JSON on 127.0.0.1, a connection a request, so that threads and forked children can use it too. It
ends with its context, and with its parent, however that dies.
"""

from __future__ import annotations

import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self, cast

from msgspec import Struct

from holdfast.core import codec
from holdfast.failpoints import failpoint

HOST = "127.0.0.1"
MAX_LINE_BYTES = 64 * 1024 * 1024
REPLY_SECONDS = 60.0
END_SECONDS = 10.0


class WorldRequest(Struct, frozen=True):
    """Something the world was asked to do.

    `number` is its place among all; the same key gets the same receipt; `step` is the one it was made in, if any.
    """

    what: str
    key: str
    data: dict[str, Any]
    number: int
    receipt: str
    step: str = ""


class World:
    """A world that was started here, or that others started (`World.at`)."""

    def __init__(self) -> None:
        self._address = ""
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def at(cls, address: str) -> World:
        """The world that listens at an address; another process started it."""
        there = cls()
        there._address = address
        return there

    @property
    def address(self) -> str:
        """The address, as host:port."""
        if not self._address:
            raise ConnectionError("this world was not started: write `with World() as world:`")
        return self._address

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "holdfast.testing.crash.world"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip().decode()
        if not port:
            self.close()
            raise ConnectionError("the world did not start; its own words are on stderr")
        self._address = f"{HOST}:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<world at {self._address or 'nowhere yet'}>"

    def close(self) -> None:
        """End it, if it was started here."""
        process, self._process, self._address = self._process, None, ""
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def request(self, what: str, key: str = "", **data: Any) -> dict[str, Any]:
        """Ask for something. It is recorded when this returns, and perhaps when it does not.

        `crash_everywhere` crashes on both sides: before the world has heard of it, and after it was recorded.
        """
        failpoint("world.before")
        reply = self._ask({"do": "request", "what": what, "key": key, "data": data, "step": _step()})
        failpoint("world.after")
        return reply

    def requests(self, what: str | None = None) -> list[WorldRequest]:
        """Everything that was recorded, in order, or all of one sort."""
        asked = codec.load(codec.dump(self._ask({"do": "requests"})["requests"]), list[WorldRequest])
        return [one for one in asked if what is None or one.what == what]

    def find(self, key: str) -> WorldRequest | None:
        """The first request with that key; what a tool's `reconcile` wants to know."""
        found = self._ask({"do": "find", "key": key})["found"]
        return None if found is None else codec.load(codec.dump(found), WorldRequest)

    def reset(self) -> None:
        """Forget everything."""
        self._ask({"do": "reset"})

    def refuse(self, what: str, times: int = 1) -> None:
        """Refuse the next requests of that sort: they raise ConnectionError and are not recorded."""
        self._ask({"do": "refuse", "what": what, "times": times})

    def hang(self, what: str, seconds: float, times: int = 1) -> None:
        """Record the next requests of that sort at once, but let their reply wait."""
        self._ask({"do": "hang", "what": what, "seconds": seconds, "times": times})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        host, _, port = self.address.rpartition(":")
        line = codec.dump(question) + b"\n"
        with socket.create_connection((host, int(port)), timeout=REPLY_SECONDS) as connection:
            connection.sendall(line)
            with connection.makefile("rb") as replies:
                reply = replies.readline(MAX_LINE_BYTES)
        if not reply.endswith(b"\n"):
            raise ConnectionError("the world ended before it replied")
        answer: dict[str, Any] = codec.load(reply, dict[str, Any])
        if "error" in answer:
            raise ConnectionError(answer["error"])
        return answer


def _step() -> str:
    """The step we are in."""
    from holdfast import current_call  # what the world's own process does not need

    call = current_call()
    return "" if call is None else call.step


# The process


class _Book:
    """What the world remembers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._requests: list[WorldRequest] = []
        self._firsts: dict[str, WorldRequest] = {}
        self._receipts: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._hangs: dict[str, list[float]] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Do what was asked; wait outside the lock for a reply that hangs."""
        with self._lock:
            reply, seconds = self._do(question)
        time.sleep(seconds)
        return reply

    def _do(self, question: dict[str, Any]) -> tuple[dict[str, Any], float]:
        match question:
            case {"do": "request", "what": what, "key": key, "data": data, "step": step}:
                return self._record(what, key, data, step)
            case {"do": "requests"}:
                return {"requests": self._requests}, 0
            case {"do": "find", "key": key}:
                return {"found": self._firsts.get(key)}, 0
            case {"do": "reset"}:
                self._forget()
            case {"do": "refuse", "what": what, "times": times}:
                self._refusals[what] += times
            case {"do": "hang", "what": what, "seconds": seconds, "times": times}:
                self._hangs.setdefault(what, []).extend([seconds] * times)
            case _:
                return {"error": f"the world does not understand {question!r}"}, 0
        return {}, 0

    def _record(self, what: str, key: str, data: dict[str, Any], step: str) -> tuple[dict[str, Any], float]:
        if self._refusals[what] > 0:
            self._refusals[what] -= 1
            return {"error": f"the world refused {what!r}"}, 0
        number = len(self._requests) + 1
        receipt = self._receipts.get((what, key), "") if key else ""
        if not receipt:
            self._counts[what] += 1
            receipt = self._receipts[what, key] = f"{what}-{self._counts[what]}"
        request = WorldRequest(what, key, data, number, receipt, step)
        self._requests.append(request)
        self._firsts.setdefault(key, request)
        hangs = self._hangs.get(what)
        return {"number": number, "receipt": receipt}, hangs.pop(0) if hangs else 0


class _Server(socketserver.ThreadingTCPServer):
    """Answers every connection in a thread, so that one that hangs holds up no other."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Connection)
        self.book = _Book()


class _Connection(socketserver.StreamRequestHandler):
    """One question, one reply. A client that is killed while asking gets no reply."""

    def handle(self) -> None:
        try:
            line = self.rfile.readline(MAX_LINE_BYTES)
            if line.endswith(b"\n"):
                reply = cast("_Server", self.server).book.answer(codec.load(line, dict[str, Any]))
                self.wfile.write(codec.dump(reply) + b"\n")
        except ConnectionError:
            return  # the one who asked is dead; what it asked for is on record


def main() -> None:
    """Serve until standard input ends: a parent that dies closes it, however it dies."""
    with _Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.buffer.read()
        os._exit(0)


if __name__ == "__main__":
    main()
