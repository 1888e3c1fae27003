-- What people look at, by index and kept: lists by more columns, counts, a feed of changes, the audit.
--
-- `doubts` names the calls of a task that are in doubt, as a JSON array; null if there are none. Rows of tasks that were
-- there before are filled in from their own events: a call that was doubted and has no outcome since. A fork's inherited
-- ones are added with its next change.
--
-- `change` is the number of the transaction that last changed a row. Transactions do not end in the order of their
-- numbers: so a reader goes only as far as the oldest one that is under way, and then misses nothing. A restored dump
-- brings numbers of another server: those that are in the future here are set to 0 when a store is opened.
--
-- `task_counts` is how many tasks of each status a tenant has, in parts: each connection counts in rows of its own, so
-- that no commit waits for another's. What connections that are gone have counted is added up in slot 0. Triggers keep
-- it, in the transaction that writes the row, whichever version writes it; `verify` compares it with the rows.
--
-- `events_acts` finds what people did, what was decided and calls of tools, newest first. A plain step is not in it.

alter table tasks add column doubts text collate "C";
alter table tasks add column change bigint not null default 0;

create index tasks_by_thread  on tasks (namespace, thread, log) where thread is not null;
create index tasks_by_parent  on tasks (namespace, parent, log) where parent is not null;
create index tasks_by_queue   on tasks (namespace, queue, log);
create index tasks_by_wait    on tasks (namespace, waiting, log) where waiting is not null;
create index tasks_in_doubt   on tasks (namespace, log) where doubts is not null;
create index tasks_due        on tasks (namespace, wake, log) where wake is not null and status = 'waiting';
create index tasks_by_changed on tasks (namespace, changed, log);
create index tasks_by_change  on tasks (change, log);

create table task_counts (
  namespace text collate "C" not null,
  status    text collate "C" not null,
  slot      bigint not null,
  tasks     bigint not null,
  primary key (namespace, status, slot)
);

insert into task_counts (namespace, status, slot, tasks) select namespace, status, 0, count(*) from tasks group by 1, 2;

create function number_change() returns trigger language plpgsql as $$
begin
  new.change := pg_current_xact_id()::text::bigint;
  return new;
end $$;

create trigger changes_are_numbered before insert or update on tasks
for each row execute function number_change();

create function count_task() returns trigger language plpgsql set search_path from current as $$
begin
  if tg_op <> 'INSERT' then
    insert into task_counts as kept (namespace, status, slot, tasks)
    values (old.namespace, old.status, pg_backend_pid(), -1)
    on conflict (namespace, status, slot) do update set tasks = kept.tasks - 1;
  end if;
  if tg_op <> 'DELETE' then
    insert into task_counts as kept (namespace, status, slot, tasks)
    values (new.namespace, new.status, pg_backend_pid(), 1)
    on conflict (namespace, status, slot) do update set tasks = kept.tasks + 1;
  end if;
  return null;
end $$;

create trigger tasks_are_counted after insert or delete on tasks
for each row execute function count_task();

create trigger tasks_are_counted_again after update on tasks
for each row when (new.status <> old.status or new.namespace <> old.namespace) execute function count_task();

create index events_acts on events (at, log, seq) where case kind
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
end;

-- A failed call that may have happened is in doubt again once its task is reopened. From the next turn on, a call is
-- named with the turn that it was made in. Bodies are read as JSON only where the kind says that they are small.
with said as materialized (
  select log, seq, kind, convert_from(body, 'utf8')::json as body from events
  where body is not null and kind in (
    'step_doubted', 'task_reopened', 'step_failed', 'attempt_failed', 'step_settled', 'step_completed', 'step_started',
    'step_voided', 'turn_started'
  ) and log in (
    select log from events join tasks using (log)
    where kind in ('step_doubted', 'task_reopened') and status not in ('completed', 'failed', 'cancelled')
  )
), doubted as (
  select log, seq, body ->> 'key' as key from said where kind = 'step_doubted'
  union all
  select said.log, said.seq, said.body ->> 'void' from said join said as failed
    on failed.log = said.log and failed.seq < said.seq and failed.kind = 'step_failed'
    and failed.body ->> 'key' = said.body ->> 'void'
  where said.kind = 'task_reopened' and failed.body ->> 'effect' = 'once'
    and coalesce((failed.body ->> 'attempts')::bigint, 1) > 0 and not coalesce((failed.body ->> 'safe')::boolean, false)
), open as (
  select * from doubted where not exists (
    select from said where said.log = doubted.log and said.seq > doubted.seq
      and kind in ('step_settled', 'step_completed', 'step_failed', 'attempt_failed', 'step_started', 'step_voided')
      and (body ->> 'key' = doubted.key or ltrim(body ->> 'key', '0123456789') = '/' || doubted.key)
  ) and not exists (
    select from events where events.log = doubted.log and events.seq > doubted.seq and kind = 'rolled_back'
  )
), addressed as (
  select log, seq, case
    when key ~ '^[0-9]+/' or not exists (
      select from said where said.log = open.log and kind = 'turn_started' and said.seq > open.seq
    ) then key
    else coalesce((
      select body ->> 'turn' from said
      where said.log = open.log and kind = 'turn_started' and said.seq < open.seq order by said.seq desc limit 1
    ), '0') || '/' || key
  end as key from open
)
update tasks set doubts = named.keys
from (
  select log, json_agg(key order by seq)::text as keys
  from (select log, key, min(seq) as seq from addressed group by log, key) as once group by log
) as named where tasks.log = named.log;
