-- Queues: what workers look for, by index.
--
-- `namespace` keeps tenants apart; every list is of one namespace. `key` is what a queue may limit: so many tasks of one
-- key at a time. `claims` counts how often a task was taken, so that a first start can be told from going on. Workers
-- find tasks that are ready in the order of their priority, and those that wait for a time in the order of that.
-- `holders` says what each worker serves; whether it lives is not asked here, but of its lock. `rates` remembers how
-- many starts a queue with a rate has left. Both tables can be emptied at any time.

alter table tasks add column namespace text not null default '';
alter table tasks add column key text;
alter table tasks add column version text not null default '';
alter table tasks add column claims integer not null default 0;

drop index tasks_by_status;
drop index tasks_by_agent;
drop index tasks_by_agent_and_status;
drop index tasks_by_stage;
drop index tasks_by_stage_and_status;
drop index tasks_by_user;
drop index tasks_by_user_and_status;

create index tasks_by_namespace on tasks (namespace, log);
create index tasks_by_status on tasks (namespace, status, log);
create index tasks_by_agent  on tasks (namespace, agent, log);
create index tasks_by_agent_and_status on tasks (namespace, agent, status, log);
create index tasks_by_stage  on tasks (namespace, stage, log) where stage is not null;
create index tasks_by_stage_and_status on tasks (namespace, stage, status, log) where stage is not null;
create index tasks_by_user   on tasks (namespace, user, log) where user is not null;
create index tasks_by_user_and_status on tasks (namespace, user, status, log) where user is not null;

create index tasks_ready  on tasks (namespace, queue, priority desc, log, agent, version)
  where status = 'pending' and wake is null;
create index tasks_waking on tasks (namespace, queue, wake, agent, version)
  where wake is not null and status in ('pending', 'waiting');
create index tasks_held   on tasks (holder, namespace, queue, key) where status = 'running';

create table holders (
  name   text    not null primary key,
  serves text    not null,
  beat   integer not null
) strict, without rowid;

create table rates (
  namespace text    not null,
  queue     text    not null,
  tokens    real    not null,
  at        integer not null,
  primary key (namespace, queue)
) strict, without rowid;
