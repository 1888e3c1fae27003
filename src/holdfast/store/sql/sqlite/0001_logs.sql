-- The first schema.
--
-- A log is its rows in `events`: one row an event, never updated, never deleted. `logs` gives each log a small number,
-- so that rows and the index stay narrow, and says where a fork's own events begin. `tasks` is the projection that
-- lists and queues read: it can be rebuilt from the events, and remembers a head the log is known to have had, so that
-- a log which lost its tail is noticed. `snapshots` is a cache. `blobs` holds large values by the hash of their
-- content; `blob_uses` says which logs refer to them. `effects` holds unique keys, which outlive the logs that took them.
--
-- Two exceptions to "never", each of which leaves a row of its own: an erased body (`erasures`) and a removed log
-- (`tombstones`). The triggers at the end refuse everything else.
--
-- `events` is an ordinary rowid table: clustered rows of a kilobyte would spill onto pages of their own.

create table logs (
  log      integer primary key autoincrement,
  name     text    not null unique,
  parent   integer references logs (log),
  base     integer not null default 0 check (base >= 0)
) strict;

create index logs_by_parent on logs (parent) where parent is not null;

create table events (
  log       integer not null,
  seq       integer not null check (seq > 0),
  kind      text    not null,
  at        integer not null,
  body      blob,
  body_hash blob    not null check (length(body_hash) = 32),
  digest    blob    not null check (length(digest) = 32),
  primary key (log, seq)
) strict;

create index events_cold on events (log, kind, seq)
  where kind in ('checkpoint_made', 'decision_made', 'message_added', 'rolled_back', 'turn_started');

create table tasks (
  log           integer primary key references logs (log),
  agent         text    not null,
  status        text    not null check (status in ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
  stage         text,
  user          text,
  thread        text,
  parent        text,
  waiting       text,
  holder        text,
  lease_seconds real    not null default 0,
  queue         text    not null default 'default',
  priority      integer not null default 0,
  wake          integer,
  deadline      integer,
  created       integer not null,
  changed       integer not null,
  anchor_seq    integer not null,
  anchor_digest blob    not null
) strict;

create index tasks_by_status on tasks (status, log);
create index tasks_by_agent  on tasks (agent, log);
create index tasks_by_agent_and_status on tasks (agent, status, log);
create index tasks_by_stage  on tasks (stage, log) where stage is not null;
create index tasks_by_stage_and_status on tasks (stage, status, log) where stage is not null;
create index tasks_by_user   on tasks (user, log) where user is not null;
create index tasks_by_user_and_status on tasks (user, status, log) where user is not null;
create index tasks_ended     on tasks (changed, log) where status in ('completed', 'failed', 'cancelled');

create table snapshots (
  log     integer not null,
  seq     integer not null,
  digest  blob    not null,
  version integer not null,
  at      integer not null,
  body    blob    not null,
  primary key (log, seq)
) strict;

create table blobs (
  hash blob not null primary key,
  data blob not null
) strict;

create table blob_uses (
  hash blob    not null,
  log  integer not null,
  primary key (hash, log)
) strict, without rowid;

create index blob_uses_by_log on blob_uses (log);

create table effects (
  key        text not null primary key,
  log        text not null,
  step       text not null,
  input_hash text not null
) strict, without rowid;

create table erasures (
  log integer not null,
  seq integer not null,
  by  text    not null,
  why text    not null,
  at  integer not null,
  primary key (log, seq)
) strict;

create table tombstones (
  name   text    not null primary key,
  log    integer not null,
  seq    integer not null,
  digest blob    not null,
  at     integer not null,
  why    text    not null
) strict, without rowid;

create trigger events_are_never_changed before update on events
when not (
  new.body is null and old.body is not null
  and new.log is old.log and new.seq is old.seq and new.kind is old.kind and new.at is old.at
  and new.body_hash is old.body_hash and new.digest is old.digest
  and exists (select 1 from erasures where log = old.log and seq = old.seq)
)
begin select raise(abort, 'events are never changed: only a body can be erased, with a row in erasures'); end;

create trigger events_are_never_deleted before delete on events
when not exists (select 1 from tombstones join logs using (name) where logs.log = old.log)
begin select raise(abort, 'events are never deleted: only a whole log can be removed, with a row in tombstones'); end;

create trigger erasures_stay before update on erasures
begin select raise(abort, 'erasures are never changed'); end;

create trigger tombstones_stay before delete on tombstones
begin select raise(abort, 'tombstones are never deleted'); end;
