"""Appending to a PostgreSQL store.

An append is one statement and one round trip. It trusts what its groups expect, and fails as a whole where that is
wrong; then, and for writes at whatever the head is, the logs are locked and looked at first.

*A connection that is lost* while a statement is under way leaves its fate open. It is never guessed: the logs are
locked on a new connection, which waits for whatever the server still does for the old one, and our digests are looked
for at their places. If they are there, it happened. If not, the same write is tried at the same places, where only one
of the two can ever be.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg

from holdfast.core import codec
from holdfast.core.codec import Draft, Group, Head, UniqueKey, Write
from holdfast.core.errors import Conflict, HoldfastError, LogCorrupt, StorePoisoned, StoreUnreachable
from holdfast.failpoints import failpoint
from holdfast.store.acceptance import decide
from holdfast.store.postgres.guard import run_guarded
from holdfast.store.postgres.rows import Batch, Seen, is_cut, last_places, names_in, plan
from holdfast.store.postgres.server import queries as q
from holdfast.store.postgres.server.connecting import Link, is_lost, is_refusal, translated
from holdfast.store.postgres.server.connections import Connections, Question
from holdfast.store.postgres.server.statements import Ints, Texts
from holdfast.store.protocol import Outcome, Placed, Work

_MAX_TRIES = 8
_ANNOUNCEMENT = "step_started"

Places = tuple[Placed, ...] | None


class _Lost(Exception):
    """The connection broke; these outcomes were being written, if any were."""

    def __init__(self, outcomes: Sequence[Outcome] = ()) -> None:
        self.outcomes = outcomes


class _Refused(Exception):
    """Something is not as the statement took it to be."""


class _NotAtOnce(Exception):
    """One statement cannot do all of it."""


class Writer:
    """What writes events, over connections of a pool."""

    def __init__(self, links: Connections, snapshots_kept: int) -> None:
        self._links = links
        self._snapshots_kept = snapshots_kept

    def append(self, groups: Sequence[Group]) -> list[Outcome]:
        """Write groups; each succeeds or fails alone."""
        self._links.refuse_inside()
        self._await_presence(groups)
        failpoint("append.before")
        done = self._append(list(groups))
        failpoint("append.after")
        return done

    def _await_presence(self, groups: Sequence[Group]) -> None:
        """Announce nothing while this process can't be seen alive: its tasks may be taken any moment.

        The wait for that is limited. An announcement that is made all the same is refused if the task was taken, and
        a later worker waits until the call must be over.
        """
        if self._links.is_unseen:
            drafts = (draft for group in groups for write in group.writes for draft in write.drafts)
            if any(draft.kind == _ANNOUNCEMENT for draft in drafts):
                self._links.await_presence()

    def _append(self, groups: list[Group]) -> list[Outcome]:
        places: list[Places] = [None] * len(groups)
        seen = Seen.trusting(groups)
        planned = None if seen is None else plan(groups, seen)
        if planned is not None and all(isinstance(outcome, tuple) for outcome in planned[0]):
            outcomes, batch = planned
            if batch.is_empty:
                return outcomes
            try:
                self._write_at_once(batch)
                return outcomes
            except _Refused:
                pass
            except _Lost:
                places = [outcome if isinstance(outcome, tuple) else None for outcome in outcomes]
                self._links.lost()
        return self._settle(groups, places)

    def _write_at_once(self, batch: Batch) -> None:
        text, bindings = batch.statement(self._snapshots_kept)
        with self._links.writing() as link:
            failpoint("commit.before")
            try:
                self._links.write(link, text, bindings)
            except psycopg.Error as error:
                raise self._reason(error, link) from error
        failpoint("commit.after")

    def append_event(self, log: str, expect: Head, draft: Draft) -> bytes | Conflict:
        """One event, one statement that commits by itself and writes nothing unless the head is there."""
        self._links.refuse_inside()
        group = Group((Write(log, (draft,), expect),))
        self._await_presence((group,))
        seq = expect.seq + 1
        digest = codec.chain(expect.digest, seq, draft.kind, draft.at_us, draft.body_hash)
        row = (seq, digest, log, expect.digest, draft.kind, draft.at_us, draft.body, draft.body_hash)
        failpoint("append.before")
        places: Places = None
        try:
            if self._insert(row):
                failpoint("append.after")
                return digest
        except _Refused:
            pass
        except _Lost:
            places = (Placed(seq, (digest,)),)
            self._links.lost()
        (outcome,) = self._settle([group], [places])
        failpoint("append.after")
        if isinstance(outcome, tuple):
            return outcome[0].digests[0]
        assert isinstance(outcome, Conflict)
        return outcome

    def _insert(self, row: tuple[Any, ...]) -> bool:
        with self._links.writing() as link:
            failpoint("commit.before")
            try:
                written = self._links.write_event(link, *row) == 1
            except psycopg.Error as error:
                raise self._reason(error, link) from error
        if written:
            failpoint("commit.after")
        return written

    def _reason(self, error: psycopg.Error, link: Link) -> Exception:
        """Return the meaning of an error for a write that was under way."""
        if is_lost(error, link):
            return _Lost()
        return _Refused(str(error)) if is_refusal(error) else translated(error, self._links.address)

    # Under a lock

    def _settle(self, groups: list[Group], places: list[Places]) -> list[Outcome]:
        """Write groups under a lock, or find that they were written: `places` are those of a try without an answer."""
        until = time.monotonic() + self._links.address.wait_seconds
        tries = 0
        while True:
            try:
                return self._append_locked(groups, places)
            except _NotAtOnce:
                return [self._settle([one], [place])[0] for one, place in zip(groups, places, strict=True)]
            except _Refused as error:
                tries += 1
                if tries >= _MAX_TRIES:
                    if len(groups) == 1:
                        raise self._unsettled(places, _odd(groups[0], error)) from error
                    return [self._settle([one], [place])[0] for one, place in zip(groups, places, strict=True)]
            except _Lost as lost:
                for index, outcome in enumerate(lost.outcomes):
                    places[index] = outcome if isinstance(outcome, tuple) else places[index]
                if time.monotonic() > until:
                    gone = StoreUnreachable("the connection was lost again and again", hint="see the server's log")
                    raise self._unsettled(places, gone) from lost
                self._links.lost()
            except HoldfastError as error:
                raise self._unsettled(places, error) from error

    def _unsettled(self, places: Sequence[Places], error: HoldfastError) -> HoldfastError:
        """Return the error to raise if a write is still in doubt."""
        if not any(places):
            return error
        return StorePoisoned(
            f"the connection to {self._links.address.shown} was lost while writing, and what became of it cannot be "
            f"looked up: {error.message}",
            hint="when the server answers again, read the log: it says whether it was written",
        )

    def _append_locked(self, groups: list[Group], places: Sequence[Places]) -> list[Outcome]:
        with self._links.writing() as link:
            try:
                outcomes, batch = self._decide_locked(link, groups, places)
                if batch.is_empty:
                    self._links.undo(link)
                    return outcomes
                failpoint("commit.before")
                self._commit(link, batch, outcomes)
            except psycopg.Error as error:
                raise self._reason(error, link) from error
            finally:
                self._links.undo(link)
        failpoint("commit.after")
        return outcomes

    def _decide_locked(self, link: Link, groups: list[Group], places: Sequence[Places]) -> tuple[list[Outcome], Batch]:
        """Begin, lock, look, and decide what becomes of every group that is not there already."""
        seen, found = self._look(link, groups, places, begins=True)
        done: dict[int, Outcome] = {}
        for index, (group, placed) in enumerate(zip(groups, places, strict=True)):
            wanted = last_places(group, placed) if placed is not None else {}
            if placed is not None and (wanted.items() <= found.items() if wanted else is_cut(group, seen)):
                done[index] = placed
        planned = plan([group for index, group in enumerate(groups) if index not in done], seen)
        if planned is None:
            raise _NotAtOnce
        decided = iter(planned[0])
        return [done[index] if index in done else next(decided) for index in range(len(groups))], planned[1]

    def _look(
        self, link: Link, groups: Sequence[Group], places: Sequence[Places], *, begins: bool
    ) -> tuple[Seen, dict[tuple[str, int], bytes]]:
        """Lock every log that groups are about, then look at all they depend on; one round trip."""
        names = Texts(names_in(groups))
        keys = Texts(take.key for group in groups for take in group.unique_keys)
        asked = [
            one for group, placed in zip(groups, places, strict=True) if placed for one in last_places(group, placed)
        ]
        where = {"names": Texts(log for log, _ in asked), "seqs": Ints(seq for _, seq in asked)}
        looks: tuple[Question, ...] = (
            *((q.LOCK, {"names": names}), (q.GONE, {"names": names}), (q.OWNERS, {"keys": keys}), (q.FOUND, where)),
        )
        begun: list[Question] = [(q.BEGIN, None)] if begins else []
        heads, gone, owners, found = self._links.together(link, *begun, *looks)[-len(looks) :]
        seen = Seen()
        found_heads = heads.fetchall()
        seen.heads = {name: Head(seq, digest) for name, _, seq, digest, _ in found_heads}
        seen.bases = {row[0]: row[4] for row in found_heads}
        seen.gone = {name: Head(seq, digest) for name, seq, digest in gone.fetchall()}
        seen.parents = set(seen.heads)
        seen.owners = {row[0]: UniqueKey(*row) for row in owners.fetchall()}
        return seen, {(name, seq): digest for name, seq, digest in found.fetchall()}

    def _commit(self, link: Link, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        """Write what was decided and commit; one round trip."""
        try:
            self._links.together(link, *batch.statements(self._snapshots_kept), (q.COMMIT, None))
        except psycopg.Error as error:
            if is_lost(error, link):
                raise _Lost(outcomes) from error
            raise

    # With user code

    def transact(self, log: str, expect: Head, work: Work, seconds: float | None) -> Outcome:
        """The log is locked before user code runs: nothing of it can move between that and the commit."""
        self._links.refuse_inside()
        failpoint("append.before")
        done: Outcome | _InDoubt | None = None
        for _ in range(_MAX_TRIES):
            done = self._try_transaction(Write(log, (), expect), work, seconds)
            if done is not None:
                break
            self._links.lost()
        if done is None:
            raise StoreUnreachable(f"the connection to {self._links.address.shown} is lost each time", hint="try again")
        if isinstance(done, _InDoubt):
            done = self._settle_transaction(done)
        failpoint("append.after")
        return done

    def _try_transaction(self, after: Write, work: Work, seconds: float | None) -> Outcome | _InDoubt | None:
        """None if the connection was found to be broken before user code ran."""
        with self._links.link() as link, self._links.inside():
            try:
                return self._transact(link, after, work, seconds)
            except _Lost:
                return None
            finally:
                self._links.tidy(link)

    def _transact(self, link: Link, after: Write, work: Work, seconds: float | None) -> Outcome | _InDoubt:
        """Leave the transaction open unless all is well. Only errors of our own statements are translated."""
        links = self._links
        try:
            seen, _ = self._look(link, [Group((after,))], [None], begins=True)
        except psycopg.Error as error:
            raise self._reason(error, link) from error
        held = decide(Group((after,)), seen)
        if not isinstance(held, tuple):
            return held
        group = run_guarded(link, links.address.schema, work, seconds)
        try:
            seen, _ = self._look(link, [group], [None], begins=False)
            planned = plan([group], seen)
            assert planned is not None, "one statement can do one group"
            (outcome,), batch = planned
            if not isinstance(outcome, tuple):
                return outcome
            failpoint("commit.before")
            try:
                self._commit(link, batch, [outcome])
            except _Lost:
                return _InDoubt(after.log, group, outcome)
        except psycopg.Error as error:
            raise translated(error, links.address) from error
        failpoint("commit.after")
        return outcome

    def _settle_transaction(self, doubt: _InDoubt) -> Outcome:
        """Find out whether a transaction with user code was committed. It held its log's lock, so we wait for that."""
        assert isinstance(doubt.outcome, tuple)
        self._links.lost()
        wanted = last_places(doubt.group, doubt.outcome)
        alone = Group((Write(doubt.log, ()),))
        where = self._links.address.shown
        try:
            with self._links.link() as link:
                self._look(link, [alone], [None], begins=True)
                _, found = self._look(link, [doubt.group], [doubt.outcome], begins=False)
        except (psycopg.Error, HoldfastError) as error:
            raise self._unsettled([doubt.outcome], StoreUnreachable(str(error), hint="try again")) from error
        if wanted and wanted.items() <= found.items():
            return doubt.outcome
        if wanted:
            raise StoreUnreachable(f"the connection to {where} was lost; nothing was written", hint="try again")
        raise StorePoisoned(
            f"the connection to {where} was lost at the commit of a transaction without a record",
            hint="look at the tables it wrote to",
        )


class _InDoubt:
    """A transaction whose commit got no answer."""

    def __init__(self, log: str, group: Group, outcome: Outcome) -> None:
        self.log = log
        self.group = group
        self.outcome = outcome


def _odd(group: Group, error: _Refused) -> HoldfastError:
    """The database refuses what is right as far as anyone can see: the fault is in the database."""
    write = group.writes[0] if group.writes else None
    seq = write.expect.seq + 1 if write is not None and write.expect is not None else 0
    return LogCorrupt(write.log if write is not None else "", seq, f"the database refuses it: {error}")
