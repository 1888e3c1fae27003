"""Claude Code with a model that follows a script: the real program, and a server here in place of the API."""

import json
import threading
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from claude_agent_sdk import ClaudeAgentOptions, query


class Server(ThreadingHTTPServer):
    """Answers each request with the next tool call, `(name, input)`, until there is none, and then with a text."""

    daemon_threads = True

    def __init__(self, calls):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls, self.seen = list(calls), []

    def reply(self, messages):
        self.seen.append(messages)
        if self.calls:
            name, given = self.calls.pop(0)
            use = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:20]}", "name": name, "input": {}}
            return use, {"type": "input_json_delta", "partial_json": json.dumps(given)}, "tool_use"
        return {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}, "end_turn"

    def results(self):
        """What the model was told of its tool calls, as texts."""
        blocks = [block for one in self.seen[-1] if isinstance(one["content"], list) for block in one["content"]]
        return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        start, delta, reason = self.server.reply(body["messages"])
        message = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": body["model"]}
        usage = {"input_tokens": 1, "output_tokens": 1}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        ended = {"stop_reason": reason, "stop_sequence": None}
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ]
        out = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)


@contextmanager
def scripted(*calls):
    server = Server(calls)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def options_of(server, home, **more):
    """Options of a Claude Code that knows nothing of this machine, and asks nobody but the server."""
    home.mkdir(exist_ok=True)
    env = {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CONFIG_DIR": str(home / "config"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "IS_SANDBOX": "1",
    }
    return ClaudeAgentOptions(env=env, cwd=str(home), setting_sources=[], **more)


async def told(prompt, options):
    """Ask, and return every message."""
    return [message async for message in query(prompt=prompt, options=options)]
