"""A proxy on loopback that cuts connections at a chosen moment."""

import contextlib
import socket
import threading
import time

LATE_SECONDS = 0.3


class Proxy:
    """Passes on what comes, until it is told to cut.

    `cut(number, how)` concerns the so-manieth thing a client sends from then on: "before" the server has it, "after"
    the server has answered (the answer is lost), or "late": the client is cut off at once and the server still gets it,
    a moment later. `trips` counts how often a client had an answer and sent something again.
    """

    def __init__(self, port):
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._left = 0
        self._how = ""
        self.cuts = 0
        self._silent = False
        self.after_seconds = 0.1
        self.trips = 0
        self._answered = True
        self._pairs = []
        self._refuses = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, number, how):
        with self._lock:
            self._left, self._how = number, how

    def silence(self):
        """From now on take everything and pass on nothing, on connections that are there and on new ones."""
        self._silent = True

    def speak(self):
        """Pass on again what comes from now on; connections that were silent stay so."""
        self._silent = False

    def drop(self, *, refuse=False):
        """Cut every connection there is, now; and with `refuse` every one that comes."""
        self._refuses = refuse
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for one in (one for pair in pairs for one in pair):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refuses:
                    client.close()
                    continue
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server = socket.create_connection(("127.0.0.1", self._target))
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._pairs.append((client, server))
                muted = threading.Event()
                threading.Thread(target=self._up, args=(client, server, muted), daemon=True).start()
                threading.Thread(target=self._down, args=(client, server, muted), daemon=True).start()

    def _due(self):
        with self._lock:
            self.trips += self._answered
            self._answered = False
            if self._left:
                self._left -= 1
                if not self._left:
                    self.cuts += 1
                    return self._how
        return ""

    def _up(self, client, server, muted):
        with contextlib.suppress(OSError):
            while sent := client.recv(1 << 20):
                if self._silent:
                    muted.set()
                if muted.is_set():
                    continue
                how = self._due()
                if how == "before":
                    break
                if how == "late":
                    muted.set()
                    client.shutdown(socket.SHUT_RDWR)
                    time.sleep(LATE_SECONDS)
                    server.sendall(sent)
                    time.sleep(LATE_SECONDS)
                    break
                if how == "after":
                    muted.set()
                    server.sendall(sent)
                    time.sleep(self.after_seconds)
                    break
                server.sendall(sent)
        _end(client)
        _end(server)

    def _down(self, client, server, muted):
        with contextlib.suppress(OSError):
            while came := server.recv(1 << 20):
                if not muted.is_set():
                    with self._lock:
                        self._answered = True
                    client.sendall(came)
        if not muted.is_set():
            _end(client)


def _end(one):
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
