"""Rows that somebody wrote straight into a database: what they are, and how they get there."""

import base64
import hashlib
import json
import pickle

from backports import zstd

from holdfast.core import codec

BIG = 2**63 - 1


class Exploit:
    """What a decoder that executes data would do: make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def executed(path):
    """Bodies and values that some decoder somewhere would execute."""
    pickled = pickle.dumps(Exploit(path))
    call = f"open({path!r}, 'w')"
    return [
        pickled,
        pickle.dumps(Exploit(path), 0),
        b"\x80\x04" + pickled,
        base64.b64encode(pickled),
        zstd.compress(pickled),
        json.dumps({"__reduce__": ["builtins.open", [path, "w"]]}).encode(),
        json.dumps({"py/object": "builtins.open", "py/newargs": [path, "w"]}).encode(),
        json.dumps({"py/reduce": [{"py/type": "builtins.open"}, {"py/tuple": [path, "w"]}]}).encode(),
        json.dumps({"lc": 1, "type": "constructor", "id": ["builtins", "open"], "kwargs": {"file": path}}).encode(),
        json.dumps({"__class__": "builtins.open", "__module__": "builtins", "args": [path]}).encode(),
        json.dumps({"@type": "java.lang.Runtime", "exec": f"touch {path}"}).encode(),
        f"!!python/object/apply:builtins.open ['{path}', 'w']".encode(),
        f"__import__('os').system('touch {path}')".encode(),
        call.encode(),
        f"{{{call}}}".encode(),
        f"'; attach database '{path}' as x; --".encode(),
        f"${{jndi:file:{path}}}".encode(),
        f"{{{{{call}}}}}".encode(),
    ]


BODIES = [
    *(b"", b"null", b"5", b"[]", b'"text"', b"{", b"{}}", b'{"text":', b"\x00", b"\xff\xfe", b"\xef\xbb\xbf{}"),
    *(b"NaN", b"[" * 100_000, b'{"a":' * 50_000, b'{"text":"\xff"}', b'{"text":"\\ud800"}', b'{"text":5}'),
    *(b'{"text":null}', b'{"text":["a"]}', b'{"text":{"a":1}}', b'{"text":"x","text":5}', b'{"@":5,"text":"x"}'),
    *(b'{"text":"' + b"x" * 5_000_000 + b'"}x', b"x" * 5_000_000, b'{"text":"\x00"}', b'{"text":"a\nb"}'),
    b"<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>",
]
"""Bodies of a `log_written`, none of which is one."""

KINDS = [
    "",
    "LogWritten",
    "log written",
    "__class__",
    "os.system",
    "../log",
    "x" * 5_000,
    "é\u202e",
    "1",
    "Event",
    "erased",
]

FIELDS = [
    ("task_created", {"agent": 5}),
    ("task_created", {"agent": "a"}),
    ("task_created", []),
    ("task_claimed", {"holder": None}),
    ("task_claimed", {"holder": "h", "lease_seconds": "long"}),
    ("task_claimed", {"holder": "h", "pins": [1]}),
    ("task_suspended", {"why": "boredom"}),
    ("task_suspended", {"why": "timer", "wake_us": BIG}),
    ("task_suspended", {"why": "timer", "wake_us": 2**80}),
    ("task_suspended", {"why": "person", "wake_us": "noon"}),
    ("task_completed", {}),
    ("task_failed", {"failure": "it"}),
    ("task_failed", {"failure": {"type": 1, "message": 2}}),
    ("task_forked", {"parent": "nobody", "at": 1}),
    ("task_forked", {"parent": "t", "at": -1}),
    ("turn_started", {"turn": "one"}),
    ("turn_started", {"turn": 99}),
    ("stage_set", {"stage": 5}),
    ("stage_set", {"stage": ""}),
    ("phase_set", {"phase": "limbo"}),
    ("rolled_back", {"to": 1, "hot": {}}),
    ("rolled_back", {"to": 1, "hot": 5}),
    ("rolled_back", {"to": 99, "hot": {"summary": {"id": "t", "agent": "a"}}}),
    ("rolled_back", {"to": 1, "hot": {"summary": {"id": "other", "agent": "a", "status": "odd"}}}),
    ("rolled_back", {"to": 1, "hot": {"summary": {"id": "t", "agent": "a"}, "bag": {"k": {"$blob": 5}}}}),
    ("rolled_back", {"to": 1, "hot": {"summary": {"id": "t", "agent": "a"}, "steps": {"a": [1, 2, 3]}}}),
    ("rolled_back", {"to": -5, "hot": None}),
    ("step_started", {"key": 5, "name": "a"}),
    ("step_started", {"key": "a#1", "name": "a", "effect": "explosive"}),
    ("step_completed", {"key": "a#1", "name": "a"}),
    ("step_completed", {"key": "a#1", "name": "a", "result": 1, "input": [1]}),
    ("step_completed", {"key": "a#1", "name": "a", "result": 1, "started_us": -(2**62)}),
    ("step_completed", {"key": "a#1", "name": "a", "result": 1, "started_us": BIG}),
    ("step_completed", {"key": "a#1", "name": "a", "result": 1, "usage": {"input_tokens": "many"}}),
    ("step_failed", {"key": "a#1", "name": "a", "failure": None}),
    ("step_doubted", {"key": "nothing#1"}),
    ("step_settled", {"key": "nothing#1", "happened": "yes"}),
    ("attempt_failed", {"key": "a#1", "name": "a", "attempt": 1, "failure": {}, "retry_us": 1}),
    ("wait_started", {"key": "w#1", "wait": "godot"}),
    ("wait_started", {"key": "w#1", "wait": "timer", "wake_us": 2**62}),
    ("wait_ended", {"key": "w#1", "signal": "x"}),
    ("approval_asked", {"key": "a#1", "input": "all"}),
    ("approval_given", {"key": "a#1", "until_us": "ever"}),
    ("approval_given", {"key": "a#1", "until_us": 2**62}),
    ("signal_received", {"name": "s"}),
    ("budget_raised", {"limits": {"steps": "all"}}),
    ("child_spent", {"child": "c", "usage": 5}),
    ("plan_set", {"steps": "one"}),
    ("decision_made", {"question": "q"}),
    ("artifact_added", {"artifact_id": "a", "type": "t", "data": 1, "bytes": "big"}),
    ("message_added", {"message": {"$messages": 5}}),
    ("message_added", {"step": "nothing#1"}),
    ("messages_summarised", {"covers": [[5, 1], [2]]}),
    ("messages_summarised", {"covers": [["a", "b"]]}),
    ("state_set", {"name": 5, "value": 1}),
    ("state_incremented", {"name": "n", "by": "one"}),
    ("state_patched", {"patch": {"rm": "-rf"}}),
    ("state_patched", {"patch": 5}),
    ("state_migrated", {"version": "two"}),
    ("state_migrated", {"version": 2, "bag": []}),
    ("user_created", {}),
    ("thread_created", {"user": 5}),
    ("task_diverged", {"known_seq": "x", "known_digest": 5, "head_seq": 1}),
    ("checkpoint_made", {"label": ["x"]}),
    ("compensation_added", {"name": None}),
]

VALUES = [
    *({"$blob": 5}, {"$blob": None}, {"$blob": "x"}, {"$blob": "0" * 64, "bytes": 9, "shape": "str"}),
    *({"$blob": "../../etc/passwd", "bytes": 9, "shape": "str"}, {"$blob": "0" * 64, "bytes": -1, "shape": "odd"}),
    *(
        {"$append": 5},
        {"$append": []},
        {"$append": [1, 2]},
        {"$append": [{"$append": [5]}]},
        {"$json": 5},
        {"$json": 1, "b": 2},
    ),
    *({"$messages": 5}, {"$messages": {"log": 1, "to": "x", "digest": None}}, {"$what": 1}),
]
RAW_VALUES = [b"1e999", b"9" * 5000, b'"\xff"', b"[" * 900 + b"]" * 900, b'{"$append":[' * 400 + b"[]" + b"]}" * 400]


def rows(canary):
    """Every hostile row: a name, a kind and a body."""
    found = [(f"body {n}", "log_written", body) for n, body in enumerate(BODIES)]
    found += [(f"executed {n}", "log_written", body) for n, body in enumerate(executed(canary))]
    found += [(f"executed value {n}", "fact_learned", wrapped(body)) for n, body in enumerate(executed(canary))]
    found += [(f"executed kind {n}", body.decode("latin-1"), b"{}") for n, body in enumerate(executed(canary))]
    found += [(f"kind {n}", kind, b"{}") for n, kind in enumerate(KINDS)]
    found += [(f"field {n}", kind, json.dumps(body).encode()) for n, (kind, body) in enumerate(FIELDS)]
    found += [
        (f"value {n}", "fact_learned", wrapped(json.dumps(one).encode(), as_is=True)) for n, one in enumerate(VALUES)
    ]
    found += [
        (f"state {n}", "state_set", wrapped(json.dumps(one).encode(), "name", as_is=True))
        for n, one in enumerate(VALUES)
    ]
    return found + [(f"raw {n}", "fact_learned", wrapped(one, as_is=True)) for n, one in enumerate(RAW_VALUES)]


def wrapped(value, key="key", *, as_is=False):
    """A fact, or a state, of that value; bytes that are not JSON as text of it."""
    given = value if as_is else json.dumps(value.decode("latin-1")).encode()
    return b'{"' + key.encode() + b'":"k","value":' + given.replace(b'": ', b'":') + b"}"


def chained(previous, seq, kind, body, at=1_700_000_000_000_000):
    """A row whose digest follows from the one before, as somebody would compute who knows how."""
    hashed = hashlib.sha256(body).digest()
    return seq, kind, at, body, hashed, codec.chain(previous, seq, kind, at, hashed)
