"""Every query the PostgreSQL store sends, by name. Values travel as parameters, never in the text.

`{s}` is the schema; `Texts` puts its quoted name in, and nothing else is ever put into a text.
"""

from __future__ import annotations

from typing import LiteralString

from psycopg import sql

from holdfast.store.columns import COLUMNS, NAMES, RENEWED, SELECTED


class QueryTexts:
    """The texts of queries for one schema, made once each."""

    def __init__(self, schema: str) -> None:
        self._schema = sql.Identifier(schema)
        self._made: dict[str, bytes] = {}

    def __getitem__(self, text: LiteralString) -> bytes:
        made = self._made.get(text)
        if made is None:
            # psycopg remembers how to read a text of up to 4,096 bytes, so it is worth being short.
            made = self._made[text] = b" ".join(sql.SQL(text).format(s=self._schema).as_bytes(None).split())
        return made


BEGIN = "begin"
COMMIT = "commit"

# Appending

# One event: the head moves if it is the expected one, and the event is written if it moved.
APPEND_EVENT = """
with head as (
  update {s}.logs set seq = %(seq)s, digest = %(digest)b
  where name = %(name)s and seq = %(seq)s - 1 and digest = %(before)b returning log
)
insert into {s}.events (log, seq, kind, at, body, body_hash, digest)
select log, %(seq)s, %(kind)s, %(at)s, %(body)b::bytea, %(body_hash)b, %(digest)b from head
"""

# Heads are locked in one order, so that two batches wait for each other in one direction only; those that are the
# expected ones move.
_MOVED = """
held as (
  select log, name from {s}.logs where name = any(%(names)s) order by log for no key update
), moved as (
  update {s}.logs set seq = new.seq, digest = new.digest
  from held join unnest(%(names)s, %(old_seqs)s, %(old_digests)s, %(new_seqs)s, %(new_digests)s)
    as new (name, old_seq, old_digest, seq, digest) using (name)
  where logs.log = held.log and logs.seq = old_seq and logs.digest = old_digest
  returning logs.log, logs.name
)
"""

# Without its log, whose head has then not moved, a row has a null where none may be: the whole statement fails.
_EVENTS = """
insert into {s}.events (log, seq, kind, at, body, body_hash, digest)
select known.log, seq, kind, at, body, body_hash, digest
from unnest(%(event_logs)s, %(seqs)s, %(kinds)s, %(ats)s, %(bodies)s, %(body_hashes)s, %(digests)s)
  as new (name, seq, kind, at, body, body_hash, digest)
left join known using (name)
"""

# Events of many logs, each after a known head, in one statement.
APPEND_EVENTS = "with " + _MOVED + ", known as (select * from moved)" + _EVENTS  # noqa: S608 — constants

# A task's row, as its fold now has it.
_TASKS = (
    "insert into {s}.tasks (log, " + NAMES + ") select known.log, " + NAMES  # noqa: S608 — constants
    + " from unnest(%(id)s, " + ", ".join("%(" + name + ")s" for name in COLUMNS) + ") as new (name, " + NAMES + ")"
    " left join known using (name) order by known.log on conflict (log) do update set " + RENEWED
)  # fmt: skip

# The same with the rows of their tasks.
APPEND_WITH_TASKS = (
    "with " + _MOVED + ", known as (select * from moved), tasks as (" + _TASKS + ")" + _EVENTS  # noqa: S608
)  # fmt: skip

# New logs in their order. A parent that is named but not there makes the name null, which none may be.
_LOGS = """
insert into {s}.logs (name, parent, base, seq, digest)
select case when new.parent is null or logs.log is not null then new.name end, logs.log, new.base, new.seq, new.digest
from unnest(%(new_logs)s, %(parents)s, %(bases)s, %(made_seqs)s, %(made_digests)s)
  with ordinality as new (name, parent, base, seq, digest, place)
left join {s}.logs on logs.name = new.parent order by place
returning log, name
"""

# New logs, with the rows of their tasks: what starting a task is.
CREATE = (
    "with made as (" + _LOGS + "), known as (select * from made), tasks as (" + _TASKS + ")" + _EVENTS  # noqa: S608
)  # fmt: skip

_SNAPSHOTS = """
insert into {s}.snapshots (log, seq, digest, version, at, body)
select known.log, seq, digest, version, at, body from shots join known using (name)
on conflict (log, seq) do update set
  digest = excluded.digest, version = excluded.version, at = excluded.at, body = excluded.body
"""

# Only the newest few stay. The new one is not seen here yet, so it is counted apart.
_ROTATE = """
delete from {s}.snapshots as old using shots join known using (name)
where old.log = known.log and old.seq <> shots.seq and %(keep)s <= (shots.seq > old.seq)::int
  + (select count(*) from {s}.snapshots as o where o.log = old.log and o.seq > old.seq and o.seq <> shots.seq)
"""

# Everything a batch of groups may hold, in one statement: it is written as a whole, or fails as a whole. What is taken
# after it was freed takes the old one's place; any other key that is there already is an error.
APPEND = (
    "with " + _MOVED + ", made as (" + _LOGS + "), known as (select * from moved union all select * from made)"  # noqa: S608
    ", shots as (select * from unnest(%(shot_logs)s, %(shot_seqs)s, %(shot_digests)s, %(versions)s, %(shot_ats)s,"
    " %(shots)s) as shot (name, seq, digest, version, at, body))"
    ", tasks as (" + _TASKS + "), put as (" + _SNAPSHOTS + "), rotated as (" + _ROTATE + "), blobs as ("
    "insert into {s}.blobs (hash, data) select * from unnest(%(hashes)s, %(datas)s) on conflict do nothing)"
    ", uses as (insert into {s}.blob_uses (hash, log)"
    " select hash, known.log from unnest(%(use_hashes)s, %(use_logs)s) as new (hash, name) join known using (name)"
    " on conflict do nothing)"
    ", freed as (delete from {s}.effects where key = any(%(frees)s) and key <> all(%(keys)s))"
    ", takes as (select * from unnest(%(keys)s, %(take_logs)s, %(steps)s, %(inputs)s)"
    " as take (key, log, step, input_hash))"
    ", taken as (insert into {s}.effects (key, log, step, input_hash)"
    " select * from takes where key <> all(%(frees)s) order by key)"
    ", retaken as (insert into {s}.effects (key, log, step, input_hash)"
    " select * from takes where key = any(%(frees)s) order by key"
    " on conflict (key) do update set log = excluded.log, step = excluded.step, input_hash = excluded.input_hash)"
    "" + _EVENTS
)  # fmt: skip

# Under a lock: no other writer moves these heads, or removes these logs, until the transaction ends.
LOCK = """
select name, log, seq, digest, base from {s}.logs where name = any(%(names)s) order by log for update
"""
GONE = "select name, seq, digest from {s}.tombstones where name = any(%(names)s)"
OWNERS = "select key, log, step, input_hash from {s}.effects where key = any(%(keys)s)"

# What lies at the places where a write whose fate is unknown would have put its last event.
FOUND = """
select asked.name, asked.seq, events.digest from unnest(%(names)s, %(seqs)s) as asked (name, seq)
join {s}.logs on logs.name = asked.name join {s}.events on events.log = logs.log and events.seq = asked.seq
"""

# Reading

HEAD = "select seq, digest from {s}.logs where name = %(name)s"

# How far many logs have come.
HEADS = "select name, seq from {s}.logs where name = any(%(names)s)"

ORIGIN = """
select parents.name, logs.base from {s}.logs left join {s}.logs as parents on parents.log = logs.parent
where logs.name = %(name)s
"""

READ = """
select seq, kind, at, body, body_hash, digest from {s}.events
where log = (select log from {s}.logs where name = %(name)s) and seq > %(after)s and seq <= %(upto)s
order by seq limit %(limit)s
"""

# Newest first, so that a limit keeps the newest.
READ_LAST = """
select seq, kind, at, body, body_hash, digest from {s}.events
where log = (select log from {s}.logs where name = %(name)s) and seq > %(after)s and seq <= %(upto)s
order by seq desc limit %(limit)s
"""

# Newest first, so that a limit keeps the newest; by the index of cold kinds.
READ_KIND = """
select seq, kind, at, body, body_hash, digest from {s}.events
where log = (select log from {s}.logs where name = %(name)s)
  and kind = %(kind)s and seq > %(after)s and seq <= %(upto)s
  and kind in ('checkpoint_made', 'decision_made', 'message_added', 'rolled_back', 'turn_started')
order by seq desc limit %(limit)s
"""

# Where it begins, how many bodies were erased, the newest snapshot: one round trip.
OPENING = """
select parents.name, logs.base, (select count(*) from {s}.erasures where erasures.log = logs.log),
       newest.seq, newest.digest, newest.version, newest.at, newest.body
from {s}.logs left join {s}.logs as parents on parents.log = logs.parent
left join lateral (
  select seq, digest, version, at, body from {s}.snapshots
  where snapshots.log = logs.log and version = %(version)s and seq <= %(upto)s order by seq desc limit 1
) as newest on true
where logs.name = %(name)s
"""

# The number of erasures, and where the log begins, come with every row, and alone if there is none.
SINCE = """
with erased as (
  select count(*) as number, coalesce((select base from {s}.logs where name = %(name)s), 0) as base from {s}.erasures
  where log in (select log from {s}.logs where name = any(%(names)s))
)
select number, base, seq, kind, at, body, body_hash, digest from erased left join (
  select seq, kind, at, body, body_hash, digest from {s}.events
  where log = (select log from {s}.logs where name = %(name)s) and seq >= %(seq)s and seq <= %(upto)s
  order by seq limit %(limit)s
) as tail on true order by seq
"""

IDENTITY = "select id, key from {s}.identity"

BLOB = "select data from {s}.blobs where hash = %(hash)b"
BLOB_WITHIN = """
select data from {s}.blobs where hash = %(hash)b and exists (
  select from {s}.blob_uses join {s}.logs using (log) where hash = %(hash)b and starts_with(name, %(within)s)
)
"""

BLOBS_OF = """
select hash, data from {s}.blob_uses join {s}.blobs using (hash)
where log = (select log from {s}.logs where name = %(name)s) order by hash
"""

SNAPSHOT = """
select seq, digest, version, at, body from {s}.snapshots
where log = (select log from {s}.logs where name = %(name)s) and version = %(version)s and seq <= %(upto)s
order by seq desc limit 1
"""

DROP_SNAPSHOTS = """
delete from {s}.snapshots
where (%(name)s::text is null or log = (select log from {s}.logs where name = %(name)s))
  and (%(before)s::bigint is null or at < %(before)s)
"""

_TASK = "select " + SELECTED + " from {s}.tasks join {s}.logs using (log)"  # noqa: S608 — constants

TASK = _TASK + "where logs.name = %(name)s"

_MATCHING = """
where namespace = %(namespace)s
  and (%(status)s::text is null or status = %(status)s) and (%(agent)s::text is null or agent = %(agent)s)
  and (%(stage)s::text is null or stage = %(stage)s) and (%(user)s::text is null or "user" = %(user)s)
  and (%(thread)s::text is null or thread = %(thread)s) and (%(queue)s::text is null or queue = %(queue)s)
  and (%(parent)s::text is null or tasks.parent = %(parent)s)
  and (%(waiting)s::text is null or waiting = %(waiting)s)
  and (%(version)s::text is null or tasks.version = %(version)s)
  and (%(in_doubt)s::boolean is null or (doubts is not null) = %(in_doubt)s)
  and (%(prefix)s::text is null or starts_with(logs.name, %(prefix)s))
  and (%(due_us)s::bigint is null or (wake <= %(due_us)s and status = 'waiting'))
  and (%(expired_us)s::bigint is null
    or (expire is not null and status in ('pending', 'waiting') and changed + expire <= %(expired_us)s))
  and (%(changed_since_us)s::bigint is null or changed >= %(changed_since_us)s)
"""

# By the leading filter, what lets PostgreSQL use its index. An optional filter alone would not.
_LEADS: dict[str, LiteralString] = {
    "": "",
    "status": " and status = %(status)s",
    "agent": " and agent = %(agent)s",
    "agent_and_status": " and agent = %(agent)s and status = %(status)s",
    "stage": " and stage = %(stage)s",
    "stage_and_status": " and stage = %(stage)s and status = %(status)s",
    "user": ' and "user" = %(user)s',
    "user_and_status": ' and "user" = %(user)s and status = %(status)s',
    "thread": " and thread = %(thread)s",
    "parent": " and tasks.parent = %(parent)s",
    "queue": " and queue = %(queue)s",
    "waiting": " and waiting = %(waiting)s",
    "in_doubt": " and doubts is not null",
    "prefix": " and logs.name >= %(first)s and logs.name < %(end)s",
    "due_us": " and wake <= %(due_us)s and wake is not null and status = 'waiting'",
    "expired_us": " and expire is not null and status in ('pending', 'waiting')",
    "changed_since_us": " and changed >= %(changed_since_us)s",
}
_ORDERS: dict[str, LiteralString] = {
    "newest": " and log < %(place)s order by log desc limit %(limit)s",
    "oldest": " and log > %(place)s order by log limit %(limit)s",
    "changed": " and (changed, log) < (%(changed)s, %(place)s) order by changed desc, log desc limit %(limit)s",
}

# Tasks by each leading filter in each order.
LISTS: dict[tuple[str, str], LiteralString] = {
    (lead, order): _TASK + _MATCHING + led + ordered
    for lead, led in _LEADS.items()
    for order, ordered in _ORDERS.items()
}

# When a row last changed: where a listing in that order continues.
CHANGED = "select changed from {s}.tasks where log = %(log)s"

# How many tasks of each status a tenant has, or all together: kept by triggers.
COUNTED = """
select status, sum(tasks)::bigint from {s}.task_counts
where %(namespace)s::text is null or namespace = %(namespace)s
group by status having sum(tasks) <> 0 order by status
"""
# The tenants that have tasks. Their names are in the order of their bytes, as on other stores.
NAMESPACES = """
select namespace from {s}.task_counts group by namespace having sum(tasks) <> 0 order by namespace collate "C"
"""
IN_DOUBT = """
select count(*) from {s}.tasks
where doubts is not null and (%(namespace)s::text is null or namespace = %(namespace)s)
"""

# Where the kept counts are not those of the rows.
MISCOUNTED = """
select namespace, status, sum(kept)::bigint, sum(found)::bigint from (
  select namespace, status, tasks as kept, 0 as found from {s}.task_counts
  union all select namespace, status, 0, count(*) from {s}.tasks group by namespace, status
) as counted group by namespace, status having sum(kept) <> sum(found)
"""

# What connections that are gone have counted, added up. Rows that another process is adding up are passed over.
ADD_UP_COUNTS = """
with gone as (
  delete from {s}.task_counts where (namespace, status, slot) in (
    select namespace, status, slot from {s}.task_counts
    where slot <> 0 and slot not in (select pid from pg_stat_activity) for update skip locked
  ) returning namespace, status, tasks
)
insert into {s}.task_counts as kept (namespace, status, slot, tasks)
select namespace, status, 0, sum(tasks) from gone group by namespace, status order by namespace, status
on conflict (namespace, status, slot) do update set tasks = kept.tasks + excluded.tasks
"""

# Rows in the order of the transactions that changed them, up to the oldest one that is under way.
CHANGES = (
    "select " + SELECTED + ", logs.seq, change, log from {s}.tasks join {s}.logs using (log)"  # noqa: S608 — constants
    " where (change, log) > (%(change)s, %(log)s)"
    " and change < pg_snapshot_xmin(pg_current_snapshot())::text::bigint order by change, log limit %(limit)s"
)  # fmt: skip
LAST_CHANGE = "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1"

# A restored dump has numbers of another server: what is in the future here is numbered anew.
RENUMBER_CHANGES = """
update {s}.tasks set change = 0 where change >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""

# Acts, for the audit: exactly the condition of the index.
_IS_ACT = r"""case kind
  when 'step_completed' then position('\x22746f6f6c223a22'::bytea in body) > 0
  when 'step_started' then position('\x22746f6f6c223a22'::bytea in body) > 0
  when 'step_failed' then position('\x22746f6f6c223a22'::bytea in body) > 0
  when 'attempt_failed' then position('\x22746f6f6c223a22'::bytea in body) > 0
  when 'approval_asked' then position('\x22746f6f6c223a22'::bytea in body) > 0
  when 'decision_made' then true
  when 'step_doubted' then true
  when 'step_settled' then true
  when 'approval_given' then true
  when 'approval_refused' then true
  when 'state_patched' then position('\x226279223a22'::bytea in body) > 0
  when 'patch_refused' then position('\x226279223a22'::bytea in body) > 0
  when 'task_created' then position('\x226279223a22'::bytea in body) > 0
  when 'task_forked' then position('\x226279223a22'::bytea in body) > 0
  when 'cancel_requested' then position('\x226279223a22'::bytea in body) > 0
  when 'task_cancelled' then position('\x226279223a22'::bytea in body) > 0
  when 'task_reopened' then position('\x226279223a22'::bytea in body) > 0
  when 'rolled_back' then position('\x226279223a22'::bytea in body) > 0
  when 'task_diverged' then position('\x226279223a22'::bytea in body) > 0
  when 'divergence_accepted' then position('\x226279223a22'::bytea in body) > 0
  when 'budget_raised' then position('\x226279223a22'::bytea in body) > 0
  when 'wait_ended' then position('\x226279223a22'::bytea in body) > 0
  when 'signal_received' then position('\x226279223a22'::bytea in body) > 0
end"""
ACTS = (
    "select name, events.seq, kind, at, body, body_hash, events.digest"  # noqa: S608 — constants
    " from {s}.events join {s}.logs using (log) where " + _IS_ACT + " and at >= %(since)s and at <= %(until)s"
    " and (at, log, events.seq) < (%(at)s, %(log)s, %(seq)s)"
    " order by at desc, log desc, events.seq desc limit %(limit)s"
)  # fmt: skip

# Where a listing continues: also after a log that was removed meanwhile.
PLACE_OF = """
select log from {s}.logs where name = %(name)s
union all select log from {s}.tombstones where name = %(name)s limit 1
"""

LOGS = "select name from {s}.logs where log > %(after)s order by log limit %(limit)s"

# By name, from one to before another.
LOGS_BY_NAME = """
select name from {s}.logs
where name >= %(first)s and name < %(end)s order by name limit %(limit)s
"""

# The last event of each of them.
NEWEST_BY_NAME = """
select name, events.seq, kind, at, body, body_hash, events.digest from {s}.logs
join {s}.events on events.log = logs.log and events.seq = logs.seq
where name >= %(first)s and name < %(end)s order by name limit %(limit)s
"""

FORKS = """
select name from {s}.logs where parent = (select log from {s}.logs where name = %(name)s) order by log
"""

# Ended tasks, newest end first, beyond the first so many, if they ended before a time.
FINISHED = """
select name from (
  select log, changed from {s}.tasks
  where status in ('completed', 'failed', 'cancelled') order by changed desc, log desc offset %(skip)s
) as ended join {s}.logs using (log)
where changed < %(before)s order by changed desc, log desc limit %(limit)s
"""

TAKEN = "select key, log, step, input_hash from {s}.effects where key = %(key)s"
TAKES = "select key, log, step, input_hash from {s}.effects where key > %(after)s order by key limit %(limit)s"
TOMBSTONE = "select name, seq, digest, at, why from {s}.tombstones where name = %(name)s"
TOMBSTONES = """
select name, seq, digest, at, why from {s}.tombstones where name > %(after)s order by name limit %(limit)s
"""

# Erasing and removing

ERASURES = """
select name, erasures.seq, by, why, at from {s}.erasures join {s}.logs using (log)
where name = %(name)s order by erasures.seq
"""
INSERT_ERASURE = """
insert into {s}.erasures (log, seq, by, why, at) values (%(log)s, %(seq)s, %(by)s, %(why)s, %(at)s)
on conflict do nothing
"""
ERASE_BODY = "update {s}.events set body = null where log = %(log)s and seq = %(seq)s and body is not null"
DROP_BLOB_USE = "delete from {s}.blob_uses where log = %(log)s and hash = %(hash)b"

# Blobs are locked before anyone asks who else uses them: a use that is being written holds the same lock.
LOCK_BLOB = "select from {s}.blobs where hash = %(hash)b for update"
LOCK_BLOBS_OF = """
select from {s}.blobs where hash in (select hash from {s}.blob_uses where log = %(log)s) order by hash for update
"""
DROP_UNUSED_BLOB = """
delete from {s}.blobs where hash = %(hash)b and not exists (select from {s}.blob_uses where hash = %(hash)b)
"""

# What is left of a name moves forward: the log that had it grew, and was cut or removed again.
INSERT_TOMBSTONE = """
insert into {s}.tombstones as old (name, log, seq, digest, at, why)
values (%(name)s, %(log)s, %(seq)s, %(digest)b, %(at)s, %(why)s)
on conflict (name) do update set
  log = excluded.log, seq = excluded.seq, digest = excluded.digest, at = excluded.at, why = excluded.why
where excluded.seq > old.seq
"""
UNUSED_BLOBS = """
delete from {s}.blob_uses where log = %(log)s
returning hash, exists (
  select from {s}.blob_uses as other where other.hash = blob_uses.hash and other.log <> %(log)s
)
"""
REMOVE_BLOBS = "delete from {s}.blobs where hash = any(%(hashes)s)"
REMOVE_EVENTS = "delete from {s}.events where log = %(log)s"
REMOVE_SNAPSHOTS = "delete from {s}.snapshots where log = %(log)s"
REMOVE_ERASURES = "delete from {s}.erasures where log = %(log)s"
REMOVE_CHUNKS = "delete from {s}.chunks where log = %(log)s"
REMOVE_TASK = "delete from {s}.tasks where log = %(log)s"
REMOVE_LOG = "delete from {s}.logs where log = %(log)s"

# In this order: what a statement needs is removed after it.
REMOVE = (REMOVE_EVENTS, REMOVE_SNAPSHOTS, REMOVE_ERASURES, REMOVE_CHUNKS, REMOVE_TASK, REMOVE_LOG)

# What goes together with a group, after its events are in. Its logs are locked, and known by name.
_LOG = "(select log from {s}.logs where name = %(name)s)"
ERASE_WITH = (
    "insert into {s}.erasures (log, seq, by, why, at) select " + _LOG + ", %(seq)s, %(by)s, %(why)s, %(at)s"
    " on conflict do nothing"
)
ERASE_BODY_WITH = "update {s}.events set body = null where log = " + _LOG + " and seq = %(seq)s and body is not null"  # noqa: S608
CUT_WITH = (
    "insert into {s}.tombstones as old (name, log, seq, digest, at, why)"
    " select %(name)s, " + _LOG + ", %(seq)s, %(digest)b, %(at)s, %(why)s"
    " on conflict (name) do update set"
    " log = excluded.log, seq = excluded.seq, digest = excluded.digest, at = excluded.at, why = excluded.why"
    " where excluded.seq > old.seq"
)
CUT_EVENTS = "delete from {s}.events where log = " + _LOG + " and seq <= %(seq)s"  # noqa: S608
CUT_ERASURES = "delete from {s}.erasures where log = " + _LOG + " and seq <= %(seq)s"  # noqa: S608
CUT_BASE = "update {s}.logs set base = %(seq)s where name = %(name)s and base < %(seq)s"
RELEASE_BLOB = "delete from {s}.blob_uses where log = " + _LOG + " and hash = %(hash)b"  # noqa: S608

TAKE_IF_FREE = """
insert into {s}.effects (key, log, step, input_hash) values (%(key)s, %(log)s, %(step)s, %(input_hash)s)
on conflict do nothing
"""

# Looking after it

COUNTS = """
select (select count(*) from {s}.events), (select count(*) from {s}.blobs), (select count(*) from {s}.snapshots)
"""

# Tables with their indexes and long values; the parts of a table count as one.
BYTES_BY_TABLE = """
select coalesce(whole.relname, part.relname)::text, sum(pg_total_relation_size(part.oid))::bigint
from pg_class as part
left join pg_inherits on inhrelid = part.oid left join pg_class as whole on whole.oid = inhparent
where part.relnamespace = quote_ident(%(schema)s)::regnamespace and part.relkind = 'r' group by 1 order by 1
"""

# What can be wrong without any event being so: a guard that was switched off, an index that does not hold, a head that
# is not the last event, events that are missing.
CHECK = """
select 'the trigger ' || tgname || ' of ' || relname || ' is switched off'
from pg_trigger join pg_class on pg_class.oid = tgrelid
where relnamespace = quote_ident(%(schema)s)::regnamespace and not tgisinternal and tgenabled not in ('O', 'A')
union all
select 'the index ' || indexrelid::regclass || ' is not valid'
from pg_index join pg_class on pg_class.oid = indexrelid
where relnamespace = quote_ident(%(schema)s)::regnamespace and not indisvalid
union all
select case
    when logs.log is null then 'there are events of log number ' || own.log || ', which is not there'
    when own.log is null or last <> logs.seq then 'the head of ' || name || ' is not its last event'
    else 'events of ' || name || ' are missing'
  end
from {s}.logs full join (
  select log, count(*) as events, min(seq) as first, max(seq) as last from {s}.events group by log
) as own on own.log = logs.log
where logs.log is null or own.log is null or last <> logs.seq or events <> last - first + 1
"""

# Transactions with user code

# Which of our tables the transaction has changed, or is about to: it holds a lock that reading does not need.
TOUCHED = """
select relname::text from pg_locks join pg_class on pg_class.oid = relation
where locktype = 'relation' and pid = pg_backend_pid() and database = (
    select oid from pg_database where datname = current_database()
  )
  and relnamespace = quote_ident(%(schema)s)::regnamespace and mode not in ('AccessShareLock', 'RowShareLock')
order by 1 limit 1
"""

# Which transaction this is, and how many tables and indexes are ours in it.
TRANSACTION = """
select pg_current_xact_id()::text, (
  select count(*) from pg_class where relnamespace = quote_ident(%(schema)s)::regnamespace
)
"""

# Connections

PING = "select 1"

# `local` and below would acknowledge what a fail-over can lose; a setting that asks for more than `on` stays. Our
# statements look the same to the planner whatever their values are, so they are planned once, not every time.
SET = """
select set_config('plan_cache_mode', 'force_generic_plan', %(local)s),
  set_config('lock_timeout', %(lock)s, %(local)s),
  set_config('statement_timeout', %(statement)s, %(local)s),
  set_config('idle_in_transaction_session_timeout', %(idle)s, %(local)s),
  set_config('holdfast.wakeups', %(wakeups)s, %(local)s),
  case
    when %(durability)s = 'process' then set_config('synchronous_commit', 'off', %(local)s)
    when current_setting('synchronous_commit') in ('off', 'local', 'remote_write')
      then set_config('synchronous_commit', 'on', %(local)s)
  end
"""
SET_KEEPALIVES = """
select set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false),
  set_config('tcp_keepalives_count', '3', false)
"""
SET_CLIENT_CHECK = "select set_config('client_connection_check_interval', '10s', false)"  # not on every platform
SET_STATEMENT_LIMIT = "select set_config('statement_timeout', %(limit)s, true)"
SET_FOR_USERS = """
select set_config('idle_in_transaction_session_timeout', %(idle)s, true), set_config('plan_cache_mode', 'auto', true)
"""

# What user code may have left behind on a connection.
TIDY = "unlisten *; select pg_advisory_unlock_all(); discard temp"
TIDY_WITHOUT_LOCKS = "discard temp"

# Being alive

# Say that the lock of a session is taken, and hold it until the session ends; a lock of ours may still be on another.
HOLD = "select pg_try_advisory_lock(%(key)s)"
LET_GO = "select pg_advisory_unlock(%(key)s)"
IS_HELD = """
select exists (
  select from pg_locks where locktype = 'advisory' and granted and objsubid = 1
    and ((classid::bigint << 32) | objid::bigint) = %(key)s
    and database = (select oid from pg_database where datname = current_database())
)
"""

# A session that does nothing is what proves its process alive, so the server must not end it for that.
SET_IDLE = "select set_config('idle_session_timeout', '0', false)"

# A heartbeat: everything others need to know of a worker, written anew each time, so that its row may be removed.
# With it goes when this incarnation of the server was first seen.
_NOTED = """
with noted as (
  insert into {s}.incarnations (started, noted) values (pg_postmaster_start_time(), clock_timestamp())
  on conflict (started) do nothing
)
"""
_ARRIVE = """
insert into {s}.holders (name, serves, beat, machine, process, lease, gone, incarnation)
values (%(name)s, %(serves)s, clock_timestamp(), %(machine)s, %(process)s, %(lease)s, false,
"""
_ARRIVED = """
) on conflict (name) do update set serves = excluded.serves, beat = excluded.beat, machine = excluded.machine,
  process = excluded.process, lease = excluded.lease, gone = false, incarnation = excluded.incarnation
returning array(
  select name from {s}.holders
  where serves <> '' and not gone and beat > clock_timestamp() - make_interval(secs => lease) limit %(most)s
)
"""
ARRIVE = _NOTED + _ARRIVE + "pg_postmaster_start_time()" + _ARRIVED
ARRIVE_BY_LEASE = _ARRIVE + "null" + _ARRIVED

NOTIFY = "select pg_notify(%(channel)s, %(payload)s)"

GOODBYE = "update {s}.holders set gone = true, serves = '' where name = %(name)s"

# Who holds an advisory lock of ours, by the worker's name.
ALIVE = """
alive as materialized (
  select 'pg-' || lpad(to_hex((classid::bigint << 32) | objid::bigint), 16, '0') as name from pg_locks
  where locktype = 'advisory' and granted and objsubid = 1
    and database = (select oid from pg_database where datname = current_database())
)
"""

# Rows of those long gone are removed by the next process.
FORGET_HOLDERS = (
    "with " + ALIVE + "delete from {s}.holders"  # noqa: S608 — constants
    " where beat < clock_timestamp() - interval '1 day' and name not in (select name from alive)"
)
FORGET_SILENT = "delete from {s}.holders where beat < clock_timestamp() - interval '1 day'"
FORGET_INCARNATIONS = """
delete from {s}.incarnations
where noted < clock_timestamp() - interval '1 day' and started <> pg_postmaster_start_time()
"""

# What is known of workers. Ages go by this server's clock, and none begins before the server was first seen: what was
# missed while it was away says nothing. A worker that never wrote its row is not judged by its silence, unless it lives
# by its lease alone.
_HOLDING = """
held as (
  select holder, max(lease_seconds) as lease from {s}.tasks where status = 'running' and holder is not null group by 1
)
"""
_NAMED = "held as (select %(name)s as holder, %(lease)s::double precision as lease)"
_SIGHTED = """
, server as (
  select coalesce(max(noted), clock_timestamp()) as noted
  from {s}.incarnations where started = pg_postmaster_start_time()
)
select holder, alive.name is not null,
  incarnation is not distinct from pg_postmaster_start_time()
    or noted < clock_timestamp() - make_interval(secs => %(grace)s),
  lease > 0 and (beat is not null or by_lease)
    and greatest(beat, noted) < clock_timestamp() - make_interval(secs => lease),
  coalesce(gone, false), coalesce(machine, ''), coalesce(process, ''),
  coalesce((extract(epoch from beat) * 1000000)::bigint, 0)
from (
  select holder, left(holder, 6) = 'lease-' as by_lease, beat, incarnation, gone, machine, process,
    coalesce(held.lease, case when left(holder, 6) = 'lease-' then holders.lease end, 0) as lease
  from held left join {s}.holders on holders.name = holder
) as known cross join server left join alive on alive.name = holder
"""
LOST = "with " + ALIVE + "," + _HOLDING + _SIGHTED
SIGHTED = "with " + ALIVE + "," + _NAMED + _SIGHTED

# The same where locks say nothing: a worker is known by its silence alone.
_HEARD = """
select holder, true, true,
  coalesce(held.lease, holders.lease, 0) > 0 and coalesce(beat, '-infinity')
    < clock_timestamp() - make_interval(secs => coalesce(held.lease, holders.lease, 0)),
  coalesce(gone, false), coalesce(machine, ''), coalesce(process, ''),
  coalesce((extract(epoch from beat) * 1000000)::bigint, 0)
from held left join {s}.holders on holders.name = holder
"""
LOST_BY_LEASE = "with " + _HOLDING + _HEARD
SIGHTED_BY_LEASE = "with " + _NAMED + _HEARD

_ANNOUNCED = """
select name, serves, (extract(epoch from beat) * 1000000)::bigint, machine, process from {s}.holders
where serves <> '' and not gone and (
"""
_HEARD_LATELY = "beat > clock_timestamp() - make_interval(secs => lease)"
ANNOUNCED = (
    "with " + ALIVE + _ANNOUNCED + "name in (select name from alive)"  # noqa: S608 — constants
    " or (left(name, 6) = 'lease-' and " + _HEARD_LATELY + "))"
)
ANNOUNCED_BY_LEASE = _ANNOUNCED + _HEARD_LATELY + ")"

# The schema

LOCK_SCHEMA = "select pg_advisory_xact_lock(hashtextextended('holdfast ' || %(schema)s, 0))"
CREATE_SCHEMA = "create schema if not exists {s}"
USE_SCHEMA = "select set_config('search_path', quote_ident(%(schema)s), true)"
STANDING = """
select to_regclass(quote_ident(%(schema)s) || '.migrations') is not null,
  (select count(*) from pg_class join pg_namespace on pg_namespace.oid = relnamespace
    where nspname = %(schema)s and relname in ('logs', 'events', 'tasks')),
  exists (select from pg_namespace where nspname = %(schema)s)
"""
MIGRATION_TABLE = """
create table if not exists {s}.migrations (
  version  bigint not null primary key,
  name     text   not null,
  checksum text   not null,
  at       bigint not null
)
"""
APPLIED = "select version, checksum from {s}.migrations order by version"
RECORD_MIGRATION = """
insert into {s}.migrations (version, name, checksum, at) values (%(version)s, %(name)s, %(checksum)s, %(at)s)
"""


# Tasks that could be taken: those that were lost first, then by priority and age. One agent and version at a
# time is looked at, so that tasks which this worker does not serve cost nothing.
_OF_QUEUE = """
where namespace = %(namespace)s and queue = %(queue)s
  and (key is null or key <> all(%(full)s)) and (claims > 0 or %(starts)s)
"""


_SEEN = " log, priority, status, holder, wake from {s}.tasks"


_DUE = (
    "(select 0 as place," + _SEEN + _OF_QUEUE  # noqa: S608 — constants
    + "and (agent, version) in (select * from unnest(%(agents)s, %(versions)s))"
    " and status = 'running' and holder = any(%(lost)s) limit %(reach)s)"
    " union all select 1 as place, found.*"
    " from unnest(%(agents)s, %(versions)s) as served (its_agent, its_version), lateral ((select"
    + _SEEN + _OF_QUEUE + "and agent = its_agent and version = its_version and status = 'pending' and wake is null"
    " order by priority desc, log limit %(reach)s) union all (select"
    + _SEEN + _OF_QUEUE + "and agent = its_agent and version = its_version"
    " and wake <= %(now)s and status in ('pending', 'waiting') order by wake limit %(reach)s)) as found"
)  # fmt: skip


# The first so many of those, with the heads of their logs, each locked when it is its turn and no other. A row that
# another holds is passed over, so nothing waits here: an append locks the log first and the task's row after it.
# What was changed since it was seen is looked at again.
_LOCKED = (
    """
select tasks.log, """
    + SELECTED
    + """, logs.seq, logs.digest from {s}.tasks join {s}.logs using (log)
where tasks.log = due.log and tasks.status = due.status
  and tasks.holder is not distinct from due.holder and tasks.wake is not distinct from due.wake
for no key update of logs, tasks skip locked
"""
)


DUE = (
    "with due as (select * from (" + _DUE + ") as due order by place, priority desc, log limit %(reach)s)"  # noqa: S608
    " select place, taken.* from due, lateral (" + _LOCKED + ") as taken limit %(limit)s"
)  # fmt: skip


# Logs that are short: a worker that takes a task needs its log next.
SHORT_LOGS = """
select log, seq, kind, at, body, body_hash, digest from {s}.events where log = any(%(logs)s) order by log, seq
"""


# The commit does not wait for the disk.
LAZY = "set local synchronous_commit to off"


# One worker at a time counts what a queue with limits allows.
LOCK_QUEUE = "select pg_advisory_xact_lock(hashtextextended(%(schema)s || ' ' || %(namespace)s || ' ' || %(queue)s, 7))"


# The same lock for servers whose advisory locks are not to be trusted: a row. One that is new limits nothing.
LOCK_QUEUE_ROW = """
insert into {s}.rates (namespace, queue, tokens, at) values (%(namespace)s, %(queue)s, 'infinity', 0)
on conflict (namespace, queue) do update set at = rates.at
"""


READY_CHANGES = 1_000
"""How many changes one look for tasks that became ready gives at the most."""

# Changes since a transaction that made a task ready, and the oldest transaction that is under way now.
BECAME_READY = """
select array(
  select distinct change from {s}.tasks where change >= %(since)s and status = 'pending'
  order by change desc limit %(limit)s
), pg_snapshot_xmin(pg_current_snapshot())::text::bigint
"""

# What is under way, but for what could be taken over: that is offered first, and would take its own place.
RUNNING_BY_KEY = """
select key, count(*) from {s}.tasks
where status = 'running' and namespace = %(namespace)s and queue = %(queue)s and not (
  coalesce(holder = any(%(lost)s), false) and (agent, version) in (select * from unnest(%(agents)s, %(versions)s))
)
group by key
"""


RATE = "select tokens, at from {s}.rates where namespace = %(namespace)s and queue = %(queue)s"


PUT_RATE = """
insert into {s}.rates (namespace, queue, tokens, at) values (%(namespace)s, %(queue)s, %(tokens)s, %(now)s)
on conflict (namespace, queue) do update set tokens = excluded.tokens, at = greatest(rates.at, excluded.at)
"""


# Reserve the place of a tool's rate that was used longest ago and that no other process is at, by the server's clock.
RESERVE = """
with clock as (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as now), place as (
  select queue from {s}.rates where namespace = %(owner)s and queue <= %(last)s order by at, queue limit 1
  for update skip locked
), taken as (
  update {s}.rates as held set at = greatest(held.at + %(window)s, clock.now) from place, clock
  where held.namespace = %(owner)s and held.queue = place.queue and held.at + %(window)s <= clock.now + %(ahead)s
  returning held.at - clock.now as wait
)
select (select count(*) from place), (select wait from taken)
"""


# The same, when other processes are at all of them: wait for one.
RESERVE_NEXT = """
with place as (
  select queue from {s}.rates where namespace = %(owner)s and queue <= %(last)s order by at, queue limit 1 for update
), clock as (
  select (extract(epoch from clock_timestamp()) * 1000000)::bigint as now from place
), taken as (
  update {s}.rates as held set at = greatest(held.at + %(window)s, clock.now) from place, clock
  where held.namespace = %(owner)s and held.queue = place.queue and held.at + %(window)s <= clock.now + %(ahead)s
  returning held.at - clock.now as wait
)
select (select count(*) from place), (select wait from taken)
"""


FILL_PLACES = """
insert into {s}.rates (namespace, queue, tokens, at) select %(owner)s, name, 0, 0 from unnest(%(names)s) as name
on conflict (namespace, queue) do nothing
"""


NEXT_WAKE = """
select min(wake) from unnest(%(queues)s) as name, lateral (
  select wake from {s}.tasks
  where namespace = %(namespace)s and queue = name and wake > %(after)s and status in ('pending', 'waiting')
  order by wake limit 1
) as next
"""


# One tenant after another, each by a step through the index: so many steps as there are tenants, however many tasks.
_WAKING = """
waking as (
  (select namespace from {s}.tasks where wake is not null and status in ('pending', 'waiting') order by 1 limit 1)
  union all select (
    select namespace from {s}.tasks
    where wake is not null and status in ('pending', 'waiting') and namespace > waking.namespace order by 1 limit 1
  ) from waking where namespace is not null
)
"""


TENANTS = (
    "with recursive" + _WAKING  # noqa: S608 — constants
    + """
, ready as (
  (select namespace from {s}.tasks where status = 'pending' and wake is null order by 1 limit 1)
  union all select (
    select namespace from {s}.tasks
    where status = 'pending' and wake is null and namespace > ready.namespace order by 1 limit 1
  ) from ready where namespace is not null
), held as (
  (select namespace from {s}.tasks where status = 'running' and cardinality(%(lost)s) > 0 order by 1 limit 1)
  union all select (
    select namespace from {s}.tasks where status = 'running' and namespace > held.namespace order by 1 limit 1
  ) from held where namespace is not null
)
select namespace from ready where exists (
  select from unnest(%(queues)s) as name, lateral (
    select from {s}.tasks
    where namespace = ready.namespace and queue = name and status = 'pending' and wake is null order by agent limit 1
  ) as one
) union select namespace from waking where exists (
  select from unnest(%(queues)s) as name, lateral (
    select from {s}.tasks
    where namespace = waking.namespace and queue = name and wake <= %(now)s and status in ('pending', 'waiting')
    order by wake limit 1
  ) as one
) union select namespace from held where exists (
  select from unnest(%(queues)s) as name, lateral (
    select from {s}.tasks
    where namespace = held.namespace and queue = name and holder = any(%(lost)s) and status = 'running'
    order by holder limit 1
  ) as one
) order by 1
"""
)  # fmt: skip


NEXT_WAKE_OF_ALL = (
    "with recursive" + _WAKING  # noqa: S608 — constants
    + """
select min(wake) from waking, unnest(%(queues)s) as name, lateral (
  select wake from {s}.tasks
  where namespace = waking.namespace and queue = name and wake > %(after)s and status in ('pending', 'waiting')
  order by wake limit 1
) as next where waking.namespace is not null
"""
)  # fmt: skip


DEPTHS = """
select namespace, queue, sum(ready)::bigint, sum(running)::bigint, sum(timed)::bigint from (
  select namespace, queue, count(*) as ready, 0 as running, 0 as timed from {s}.tasks
  where status = 'pending' and wake is null group by 1, 2
  union all select namespace, queue, 0, count(*), 0 from {s}.tasks where status = 'running' group by 1, 2
  union all select namespace, queue, 0, 0, count(*) from {s}.tasks
  where wake is not null and status in ('pending', 'waiting') group by 1, 2
) as counted
where %(namespace)s::text is null or namespace = %(namespace)s
group by 1, 2 order by 1, 2
"""


# What waits, for what, and since when. It reads every such row, so it is for metrics, which ask seldom.
WAITS = """
select namespace, queue, case status when 'pending' then 'ready' else coalesce(waiting, '') end, count(*)::bigint,
  min(changed)::bigint
from {s}.tasks
where (status = 'waiting' or (status = 'pending' and wake is null))
  and (%(namespace)s::text is null or namespace = %(namespace)s)
group by 1, 2, 3 order by 1, 2, 3
"""


COUNT_READY = """
select count(*) from (
  select from {s}.tasks
  where namespace = %(namespace)s and queue = %(queue)s and status = 'pending' and wake is null
  order by agent, version, priority desc, log limit %(most)s
) as ready
"""


# Chunks: what steps stream while they run.

# A batch; one of a log that is not there is forgotten.
PUT_CHUNKS = """
insert into {s}.chunks (log, stream, part, step, attempt, after, at, data)
select log, %(stream)s, %(part)s, %(step)s, %(attempt)s, %(after)s, %(at)s, %(data)b from {s}.logs where name = %(name)s
on conflict do nothing
"""

# What other attempts of a step left.
DROP_OTHER_CHUNKS = """
delete from {s}.chunks
where log = (select log from {s}.logs where name = %(name)s) and step = %(step)s and stream <> %(stream)s
"""

# A log's batches, but for those that were seen: `parts` has the last part of each of these streams.
CHUNKS = """
select chunks.stream, chunks.part, step, attempt, after, at, data
from {s}.chunks left join unnest(%(streams)s, %(parts)s) as seen (stream, part) on seen.stream = chunks.stream
where log = (select log from {s}.logs where name = %(name)s) and chunks.part > coalesce(seen.part, 0)
order by after, chunks.stream, chunks.part
"""

DROP_CHUNKS = """
delete from {s}.chunks where log = (select log from {s}.logs where name = %(name)s) and stream = any(%(streams)s)
"""

# Streams whose newest batch is old.
DROP_OLD_CHUNKS = """
delete from {s}.chunks where (log, stream) in (
  select log, stream from {s}.chunks group by log, stream having max(at) < %(before)s
)
"""
