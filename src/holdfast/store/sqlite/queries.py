"""Every query the SQLite store sends, by name. Values travel as parameters, never in the text."""

from holdfast.store.columns import COLUMNS, NAMES, RENEWED, SELECTED

# Appending

# One event after a head that is there with that digest. Without it the seq is null; a taken one is not unique: an error
# either way, and nothing is written. (As an insert from a select, SQLite would first build a table for its one row.)
INSERT_EVENT_AFTER = """
insert into events (log, seq, kind, at, body, body_hash, digest)
values (?1, case (select digest from events where log = ?1 and seq = ?2 - 1) when ?8 then ?2 end, ?3, ?4, ?5, ?6, ?7)
"""

# The same for a log that may have been removed and begun again: its number is looked up by the statement itself. If
# there is no such log, the number is null, which the table refuses.
INSERT_EVENT_AFTER_BY_NAME = """
insert into events (log, seq, kind, at, body, body_hash, digest)
values (
  (select log from logs where name = ?1),
  case (select digest from events where log = (select log from logs where name = ?1) and seq = ?2 - 1)
    when ?8 then ?2
  end,
  ?3, ?4, ?5, ?6, ?7
)
"""

# Events of many logs at once: `places` has [log, seq, kind, at, where the body begins, its length, whether the event
# before it is in here too] for each, `hashes` its body's hash, its digest and the one it follows: 96 bytes in all.
# One statement is one call into SQLite: the interpreter changes threads once for a whole batch, not once for every row.
INSERT_EVENTS_AFTER = """
insert into events (log, seq, kind, at, body, body_hash, digest)
select
  value ->> 0,
  case
    when value ->> 6 then value ->> 1
    when (select digest from events where log = value ->> 0 and seq = (value ->> 1) - 1)
      = substr(:hashes, 96 * key + 65, 32) then value ->> 1
  end,
  value ->> 2, value ->> 3, substr(:bodies, value ->> 4, value ->> 5),
  substr(:hashes, 96 * key + 1, 32), substr(:hashes, 96 * key + 33, 32)
from json_each(:places)
"""

# One event inside a transaction that has checked the head.
INSERT_EVENT = "insert into events (log, seq, kind, at, body, body_hash, digest) values (?, ?, ?, ?, ?, ?, ?)"

# A new log; a fork names its parent and where it begins.
INSERT_LOG = """
insert into logs (name, parent, base)
values (:name, (select log from logs where name = :parent), :base)
"""

# The log of a name, and where one that is gone had ended; no row, which is the quickest answer, if it was never used.
NAME = """
select log, null, null from logs where name = ?1 union all select null, seq, digest from tombstones where name = ?1
"""

LOG_NUMBER = "select log from logs where name = ?"

HEAD = "select seq, digest from events where log = ? order by seq desc limit 1"

BASE = "select base from logs where log = ?"

# A task's row, as its fold now has it, with the head it was written at.
PUT_TASK = (
    "insert into tasks (log, anchor_seq, anchor_digest, " + NAMES + ", change)"  # noqa: S608 — constants
    " values (?, ?, ?, " + "?, " * len(COLUMNS)
    + "1 + max((select coalesce(max(change), 0) from tasks), (select highest from task_feed)))"
    " on conflict (log) do update set anchor_seq = excluded.anchor_seq, anchor_digest = excluded.anchor_digest,"
    " change = excluded.change, " + RENEWED
)  # fmt: skip

PUT_BLOB = "insert into blobs (hash, data) values (?, ?) on conflict do nothing"
USE_BLOB = "insert into blob_uses (hash, log) values (?, ?) on conflict do nothing"

PUT_SNAPSHOT = """
insert into snapshots (log, seq, digest, version, at, body) values (?, ?, ?, ?, ?, ?)
on conflict (log, seq) do update set
  digest = excluded.digest, version = excluded.version, at = excluded.at, body = excluded.body
"""

# Only the newest few stay.
ROTATE_SNAPSHOTS = """
delete from snapshots
where log = :log and seq not in (select seq from snapshots where log = :log order by seq desc limit :keep)
"""

TAKEN = "select key, log, step, input_hash from effects where key = ?"
TAKE = "insert into effects (key, log, step, input_hash) values (?, ?, ?, ?)"
TAKE_IF_FREE = "insert into effects (key, log, step, input_hash) values (?, ?, ?, ?) on conflict do nothing"
FREE = "delete from effects where key = ?"

# Reading

HEAD_BY_NAME = """
select seq, digest from events where log = (select log from logs where name = ?) order by seq desc limit 1
"""

# How far many logs have come.
HEADS = """
select name, (select max(seq) from events where events.log = logs.log) from logs
where name in (select value from json_each(?))
"""

ORIGIN = """
select parents.name, logs.base from logs left join logs as parents on parents.log = logs.parent where logs.name = ?
"""

READ = """
select seq, kind, at, body, body_hash, digest from events
where log = :log and seq > :after and seq <= :upto order by seq limit :limit
"""

# Newest first, so that a limit keeps the newest.
READ_LAST = """
select seq, kind, at, body, body_hash, digest from events
where log = :log and seq > :after and seq <= :upto order by seq desc limit :limit
"""

# Newest first, so that a limit keeps the newest; by the index of cold kinds.
READ_KIND = """
select seq, kind, at, body, body_hash, digest from events indexed by events_cold
where log = :log and kind = :kind and seq > :after and seq <= :upto
  and kind in ('checkpoint_made', 'decision_made', 'message_added', 'rolled_back', 'turn_started')
order by seq desc limit :limit
"""

ERASED = "select count(*) from erasures where log = (select log from logs where name = ?)"

# The same of a log, and where it begins.
ERASED_AND_BASE = """
select (select count(*) from erasures where erasures.log = logs.log), base from logs where name = ?
"""

IDENTITY = "select id, key from identity"

BLOB = "select data from blobs where hash = :hash"
BLOB_WITHIN = """
select data from blobs where hash = :hash and exists (
  select 1 from blob_uses cross join logs using (log)
  where hash = :hash and substr(name, 1, length(:within)) = :within
)
"""

BLOBS_OF = """
select hash, data from blob_uses join blobs using (hash)
where log = (select log from logs where name = ?) order by hash
"""

SNAPSHOT = """
select seq, digest, version, at, body from snapshots
where log = (select log from logs where name = :name) and version = :version and seq <= :upto
order by seq desc limit 1
"""

DROP_SNAPSHOTS = """
delete from snapshots
where (:name is null or log = (select log from logs where name = :name)) and (:before is null or at < :before)
"""

_TASK = "select " + SELECTED + " "

TASK = _TASK + "from tasks join logs using (log) where logs.name = ?"

_MATCHING = """
where namespace = :namespace
  and (:status is null or status = :status) and (:agent is null or agent = :agent)
  and (:stage is null or stage = :stage) and (:user is null or user = :user)
  and (:thread is null or thread = :thread) and (:queue is null or queue = :queue)
  and (:parent is null or tasks.parent = :parent) and (:waiting is null or waiting = :waiting)
  and (:version is null or tasks.version = :version)
  and (:in_doubt is null or (doubts is not null) = :in_doubt)
  and (:prefix is null or substr(logs.name, 1, length(:prefix)) = :prefix)
  and (:due_us is null or (wake is not null and wake <= :due_us and status = 'waiting'))
  and (:expired_us is null
    or (expire is not null and status in ('pending', 'waiting') and changed + expire <= :expired_us))
  and (:changed_since_us is null or changed >= :changed_since_us)
"""

# By the leading filter: the index to go by, and what lets SQLite use it. An optional filter alone would not.
_LEADS = {
    "": ("tasks_by_namespace", ""),
    "status": ("tasks_by_status", "and status = :status"),
    "agent": ("tasks_by_agent", "and agent = :agent"),
    "agent_and_status": ("tasks_by_agent_and_status", "and agent = :agent and status = :status"),
    "stage": ("tasks_by_stage", "and stage = :stage"),
    "stage_and_status": ("tasks_by_stage_and_status", "and stage = :stage and status = :status"),
    "user": ("tasks_by_user", "and user = :user"),
    "user_and_status": ("tasks_by_user_and_status", "and user = :user and status = :status"),
    "thread": ("tasks_by_thread", "and thread = :thread"),
    "parent": ("tasks_by_parent", "and tasks.parent = :parent"),
    "queue": ("tasks_by_queue", "and queue = :queue"),
    "waiting": ("tasks_by_wait", "and waiting = :waiting"),
    "in_doubt": ("tasks_in_doubt", "and doubts is not null"),
    "due_us": ("tasks_due", "and wake is not null and wake <= :due_us and status = 'waiting'"),
    "expired_us": ("tasks_expiring", "and expire is not null and status in ('pending', 'waiting')"),
    "changed_since_us": ("tasks_by_changed", "and changed >= :changed_since_us"),
}
_ORDERS = {
    "newest": " and tasks.log < :place order by tasks.log desc limit :limit",
    "oldest": " and tasks.log > :place order by tasks.log limit :limit",
    "changed": " and (changed, tasks.log) < (:changed, :place) order by changed desc, tasks.log desc limit :limit",
}
_FROM_NAMES = " from logs indexed by sqlite_autoindex_logs_1 cross join tasks using (log)"
_BY_NAME = " and logs.name >= :first and logs.name < :end"

# Tasks by each leading filter in each order. Those that begin with a prefix are found by name, and put in order.
LISTS = {
    **{
        (lead, order): _TASK + "from tasks indexed by " + index + " join logs using (log)" + _MATCHING + led + ordered
        for lead, (index, led) in _LEADS.items()
        for order, ordered in _ORDERS.items()
    },
    **{("prefix", order): _TASK + _FROM_NAMES + _MATCHING + _BY_NAME + ordered for order, ordered in _ORDERS.items()},
    ("", "changed"): (
        _TASK + "from tasks indexed by tasks_by_changed join logs using (log)" + _MATCHING + _ORDERS["changed"]
    ),
}

# When a row last changed: where a listing in that order continues.
CHANGED = "select changed from tasks where log = ?"

# How many tasks of each status a tenant has, or all together: kept by triggers.
COUNTED = """
select status, sum(tasks) from task_counts where :namespace is null or namespace = :namespace
group by status having sum(tasks) <> 0 order by status
"""
# The tenants that have tasks.
NAMESPACES = "select namespace from task_counts group by namespace having sum(tasks) <> 0 order by namespace"

IN_DOUBT = """
select count(*) from tasks indexed by tasks_in_doubt
where doubts is not null and (:namespace is null or namespace = :namespace)
"""

# Where the kept counts are not those of the rows.
MISCOUNTED = """
select namespace, status, sum(kept), sum(found) from (
  select namespace, status, tasks as kept, 0 as found from task_counts
  union all select namespace, status, 0, count(*) from tasks group by namespace, status
) group by namespace, status having sum(kept) <> sum(found)
"""

# Rows in the order in which they changed.
CHANGES = (
    _TASK + ", (select max(seq) from events where events.log = tasks.log), change, tasks.log"  # noqa: S608
    " from tasks indexed by tasks_by_change join logs using (log)"
    " where (change, tasks.log) > (:change, :log) order by change, tasks.log limit :limit"
)  # fmt: skip
LAST_CHANGE = "select max((select coalesce(max(change), 0) from tasks), (select highest from task_feed))"

# Acts, for the audit: exactly the condition of the index.
_IS_ACT = """case kind
  when 'step_completed' then instr(body, x'22746f6f6c223a22') > 0
  when 'step_started' then instr(body, x'22746f6f6c223a22') > 0
  when 'step_failed' then instr(body, x'22746f6f6c223a22') > 0
  when 'attempt_failed' then instr(body, x'22746f6f6c223a22') > 0
  when 'approval_asked' then instr(body, x'22746f6f6c223a22') > 0
  when 'decision_made' then 1
  when 'step_doubted' then 1
  when 'step_settled' then 1
  when 'approval_given' then 1
  when 'approval_refused' then 1
  when 'state_patched' then instr(body, x'226279223a22') > 0
  when 'patch_refused' then instr(body, x'226279223a22') > 0
  when 'task_created' then instr(body, x'226279223a22') > 0
  when 'task_forked' then instr(body, x'226279223a22') > 0
  when 'cancel_requested' then instr(body, x'226279223a22') > 0
  when 'task_cancelled' then instr(body, x'226279223a22') > 0
  when 'task_reopened' then instr(body, x'226279223a22') > 0
  when 'rolled_back' then instr(body, x'226279223a22') > 0
  when 'task_diverged' then instr(body, x'226279223a22') > 0
  when 'divergence_accepted' then instr(body, x'226279223a22') > 0
  when 'budget_raised' then instr(body, x'226279223a22') > 0
  when 'wait_ended' then instr(body, x'226279223a22') > 0
  when 'signal_received' then instr(body, x'226279223a22') > 0
end"""
ACTS = (
    "select name, seq, kind, at, body, body_hash, digest from events indexed by events_acts join logs using (log)"  # noqa: S608
    " where " + _IS_ACT + " and at >= :since and at <= :until and (at, events.log, seq) < (:at, :log, :seq)"
    " order by at desc, events.log desc, seq desc limit :limit"
)  # fmt: skip

# Where a listing continues: also after a log that was removed meanwhile.
PLACE_OF = """
select log from logs where name = :name union all select log from tombstones where name = :name limit 1
"""

LOGS = """
select name from logs
where log > :after order by log limit :limit
"""

# By name, from one to before another.
LOGS_BY_NAME = """
select name from logs
where name >= :first and name < :end order by name limit :limit
"""

# The last event of each of them.
NEWEST_BY_NAME = """
select name, seq, kind, at, body, body_hash, digest from logs
join events on events.log = logs.log and seq = (select max(seq) from events as last where last.log = logs.log)
where name >= :first and name < :end order by name limit :limit
"""

FORKS = "select name from logs where parent = (select log from logs where name = ?) order by log"

# Ended tasks, newest end first, beyond the first so many, if they ended before a time.
FINISHED = """
select name from (
  select log, changed from tasks indexed by tasks_ended
  where status in ('completed', 'failed', 'cancelled') order by changed desc, log desc limit -1 offset :skip
) join logs using (log)
where changed < :before order by changed desc, log desc limit :limit
"""

TAKES = "select key, log, step, input_hash from effects where key > :after order by key limit :limit"
TOMBSTONE = "select name, seq, digest, at, why from tombstones where name = ?"
TOMBSTONES = "select name, seq, digest, at, why from tombstones where name > :after order by name limit :limit"

# Queues

_DUE = "select tasks.log, " + SELECTED + " from tasks indexed by "  # noqa: S608 — constants
_OF_QUEUE = """ join logs using (log)
where namespace = :namespace and queue = :queue
  and (key is null or key not in (select value from json_each(:full))) and (claims > 0 or :starts)
"""
# One agent and version at a time: those that this worker does not serve are never read.
_OF_AGENT = _OF_QUEUE + "and agent = :agent and version = :version "
DUE_READY = (
    _DUE + "tasks_ready" + _OF_AGENT
    + "and status = 'pending' and wake is null order by priority desc, tasks.log limit :limit"
)  # fmt: skip
DUE_WOKEN = (
    _DUE + "tasks_woken" + _OF_AGENT
    + "and wake is not null and wake <= :now and status in ('pending', 'waiting') order by wake limit :limit"
)  # fmt: skip
DUE_LOST = (
    _DUE + "tasks_held" + _OF_AGENT  # noqa: S608
    + "and status = 'running' and holder in (select value from json_each(:lost)) limit :limit"
)  # fmt: skip
# What is under way, but for what could be taken over: that is offered first, and would take its own place.
RUNNING_BY_KEY = """
select key, count(*) from tasks indexed by tasks_held
where status = 'running' and namespace = :namespace and queue = :queue and not (
  coalesce(holder in (select value from json_each(:lost)), 0)
  and (agent, version) in (select value ->> 0, value ->> 1 from json_each(:served))
)
group by key
"""
HOLDING = "select distinct holder from tasks indexed by tasks_held where status = 'running' and holder is not null"
NEXT_WAKE = """
select min(wake) from tasks indexed by tasks_waking
where namespace = :namespace and queue = :queue and wake > :after and status in ('pending', 'waiting')
"""
# One tenant after another, each by a step through the index: so many steps as there are tenants, however many tasks.
_TENANTS = """
ready(tenant) as (
  select min(namespace) from tasks indexed by tasks_ready where status = 'pending' and wake is null
  union all
  select (
    select min(namespace) from tasks indexed by tasks_ready
    where status = 'pending' and wake is null and namespace > tenant
  ) from ready where tenant is not null
), waking(tenant) as (
  select min(namespace) from tasks indexed by tasks_waking
  where wake is not null and status in ('pending', 'waiting')
  union all
  select (
    select min(namespace) from tasks indexed by tasks_waking
    where wake is not null and status in ('pending', 'waiting') and namespace > tenant
  ) from waking where tenant is not null
), held(tenant) as (
  select min(namespace) from tasks indexed by tasks_held where status = 'running' and :lost <> '[]'
  union all
  select (
    select min(namespace) from tasks indexed by tasks_held where status = 'running' and namespace > tenant
  ) from held where tenant is not null
)
"""
TENANTS = (
    "with recursive" + _TENANTS  # noqa: S608 — constants
    + """
select tenant from ready where exists (
  select 1 from json_each(:queues) cross join tasks indexed by tasks_ready
  on namespace = tenant and queue = json_each.value and status = 'pending' and wake is null
) union select tenant from waking where exists (
  select 1 from json_each(:queues) cross join tasks indexed by tasks_waking
  on namespace = tenant and queue = json_each.value and wake <= :now and status in ('pending', 'waiting')
) union select tenant from held where exists (
  select 1 from json_each(:queues) cross join json_each(:lost) as gone cross join tasks indexed by tasks_held
  on namespace = tenant and queue = json_each.value and holder = gone.value and status = 'running'
) order by 1
"""
)  # fmt: skip
NEXT_WAKE_OF_ALL = (
    "with recursive" + _TENANTS  # noqa: S608 — constants
    + """
select min((
  select min(wake) from tasks indexed by tasks_waking
  where namespace = tenant and queue = json_each.value and wake > :after and status in ('pending', 'waiting')
)) from waking cross join json_each(:queues) where tenant is not null
"""
)  # fmt: skip
DEPTHS = """
select namespace, queue, sum(ready), sum(running), sum(timed) from (
  select namespace, queue, count(*) as ready, 0 as running, 0 as timed from tasks indexed by tasks_ready
  where status = 'pending' and wake is null group by namespace, queue
  union all
  select namespace, queue, 0, count(*), 0 from tasks indexed by tasks_held
  where status = 'running' group by namespace, queue
  union all
  select namespace, queue, 0, 0, count(*) from tasks indexed by tasks_waking
  where wake is not null and status in ('pending', 'waiting') group by namespace, queue
)
where :namespace is null or namespace = :namespace
group by namespace, queue order by namespace, queue
"""
# What waits, for what, and since when. It reads every such row, so it is for metrics, which ask seldom.
WAITS = """
select namespace, queue, case status when 'pending' then 'ready' else coalesce(waiting, '') end, count(*), min(changed)
from tasks
where (status = 'waiting' or (status = 'pending' and wake is null)) and (:namespace is null or namespace = :namespace)
group by 1, 2, 3 order by 1, 2, 3
"""
COUNT_READY = """
select count(*) from (
  select 1 from tasks indexed by tasks_ready
  where namespace = :namespace and queue = :queue and status = 'pending' and wake is null limit :most
)
"""
RATE = "select tokens, at from rates where namespace = :namespace and queue = :queue"
PUT_RATE = """
insert into rates (namespace, queue, tokens, at) values (:namespace, :queue, :tokens, :now)
on conflict (namespace, queue) do update set tokens = excluded.tokens, at = max(at, excluded.at)
"""
RESERVE = """
update rates set at = max(at + :window, :now) where namespace = :owner and queue = (
  select queue from rates where namespace = :owner and queue <= :last order by at, queue limit 1
) and at + :window <= :now + :ahead
returning at
"""
COUNT_PLACES = "select count(*) from rates where namespace = :owner and queue <= :last"
FILL_PLACES = """
insert into rates (namespace, queue, tokens, at) select :owner, value, 0, 0 from json_each(:names) where true
on conflict (namespace, queue) do nothing
"""
ANNOUNCE = """
insert into holders (name, serves, beat) values (:name, :serves, :beat)
on conflict (name) do update set serves = excluded.serves, beat = excluded.beat
"""
ANNOUNCED = "select name, serves, beat from holders where serves <> ''"
FORGET_HOLDERS = "delete from holders where name in (select value from json_each(?))"
DATA_VERSION = "pragma data_version"

# Erasing and removing

ERASURES = """
select name, seq, by, why, at from erasures join logs using (log) where name = ? order by seq
"""
INSERT_ERASURE = (
    "insert into erasures (log, seq, by, why, at) values (:log, :seq, :by, :why, :at) on conflict do nothing"
)
ERASE_BODY = "update events set body = null where log = :log and seq = :seq and body is not null"

# What only an erased event referred to goes with it.
DROP_BLOB_USE = "delete from blob_uses where log = :log and hash = :hash"
DROP_UNUSED_BLOB = "delete from blobs where hash = :hash and not exists (select 1 from blob_uses where hash = :hash)"

# What is left of a name moves forward: the log that had it grew, and was cut or removed again.
INSERT_TOMBSTONE = """
insert into tombstones (name, log, seq, digest, at, why) values (?, ?, ?, ?, ?, ?)
on conflict (name) do update set
  log = excluded.log, seq = excluded.seq, digest = excluded.digest, at = excluded.at, why = excluded.why
where excluded.seq > tombstones.seq
"""
REMOVE_EVENTS = "delete from events where log = :log"
REMOVE_BLOBS = """
delete from blobs where hash in (
  select hash from blob_uses where log = :log
  except select hash from blob_uses where log <> :log
    and hash in (select hash from blob_uses where log = :log)
)
"""
REMOVE_BLOB_USES = "delete from blob_uses where log = :log"
REMOVE_SNAPSHOTS = "delete from snapshots where log = :log"
REMOVE_ERASURES = "delete from erasures where log = :log"
REMOVE_CHUNKS = "delete from chunks where log = :log"
REMOVE_TASK = "delete from tasks where log = :log"
REMOVE_LOG = "delete from logs where log = :log"

# In this order: what a statement needs is removed after it.
REMOVE = (
    *(REMOVE_EVENTS, REMOVE_BLOBS, REMOVE_BLOB_USES, REMOVE_SNAPSHOTS, REMOVE_ERASURES),
    *(REMOVE_CHUNKS, REMOVE_TASK, REMOVE_LOG),
)

# The beginning of a log, as far as its tombstone says: events, who erased them, and where the rest begins.
CUT_EVENTS = "delete from events where log = :log and seq <= :seq"
CUT_ERASURES = "delete from erasures where log = :log and seq <= :seq"
CUT_BASE = "update logs set base = :seq where log = :log and base < :seq"

CUT = (CUT_EVENTS, CUT_ERASURES, CUT_BASE)

# Looking after it

# The tables of a schema, without SQLite's own.
TABLES = "select lower(name) from sqlite_master where type = 'table' and name not like 'sqlite!_%' escape '!'"

# The highest number a log ever had: no number is given twice.
HIGHEST_NUMBER = "select seq from sqlite_sequence where name = 'logs'"

ROWIDS = "select rowid, seq from events where log = ? order by seq"
ROW = """
select log, seq, cast(kind as blob), at, body, body_hash, digest, typeof(kind) from events where rowid = ?
"""
ANCHOR = "select anchor_seq, anchor_digest from tasks join logs using (log) where name = ?"
INTEGRITY_CHECK = "select * from pragma_integrity_check"
COUNTS = {
    "events": "select count(*) from events",
    "blobs": "select count(*) from blobs",
    "snapshots": "select count(*) from snapshots",
}

# Pages of a table and its indexes.
BYTES_BY_TABLE = """
select tbl_name, sum(pgsize) from dbstat join sqlite_master on sqlite_master.name = dbstat.name
group by tbl_name order by tbl_name
"""

COPY_TO = "vacuum into ?"

# Chunks: what steps stream while they run.

# A batch; one of a log that is not there is forgotten.
PUT_CHUNKS = """
insert into chunks (log, stream, part, step, attempt, after, at, data)
select log, :stream, :part, :step, :attempt, :after, :at_us, :data from logs where name = :log
on conflict do nothing
"""

# What other attempts of a step left.
DROP_OTHER_CHUNKS = """
delete from chunks where log = (select log from logs where name = :log) and step = :step and stream <> :stream
"""

# A log's batches, but for those that were seen: `seen` has the last part of each stream.
CHUNKS = """
select chunks.stream, part, step, attempt, after, at, data
from chunks left join json_each(:seen) as seen on seen.key = chunks.stream
where log = (select log from logs where name = :log) and part > coalesce(seen.value, 0)
order by after, chunks.stream, part
"""

DROP_CHUNKS = """
delete from chunks where log = (select log from logs where name = :log)
  and stream in (select value from json_each(:streams))
"""

# Streams whose newest batch is old.
DROP_OLD_CHUNKS = """
delete from chunks where (log, stream) in (select log, stream from chunks group by log, stream having max(at) < :before)
"""
