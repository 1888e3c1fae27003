-- What people look at, by index and kept: lists by more columns, counts, a feed of changes, the audit.
--
-- `doubts` names the calls of a task that are in doubt, as a JSON array; null if there are none. Rows of tasks that were
-- there before are filled in from their own events: a call that was doubted and has no outcome since. A fork's inherited
-- ones are added with its next change.
--
-- `change` numbers the changes of rows in the order in which they were committed: one process writes at a time, so a
-- reader that has seen a number has seen all before it. `task_feed` remembers the highest number of a row that was removed:
-- no number is given twice. A process of an earlier version that still has the file open gives no numbers.
--
-- `task_counts` is how many tasks of each status a tenant has. Triggers keep it, in the transaction that writes the row,
-- whichever version writes it; `verify` compares it with the rows.
--
-- `events_acts` finds what people did, what was decided and calls of tools, newest first. A plain step is not in it. Its
-- condition is a `case`, because SQLite builds a table for every list of names, each time it inserts an event.

alter table tasks add column doubts text;
alter table tasks add column change integer not null default 0;

create index tasks_by_thread  on tasks (namespace, thread, log) where thread is not null;
create index tasks_by_parent  on tasks (namespace, parent, log) where parent is not null;
create index tasks_by_queue   on tasks (namespace, queue, log);
create index tasks_by_wait    on tasks (namespace, waiting, log) where waiting is not null;
create index tasks_in_doubt   on tasks (namespace, log) where doubts is not null;
create index tasks_due        on tasks (namespace, wake, log) where wake is not null and status = 'waiting';
create index tasks_by_changed on tasks (namespace, changed, log);
create index tasks_by_change  on tasks (change, log);

create table task_feed (
  one     integer not null primary key check (one = 1),
  highest integer not null
) strict;

insert into task_feed (one, highest) values (1, 0);

create table task_counts (
  namespace text    not null,
  status    text    not null,
  tasks     integer not null,
  primary key (namespace, status)
) strict, without rowid;

insert into task_counts (namespace, status, tasks) select namespace, status, count(*) from tasks group by 1, 2;

create trigger tasks_are_counted after insert on tasks
begin
  insert into task_counts (namespace, status, tasks) values (new.namespace, new.status, 1)
  on conflict (namespace, status) do update set tasks = tasks + 1;
end;

create trigger tasks_are_counted_again after update of status, namespace on tasks
when new.status <> old.status or new.namespace <> old.namespace
begin
  insert into task_counts (namespace, status, tasks)
  values (old.namespace, old.status, -1), (new.namespace, new.status, 1)
  on conflict (namespace, status) do update set tasks = tasks + excluded.tasks;
end;

create trigger tasks_are_counted_no_more after delete on tasks
begin
  update task_counts set tasks = tasks - 1 where namespace = old.namespace and status = old.status;
  update task_feed set highest = max(highest, old.change);
end;

create index events_acts on events (at, log, seq) where case kind
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
end;

-- A failed call that may have happened is in doubt again once its task is reopened. From the next turn on, a call is
-- named with the turn that it was made in.
with doubted (log, seq, key) as (
  select log, seq, cast(body as text) ->> 'key' from events where kind = 'step_doubted' and body is not null
  union all
  select events.log, events.seq, cast(events.body as text) ->> 'void' from events join events as failed
    on failed.log = events.log and failed.seq < events.seq and failed.kind = 'step_failed'
    and cast(failed.body as text) ->> 'key' = cast(events.body as text) ->> 'void'
  where events.kind = 'task_reopened'
    and cast(failed.body as text) ->> 'effect' = 'once' and coalesce(cast(failed.body as text) ->> 'attempts', 1) > 0
    and not coalesce(cast(failed.body as text) ->> 'safe', 0)
), open (log, seq, key) as (
  select log, seq, doubted.key from doubted join tasks using (log)
  where status not in ('completed', 'failed', 'cancelled') and not exists (
    select 1 from events where events.log = doubted.log and events.seq > doubted.seq
      and kind in ('step_settled', 'step_completed', 'step_failed', 'attempt_failed', 'step_started', 'step_voided', 'rolled_back')
      and (
        kind = 'rolled_back' or cast(body as text) ->> 'key' = doubted.key
        or ltrim(cast(body as text) ->> 'key', '0123456789') = '/' || doubted.key
      )
  )
), addressed (log, seq, key) as (
  select log, seq, case
    when key glob '[0-9]*/*' or not exists (
      select 1 from events where events.log = open.log and kind = 'turn_started' and events.seq > open.seq
    ) then key
    else coalesce((
      select cast(body as text) ->> 'turn' from events
      where events.log = open.log and kind = 'turn_started' and events.seq < open.seq order by events.seq desc limit 1
    ), 0) || '/' || key
  end from open
)
update tasks set doubts = (
  select json_group_array(key order by seq) from (
    select key, min(seq) as seq from addressed where addressed.log = tasks.log group by key
  )
)
where log in (select log from addressed);
