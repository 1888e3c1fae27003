"""The queries of queues on PostgreSQL, by name. Values travel as parameters; `{s}` is the schema."""

from __future__ import annotations

from holdfast.store.postgres.queries import ALIVE, COLUMNS

# Taking

# Tasks that could be taken: those that were lost first, then by priority and age. One agent and version at a
# time is looked at, so that what nobody here serves costs nothing.
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

# The first so many of those, with the heads of their logs, each locked when it is its turn and no other. What somebody
# else is at is passed over, so nobody waits here: whoever appends locks the log first and the task's row after it.
# What was changed since it was seen is looked at again.
_LOCKED = (
    """
select tasks.log, """
    + COLUMNS
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

# Logs that are short: whoever takes a task needs its log next.
SHORT_LOGS = """
select log, seq, kind, at, body, body_hash, digest from {s}.events where log = any(%(logs)s) order by log, seq
"""

# The commit does not wait for the disk.
LAZY = "set local synchronous_commit to off"

# One worker at a time counts what a queue with limits allows.
LOCK_QUEUE = "select pg_advisory_xact_lock(hashtextextended(%(schema)s || ' ' || %(namespace)s || ' ' || %(queue)s, 7))"

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

# Looking

# Holders of running tasks that are gone, or silent for longer than their lease.
_LOST = """
select holder, case when alive.name is null then 'dead' else 'lease' end
from (
  select holder, max(lease_seconds) as lease from {s}.tasks where status = 'running' and holder is not null group by 1
) as held
left join alive on alive.name = holder left join {s}.holders on holders.name = holder
where alive.name is null or (lease > 0 and beat < clock_timestamp() - make_interval(secs => lease))
"""
LOST = "with " + ALIVE + _LOST
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
COUNT_READY = """
select count(*) from (
  select from {s}.tasks
  where namespace = %(namespace)s and queue = %(queue)s and status = 'pending' and wake is null
  order by agent, version, priority desc, log limit %(most)s
) as ready
"""
_ANNOUNCED = """
select name, serves, (extract(epoch from beat) * 1000000)::bigint from {s}.holders join alive using (name)
where serves <> ''
"""
ANNOUNCED = "with " + ALIVE + _ANNOUNCED
