"""A program that works on records until it is killed: python record_writer.py URL JOURNAL NAME SEED.

What it is about to do goes into its journal before it does it, and that it was done when the call has returned: one
`os.write` each, which the operating system keeps when the process is killed.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Records, RecordWrite

SPACE, SHARED = "killed", "shared"
LARGE = b"a large value " * 500


class Expected:
    """What the keys of one writer have, if these operations were done."""

    def __init__(self) -> None:
        self.records: dict[str, dict[int, str]] = {}
        self.last: dict[str, int] = {}
        self.there: set[str] = set()

    def state(self) -> dict[str, Any]:
        return {key: (self.last[key], self.records[key]) for key in sorted(self.there)}

    def do(self, op: dict[str, Any]) -> None:
        match op:
            case {"do": "append", "keys": keys, "texts": texts}:
                for key in keys:
                    self._append(key, texts)
            case {"do": "pop", "key": key}:
                if self.records.get(key):
                    del self.records[key][max(self.records[key])]
                    self.last[key] += 1
            case {"do": "trim", "key": key, "keep": keep}:
                kept = sorted(self.records.get(key, {}).items())[-keep:]
                self.records[key] = dict(kept)
            case {"do": "drop", "key": key}:
                self.records[key] = {}
                self.there.discard(key)
            case _:
                raise AssertionError(op)

    def _append(self, key: str, texts: list[str]) -> None:
        self.there.add(key)
        for text in texts:
            self.last[key] = self.last.get(key, 0) + 1
            self.records.setdefault(key, {})[self.last[key]] = text


def found(records: Records, name: str) -> dict[str, Any]:
    """What the keys of one writer have in the store."""
    keys = records.keys(f"{name}/")
    return {key: (records.head(key), {one.seq: one.data.decode() for one in records.read(key)}) for key in keys}


def do(records: Records, op: dict[str, Any]) -> list[int]:
    match op:
        case {"do": "shared", "texts": texts}:
            return records.append(SHARED, [text.encode() for text in texts])
        case {"do": "append", "keys": [key], "texts": [text]}:
            return [records.append(key, text.encode(), blobs={"large": LARGE} if op["blobs"] else None)]
        case {"do": "append", "keys": keys, "texts": texts}:
            records.write([RecordWrite(key=key, data=[text.encode() for text in texts]) for key in keys])
        case {"do": "pop", "key": key}:
            records.pop(key)
        case {"do": "trim", "key": key, "keep": keep}:
            records.trim(key, keep=keep)
        case {"do": "drop", "key": key}:
            records.drop(key)
        case _:
            raise AssertionError(op)
    return []


def chosen(chance: random.Random, name: str, number: int) -> dict[str, Any]:
    keys = [f"{name}/{letter}" for letter in "abc"]
    texts = [f"{name} {number} {part}" for part in range(chance.randint(1, 4))]
    kind = chance.choices(("append", "both", "shared", "pop", "trim", "drop"), (5, 2, 3, 2, 2, 1))[0]
    if kind == "shared":
        return {"do": "shared", "texts": [f"{name} {number} {part}" for part in range(3)]}
    if kind in ("append", "both"):
        return {
            "do": "append",
            "keys": keys[:2] if kind == "both" else [chance.choice(keys)],
            "texts": texts,
            "blobs": chance.random() < 0.3,
        }
    return {"do": kind, "key": chance.choice(keys), "keep": chance.randint(1, 3)}


def read_journal(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """What was done, and what was under way. A last line without its end was being written."""
    done: list[dict[str, Any]] = []
    begun: dict[str, Any] | None = None
    for line in path.read_bytes().rpartition(b"\n")[0].splitlines():
        entry = json.loads(line)
        if "seqs" in entry:
            assert begun is not None
            done.append({**begun, "seqs": entry["seqs"]})
            begun = None
        else:
            begun = entry
    return done, begun


def main(url: str, journal: str, name: str, seed: str) -> None:
    chance = random.Random(int(seed))
    file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    records = holdfast.open(url, durability=chance.choice(("full", "process"))).records(SPACE)
    number = 0
    while True:
        number += 1
        op = chosen(chance, name, number)
        os.write(file, json.dumps(op).encode() + b"\n")
        seqs = do(records, op)
        os.write(file, json.dumps({"seqs": seqs}).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
