"""An OpenAI-compatible endpoint on 127.0.0.1 with scripted replies, so that the real SDK can be tested.

    with FakeOpenAI([use("look_up", city="Rome"), Fail(429), say("Sunny.")]) as server:
        model = OpenAIModel("fake", base_url=server.base_url, api_key="sk-test")

It gives its replies in order, one a request, streamed if asked for. Like the real one it refuses a conversation in
which a tool call has no result, or a message has a field it does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from msgspec import Struct

from holdfast.core import codec
from holdfast.llm.scripted import Reply, pieces, spoken

HOST = "127.0.0.1"
END_SECONDS = 10.0
MAX_BODY_BYTES = 64 * 1024 * 1024
KNOWN_FIELDS = {
    *("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "annotations", "audio", "function_call"),
    "reasoning_content",
}


class Fail(Struct, frozen=True):
    """Refuse a request, with headers such as `Retry-After`."""

    status: int = 500
    message: str = "the fake server was set to fail"
    headers: dict[str, str] = {}


class Hang(Struct, frozen=True):
    """Say nothing for so long, then hang up."""

    seconds: float = 60.0


class Cut(Struct, frozen=True):
    """Break off in the middle of a streamed reply."""

    reply: dict[str, Any]


class ChatRequest(Struct, frozen=True):
    """A request; `number` counts from 1."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation they sent."""
        return self.body.get("messages") or []


class FakeOpenAI:
    """A server with a script. `requests` has everything it was asked, also what it refused."""

    def __init__(self, replies: Sequence[Reply | Fail | Hang | Cut] = ()) -> None:
        self.requests: list[ChatRequest] = []
        self._replies = list(replies)
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """The base URL."""
        if self._server is None:
            raise ConnectionError("this server was not started: write `with FakeOpenAI(…) as server:`")
        return f"http://{HOST}:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        server, thread, self._server = self._server, self._thread, None
        if server is not None and thread is not None:
            server.shutdown()
            server.server_close()
            thread.join(END_SECONDS)

    def note(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> ChatRequest:
        """Keep a request."""
        with self._lock:
            self.requests.append(ChatRequest(len(self.requests) + 1, path, headers, body))
            return self.requests[-1]

    def reply_to(self, request: ChatRequest) -> dict[str, Any] | Fail | Hang | Cut:
        """Answer a request: an error, or the next reply."""
        wrong = complaint(request.messages)
        if wrong or not request.path.endswith("/chat/completions"):
            return Fail(400 if wrong else 404, wrong or f"there is nothing at {request.path}")
        with self._lock:
            if not self._replies:
                return Fail(400, f"the script has no reply to request {request.number}")
            reply = self._replies.pop(0)
        if isinstance(reply, Fail | Hang | Cut):
            return reply
        return spoken(reply, request.messages, f"call_{request.number}")


def complaint(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason why an endpoint refuses a conversation; nothing if it is fine."""
    if not messages:
        return "messages must not be empty"
    waiting: set[str] = set()
    for number, message in enumerate(messages):
        unknown = set(message) - KNOWN_FIELDS
        if unknown:
            return f"messages[{number}] has the unknown field {sorted(unknown)[0]!r}"
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"messages[{number}]: a 'tool' message must follow the 'tool_calls' it responds to"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            break
        calls = message.get("tool_calls") or ()
        if message.get("content") is None and not calls:
            return f"messages[{number}].content must not be null"
        waiting = {call["id"] for call in calls}
        if len(waiting) != len(calls):
            return f"messages[{number}]: two tool calls have one id"
    return f"tool_calls must be followed by messages responding to each: {sorted(waiting)}" if waiting else ""


def completion(request: ChatRequest, reply: dict[str, Any]) -> dict[str, Any]:
    """A reply as the endpoint sends it, whole."""
    message = dict(reply)
    usage = message.pop("usage", None) or _usage(request, reply)
    finish = message.pop("finish_reason", None) or ("tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    return {**_head(request, "chat.completion"), "choices": [choice], "usage": usage}


def chunks(request: ChatRequest, reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A reply as the endpoint sends it, in pieces."""
    whole = completion(request, reply)
    head = _head(request, "chat.completion.chunk")
    message, finish = whole["choices"][0]["message"], whole["choices"][0]["finish_reason"]

    def piece(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield piece({"role": "assistant", "content": ""})
    for text in pieces(message.get("content") or ""):
        yield piece({"content": text})
    for index, call in enumerate(message.get("tool_calls") or ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        begun = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        yield piece({"tool_calls": [begun]})
        half = len(arguments) // 2
        for part in (arguments[:half], arguments[half:]):
            yield piece({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield piece({}, finish)
    wanted: dict[str, Any] = request.body.get("stream_options") or {}
    if wanted.get("include_usage"):
        yield {**head, "choices": [], "usage": whole["usage"]}


def _head(request: ChatRequest, kind: str) -> dict[str, Any]:
    model, number = request.body.get("model", "fake"), request.number
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1_700_000_000 + number, "model": model}


def _usage(request: ChatRequest, reply: dict[str, Any]) -> dict[str, int]:
    """About four bytes are a token."""
    asked, said = len(codec.dump(request.messages)) // 4, len(codec.dump(reply)) // 4
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, fake: FakeOpenAI) -> None:
        super().__init__((HOST, 0), _Handler)
        self.fake = fake


class _Handler(BaseHTTPRequestHandler):
    """Speaks HTTP/1.0: a connection a request, and what is streamed ends with it."""

    def do_POST(self) -> None:
        fake = cast("_Server", self.server).fake
        length = min(int(self.headers.get("content-length") or 0), MAX_BODY_BYTES)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = codec.load(self.rfile.read(length), dict[str, Any])
            self._answer(fake, fake.note(self.path, headers, body))
        except ConnectionError:
            return  # the one who asked is gone
        except ValueError as error:
            self._send(400, {"error": {"message": f"it is not a JSON object: {error}", "type": "invalid_request"}})

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self, fake: FakeOpenAI, request: ChatRequest) -> None:
        reply = fake.reply_to(request)
        match reply:
            case Fail(status=status, message=message, headers=headers):
                self._send(status, {"error": {"message": message, "type": "fake", "code": None}}, headers)
            case Hang(seconds=seconds):
                fake.closing.wait(seconds)
            case Cut(reply=whole):
                made = list(chunks(request, whole))
                self._stream(made[: len(made) // 2])
            case _ if request.body.get("stream"):
                self._stream([*chunks(request, reply), None])
            case _:
                self._send(200, completion(request, reply))

    def _send(self, status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        data = codec.dump(body)
        self.send_response_only(status)
        for name, value in {"Date": self.date_time_string(), **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Sequence[dict[str, Any] | None]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(b"data: " + (b"[DONE]" if event is None else codec.dump(event)) + b"\n\n")
            self.wfile.flush()
