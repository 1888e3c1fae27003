"""`app.records(space)`: opaque bytes in ordered, named logs. Checkpoints, sessions and the like live here."""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast, overload

from msgspec.structs import replace

from holdfast.core import codec, limits, names
from holdfast.core.codec import Blob, RecordBlob, RecordHeader, Stored
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue, LogCorrupt, TaskNotFound, ValueDamaged
from holdfast.engine.logs.logs import Logs
from holdfast.engine.maintenance import export as exporting
from holdfast.engine.reading import verify as verifying
from holdfast.engine.reading.verify import Verification
from holdfast.engine.records.removal import RecordRemover, newest_first, oldest_first
from holdfast.engine.records.values import Data, Record, RecordBlobs, RecordChanges, RecordWrite
from holdfast.engine.records.writing import Addition, RecordWriter
from holdfast.engine.system.entropy import random_hex


class Records:
    """A space of records: keys, each with its records in the order they were appended.

        sessions = app.records("sessions")
        sessions.append("ana", b"hello")             # 1
        sessions.append("ana", [b"how", b"are"])     # [2, 3], all or nothing
        [one.data for one in sessions.read("ana")]   # [b"hello", b"how", b"are"]

    Safe from several threads and processes. A record's seq is its position; no seq of a key is ever used twice.
    """

    def __init__(self, logs: Logs, space: str) -> None:
        self._logs = logs
        self._writer = RecordWriter(logs)
        self._remover = RecordRemover(logs, self._writer)
        self.space = names.record_space(space)

    # Writing

    @overload
    def append(
        self,
        key: str,
        data: Data,
        *,
        blobs: Mapping[str, Data] | None = None,
        expect: int | None = None,
        user: str | None = None,
        expire: Duration | None = None,
    ) -> int: ...
    @overload
    def append(
        self,
        key: str,
        data: Sequence[Data],
        *,
        blobs: Mapping[str, Data] | None = None,
        expect: int | None = None,
        user: str | None = None,
        expire: Duration | None = None,
    ) -> list[int]: ...
    def append(
        self,
        key: str,
        data: Data | Sequence[Data],
        *,
        blobs: Mapping[str, Data] | None = None,
        expect: int | None = None,
        user: str | None = None,
        expire: Duration | None = None,
    ) -> int | list[int]:
        """Append a record, or a list of them, all or nothing; returns its seq, or theirs. Durable when it returns.

        `blobs`: large values of the record by name, kept beside it, and once however often they occur.
        `expect`: the seq of the key's last event (see `head`), 0 if there must be none. If another writer was first,
        Conflict is raised and nothing is written. Default: append after whatever is there.
        `user`: whose data it is; `app.user(id).erase()` erases it. `expire`: how long after this record `gc` drops the
        key, unless others have been appended by then. Default: never.
        """
        write = RecordWrite(key=key, data=data, blobs=blobs, expect=expect, user=user, expire=expire)
        one = self._addition(write, self._logs.clock.now_us())
        _refuse_too_much(_size(one))
        (first,) = self._writer.append((one,))
        if isinstance(data, bytes | bytearray | memoryview):
            return first
        return list(range(first, first + len(one.drafts)))

    def write(self, writes: Sequence[RecordWrite]) -> list[list[int]]:
        """Append to several keys, all or nothing; returns the seqs of each write.

            records.write([
                RecordWrite(key="session/1", data=b"event", expect=7),
                RecordWrite(key="user/ana", data=b"state"),
            ])

        A key may be there several times; the first of its writes may have an `expect`.
        """
        at_us = self._logs.clock.now_us()
        given = [self._addition(one, at_us) for one in _listed(writes, "writes")]
        _refuse_too_much(sum(_size(one) for one in given))
        by_log: dict[str, Addition] = {}
        for one in given:
            by_log[one.log] = _followed(by_log[one.log], one) if one.log in by_log else one
        firsts = self._writer.append([*by_log.values()]) if given else []
        nexts = dict(zip(by_log, firsts, strict=True))
        seqs: list[list[int]] = []
        for one in given:
            seqs.append(list(range(nexts[one.log], nexts[one.log] + len(one.drafts))))
            nexts[one.log] += len(one.drafts)
        return seqs

    def _addition(self, write: RecordWrite, at_us: int) -> Addition:
        if not isinstance(write, RecordWrite):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                f"{names.a(type(write).__name__)} is not a RecordWrite; nothing was written",
                hint="write RecordWrite(key=…, data=…)",
            )
        log = names.record_log(self.space, write.key)
        items = [_data(one) for one in _items(write.data)]
        refs, blobs = _blobs(write.blobs)
        if refs and len(items) > 1:
            raise InvalidValue(
                "blobs= belong to one record, and several were given; nothing was written",
                hint="give each as a RecordWrite of its own: records.write([…]); a key may be there several times",
            )
        user = None if write.user is None else names.user_log(write.user).removeprefix("@user/")
        expire_us = 0 if write.expire is None else int(seconds(write.expire, "expire", above_zero=True) * 1_000_000)
        drafts = [codec.draft_record(data, RecordHeader(random_hex(8), user, refs, expire_us), at_us) for data in items]
        return Addition(log, tuple(drafts), blobs, None if write.expect is None else _seq(write.expect, "expect"))

    # Reading

    def read(
        self,
        key: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Record]:
        """Return a key's records in order, from after one seq to before another; none if there is no such key.

        `limit`: at most so many, the oldest. `last`: at most so many, the newest, newest first. Default: all of them.
        """
        log, after = names.record_log(self.space, key), _seq(after, "after")
        upto = None if before is None else _seq(before, "before") - 1
        if limit is not None and last is not None:
            raise InvalidValue("limit= takes the oldest and last= the newest", hint="give one of them")
        most = limit if last is None else last
        if most is not None and _count(most, "limit" if last is None else "last") == 0:
            return []
        rows = oldest_first if last is None else newest_first
        found = rows(self._logs, log, after=after, upto=upto, count=limits.READ_CHUNK if most is None else most)
        return [self._record(key, row) for row in islice(found, most)]

    def head(self, key: str) -> int:
        """Return the seq of the last thing that happened to a key, 0 if there is no such key: what `expect` takes.

        That is its newest record, unless records were erased or popped since.
        """
        found = self._logs.store.head(names.record_log(self.space, key))
        return 0 if found is None else found.seq

    def keys(self, prefix: str = "", *, after: str | None = None, limit: int = limits.PAGE_SIZE) -> list[str]:
        """Return keys in the order of their code points: those that begin with `prefix`, after the last one seen."""
        begin, last = self._page(prefix, after, limit)
        return [names.record_key(log)[1] for log in self._logs.store.logs(prefix=begin, after=last, limit=limit)]

    def latest(self, prefix: str = "", *, after: str | None = None, limit: int = limits.PAGE_SIZE) -> list[Record]:
        """Return the newest record of each key, in the order of `keys`: what a key-value store lists.

        A key whose records were all erased or popped is left out. `after` is the key of the last one seen.
        """
        begin, last = self._page(prefix, after, limit)
        found: list[Record] = []
        while len(found) < limit:
            size = limit - len(found)
            page = self._logs.store.newest(prefix=begin, after=last, limit=size)
            for log, row in page:
                key = names.record_key(log)[1]
                found += [self._record(key, row)] if codec.is_live(row) else self.read(key, last=1)
            if len(page) < size:
                break
            last = page[-1][0]
        return found

    def _page(self, prefix: str, after: str | None, limit: int) -> tuple[str, str | None]:
        """Return the prefix of a page's logs, and the log they come after."""
        if not 1 <= _count(limit, "limit") <= limits.MAX_PAGE_SIZE:
            raise InvalidValue(f"limit={limit} is out of range", hint=f"use 1 to {limits.MAX_PAGE_SIZE:,}")
        last = None if after is None else names.record_prefix(self.space, after)
        return names.record_prefix(self.space, prefix), last

    def changes(self, key: str, cursor: str | None = None) -> RecordChanges:
        """Return what happened to a key since `cursor`, which the last call gave: one question to the store.

        It is for programs that keep what they read in memory, and tells them if that is void: see RecordChanges.
        """
        log = names.record_log(self.space, key)
        seq, digest = _cursor(cursor)
        found = self._logs.store.since(log, seq)
        restarted = not seq or not found.rows or (found.rows[0].seq, found.rows[0].digest) != (seq, digest)
        if restarted and seq:
            found = self._logs.store.since(log, 0)
        rows = found.rows if restarted else found.rows[1:]
        erased = [seq for row in rows if row.kind == codec.RECORD_ERASED for seq in codec.erased_seqs(row.body or b"")]
        end = found.rows[-1] if found.rows else None
        return RecordChanges(
            records=[self._record(key, row) for row in rows if codec.is_live(row)],
            erased=[] if restarted else erased,
            first=found.base + 1,
            restarted=restarted,
            cursor=None if end is None else f"{end.seq}.{end.digest.hex()}",
            head=0 if end is None else end.seq,
        )

    def _record(self, key: str, row: Stored) -> Record:
        assert row.body is not None
        try:
            header, data = codec.read_record(row.body)
        except ValueError as error:
            log = names.record_log(self.space, key)
            raise LogCorrupt(log, row.seq, f"its body cannot be read: {error}") from error
        blobs = RecordBlobs(header.blobs, self._blob) if header.blobs else _NO_BLOBS
        return Record(key, row.seq, row.at_us, data, blobs, header.user, header.expire_us)

    def _blob(self, ref: RecordBlob) -> bytes:
        try:
            stored = self._logs.blob(ref.hash)
        except ValueDamaged:
            raise ValueDamaged(
                ref.hash, "is gone: its record was erased, trimmed or dropped since it was read"
            ) from None
        return codec.open_record_blob(ref, stored)

    # Taking away

    def pop(self, key: str, *, expect: int | None = None) -> Record | None:
        """Erase the newest record of a key and return it; None if there is none. `expect` as for `append`."""

        def read(row: Stored) -> Record:
            record = self._record(key, row)  # its blobs are read now: they may go with it
            return replace(record, blobs=dict(record.blobs))

        wanted = None if expect is None else _seq(expect, "expect")
        return self._remover.pop(names.record_log(self.space, key), wanted, read)

    def erase(self, key: str, seqs: int | Collection[int], *, by: str = "", why: str = "") -> int:
        """Erase records of a key; returns how many. Their data and blobs are gone, their place in the chain stays."""
        log = names.record_log(self.space, key)
        given = [seqs] if isinstance(seqs, int) else list(_listed(seqs, "seqs"))
        wanted = {_seq(seq, "seqs") for seq in given}
        names.text(by, "by=")
        names.text(why, "why=")
        return self._remover.erase(log, wanted, by=by, why=why) if wanted else 0

    def trim(self, key: str, *, keep: int, expect: int | None = None) -> int:
        """Remove the oldest records of a key but for the newest `keep`; returns how many they were. 0 drops the key.

        `expect` as for `append`: if another writer was first, Conflict is raised and nothing is removed.
        """
        log = names.record_log(self.space, key)
        wanted = None if expect is None else _seq(expect, "expect")
        if _count(keep, "keep") == 0:
            count = len(self.read(key))
            return count if self.drop(key, expect=wanted) else 0
        return self._remover.trim(log, keep, wanted)

    def drop(self, key: str, *, expect: int | None = None, why: str = "dropped") -> bool:
        """Remove all of a key; returns whether it was there. The key is free: a later append begins it again.

        What is left is its name, its last seq and the digest there. Seqs continue from that one, so a cursor, or an
        `expect` from before the drop, is never taken for one of after it.
        """
        wanted = None if expect is None else _seq(expect, "expect")
        return self._remover.drop(names.record_log(self.space, key), wanted, names.text(why, "why="))

    # Looking after them

    def verify(self, key: str) -> Verification:
        """Walk the chain of a key's records, and name the first that is not as it was written."""
        with self._there(key) as log:
            return verifying.verify(self._logs, log)

    def export(self, key: str, path: str | os.PathLike[str]) -> int:
        """Write a key's records to a new file as JSON Lines, lossless; returns the bytes. `app.import_` reads it."""
        with self._there(key) as log:
            return exporting.export_to(self._logs, log, path)

    def export_lines(self, key: str) -> Iterator[bytes]:
        """Return the lines that `export` writes."""
        with self._there(key):
            return self._lines(key)

    def _lines(self, key: str) -> Iterator[bytes]:
        with self._there(key) as log:
            yield from exporting.export(self._logs, log)

    @contextmanager
    def _there(self, key: str) -> Generator[str, None, None]:
        """The log of a key that must be there, also in the end."""
        log = names.record_log(self.space, key)
        try:
            self._logs.head(log)
            yield log
        except TaskNotFound:
            raise InvalidValue(
                f"there are no records {key!r} in {self.space!r}", hint="records.keys() lists the keys"
            ) from None

    def __repr__(self) -> str:
        return f"<records {self.space} on {self._logs.store.url}>"


_NO_BLOBS: Mapping[str, bytes] = RecordBlobs({}, lambda ref: b"")


def _items(data: Data | Sequence[Data]) -> Sequence[Any]:
    """The records of one append, one or many."""
    if isinstance(data, bytes | bytearray | memoryview):
        return (data,)
    if not isinstance(data, list | tuple):
        raise _no_bytes(data)
    if not 1 <= len(data) <= limits.MAX_EVENTS_PER_WRITE:
        raise InvalidValue(
            f"{len(data):,} records cannot be appended at once; nothing was written",
            hint=f"give 1 to {limits.MAX_EVENTS_PER_WRITE:,}",
        )
    return data


def _data(given: Any) -> bytes:
    data = given if type(given) is bytes else _bytes(given)
    if len(data) > limits.MAX_RECORD_BYTES:
        raise InvalidValue(
            f"a record has {len(data):,} bytes; the most is {limits.MAX_RECORD_BYTES:,}; nothing was written",
            hint="give what is large as a blob: append(key, data, blobs={name: bytes})",
        )
    return data


def _bytes(given: Any) -> bytes:
    if not isinstance(given, bytes | bytearray | memoryview):
        raise _no_bytes(given)
    return bytes(cast("bytes", given))


def _no_bytes(given: Any) -> InvalidValue:
    return InvalidValue(
        f"records are bytes, not {type(given).__name__}; nothing was written",
        hint="encode it first, such as text.encode() or json.dumps(value).encode()",
    )


def _blobs(given: Mapping[str, Data] | None) -> tuple[dict[str, RecordBlob], tuple[Blob, ...]]:
    """Return a record's references to its blobs, and the bytes to store."""
    if not given:
        return {}, ()
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"blobs= is {names.a(type(given).__name__)}, not a mapping", hint="give blobs={name: bytes}")
    if len(given) > limits.MAX_RECORD_BLOBS:
        raise InvalidValue(
            f"a record cannot have {len(given):,} blobs; nothing was written", hint=f"use {limits.MAX_RECORD_BLOBS:,}"
        )
    refs: dict[str, RecordBlob] = {}
    stored: dict[str, Blob] = {}
    for name, value in given.items():
        data = _bytes(value)
        if len(data) > limits.MAX_VALUE_BYTES:
            raise InvalidValue(
                f"blob {name!r} has {len(data):,} bytes; the most is {limits.MAX_VALUE_BYTES:,}; nothing was written",
                hint="keep it in a file or an object store, and its address in the record",
            )
        ref, blob = codec.make_record_blob(data)
        refs[names.short_name(name, "name of a blob")] = ref
        stored[ref.hash] = blob
    return refs, tuple(stored.values())


def _followed(one: Addition, two: Addition) -> Addition:
    """Two writes of one key as one."""
    if two.expect is not None:
        raise InvalidValue(
            "expect= of a key's second write cannot be known; nothing was written", hint="give it with the first"
        )
    return Addition(one.log, one.drafts + two.drafts, one.blobs + two.blobs, one.expect)


def _size(one: Addition) -> int:
    size = sum([len(draft.body or b"") for draft in one.drafts])
    return size + sum([len(blob.data) for blob in one.blobs]) if one.blobs else size


def _refuse_too_much(size: int) -> None:
    if size > limits.MAX_APPEND_BYTES:
        raise InvalidValue(
            f"the records have {size:,} bytes; one append takes {limits.MAX_APPEND_BYTES:,}; nothing was written",
            hint="append them in parts",
        )


def _listed(given: Any, what: str) -> Sequence[Any]:
    if not isinstance(given, list | tuple | set | frozenset | range):
        raise InvalidValue(f"{what}= is {names.a(type(given).__name__)}, not a list", hint=f"give a list of {what}")
    return cast("Sequence[Any]", given)


def _seq(given: Any, what: str) -> int:
    if type(given) is not int or not 0 <= given <= limits.MAX_SEQ:
        raise InvalidValue(f"{what}={str(given)[:80]!r} is not a seq", hint="give an int, such as append returns")
    return given


def _count(given: Any, what: str) -> int:
    if type(given) is not int or not 0 <= given <= limits.MAX_SEQ:
        raise InvalidValue(f"{what}={str(given)[:80]!r} is not a number of records", hint="give an int, 0 or more")
    return given


def _cursor(given: str | None) -> tuple[int, bytes]:
    """The seq and the digest of a cursor; 0 if there is none."""
    if given is None:
        return 0, b""
    try:
        seq, _, digest = given.partition(".")
        return _seq(int(seq), "cursor"), bytes.fromhex(digest)
    except (ValueError, AttributeError):
        raise InvalidValue(
            f"{str(given)[:80]!r} is not a cursor", hint="give the cursor of an earlier call, or None to begin again"
        ) from None
