-- The first schema.
--
-- The tables are those of SQLite, with two differences. `events` is parted into sixteen by the hash of the log, so that
-- no index and no vacuum ever has to deal with all of it. And a row of `logs` holds the head of its log: an append moves
-- it from the seq and the digest it expects, in the same statement that writes the events, and touches no part but the
-- one it writes to. So that row is also the lock of its log. It can be made again from the events; `check` compares
-- them, and a log that lost its tail is noticed by it. Pages are left half empty, so that the row moves within its page.
--
-- Text is compared byte by byte, so that pages go on in the same order on every server.
--
-- The triggers refuse to change or delete events, with two exceptions, each of which leaves a row of its own: an erased
-- body (`erasures`) and a removed log (`tombstones`). A name that was removed is never given again: that is looked at
-- after the row is in, when nobody else can be removing it any more.
--
-- A later file may add a table, an index or a column with a default. Processes that run meanwhile name the columns they
-- write and read, and do not notice.

create table logs (
  log    bigint generated always as identity primary key,
  name   text collate "C" not null unique,
  parent bigint references logs (log),
  base   bigint not null default 0 check (base >= 0),
  seq    bigint not null,
  digest bytea  not null check (length(digest) = 32)
) with (fillfactor = 50);

create index logs_by_parent on logs (parent) where parent is not null;

create table events (
  log       bigint not null,
  seq       bigint not null check (seq > 0),
  kind      text collate "C" not null,
  at        bigint not null,
  body      bytea,
  body_hash bytea  not null check (length(body_hash) = 32),
  digest    bytea  not null check (length(digest) = 32),
  primary key (log, seq)
) partition by hash (log);

create index events_cold on events (log, kind, seq)
  where kind in ('checkpoint_made', 'decision_made', 'message_added', 'rolled_back', 'turn_started');

create table tasks (
  log           bigint primary key references logs (log),
  agent         text collate "C" not null,
  status        text collate "C" not null
    check (status in ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
  stage         text collate "C",
  "user"        text collate "C",
  thread        text collate "C",
  parent        text collate "C",
  waiting       text collate "C",
  holder        text collate "C",
  lease_seconds double precision not null default 0,
  queue         text collate "C" not null default 'default',
  priority      bigint not null default 0,
  wake          bigint,
  deadline      bigint,
  created       bigint not null,
  changed       bigint not null
) with (fillfactor = 80);

create index tasks_by_status on tasks (status, log);
create index tasks_by_agent  on tasks (agent, log);
create index tasks_by_agent_and_status on tasks (agent, status, log);
create index tasks_by_stage  on tasks (stage, log) where stage is not null;
create index tasks_by_stage_and_status on tasks (stage, status, log) where stage is not null;
create index tasks_by_user   on tasks ("user", log) where "user" is not null;
create index tasks_by_user_and_status on tasks ("user", status, log) where "user" is not null;
create index tasks_ended     on tasks (changed, log) where status in ('completed', 'failed', 'cancelled');

create table snapshots (
  log     bigint not null,
  seq     bigint not null,
  digest  bytea  not null,
  version bigint not null,
  at      bigint not null,
  body    bytea  not null,
  primary key (log, seq)
);

create table blobs (
  hash bytea not null primary key,
  data bytea not null
);

alter table blobs alter column data set storage external;  -- it is compressed already

create table blob_uses (
  hash bytea  not null references blobs (hash),
  log  bigint not null,
  primary key (hash, log)
);

create index blob_uses_by_log on blob_uses (log);

create table effects (
  key        text collate "C" not null primary key,
  log        text collate "C" not null,
  step       text collate "C" not null,
  input_hash text collate "C" not null
);

create table erasures (
  log bigint not null,
  seq bigint not null,
  by  text   not null,
  why text   not null,
  at  bigint not null,
  primary key (log, seq)
);

create table tombstones (
  name   text collate "C" not null primary key,
  log    bigint not null,
  seq    bigint not null,
  digest bytea  not null,
  at     bigint not null,
  why    text   not null
);

create function refuse() returns trigger language plpgsql as $$
begin
  raise exception '%', tg_argv[0] using errcode = 'restrict_violation';
end $$;

create function refuse_to_change_event() returns trigger language plpgsql set search_path from current as $$
begin
  if new.body is null and old.body is not null
    and (new.log, new.seq, new.kind, new.at, new.body_hash, new.digest)
      = (old.log, old.seq, old.kind, old.at, old.body_hash, old.digest)
    and exists (select from erasures where log = old.log and seq = old.seq)
  then
    return new;
  end if;
  raise exception 'events are never changed: only a body can be erased, with a row in erasures'
    using errcode = 'restrict_violation';
end $$;

create function refuse_to_delete_event() returns trigger language plpgsql set search_path from current as $$
begin
  if exists (select from tombstones join logs using (name) where logs.log = old.log) then
    return old;
  end if;
  raise exception 'events are never deleted: only a whole log can be removed, with a row in tombstones'
    using errcode = 'restrict_violation';
end $$;

create function refuse_removed_name() returns trigger language plpgsql set search_path from current as $$
begin
  if exists (select from tombstones where name = new.name) then
    raise exception 'a log of this name was removed' using errcode = 'unique_violation';
  end if;
  return null;
end $$;

create trigger events_are_never_changed before update on events
for each row execute function refuse_to_change_event();

create trigger events_are_never_deleted before delete on events
for each row execute function refuse_to_delete_event();

create trigger events_are_never_truncated before truncate on events
for each statement execute function refuse('events are never deleted: only a whole log can be removed');

create trigger names_are_never_given_again after insert on logs
for each row execute function refuse_removed_name();

create trigger erasures_stay before update on erasures
for each row execute function refuse('erasures are never changed');

create trigger tombstones_stay before delete on tombstones
for each row execute function refuse('tombstones are never deleted');

do $$
begin
  for part in 0 .. 15 loop
    execute format('create table events_%s partition of events for values with (modulus 16, remainder %s)', part, part);
    execute format(
      'create trigger events_are_never_truncated before truncate on events_%s for each statement
       execute function refuse(''events are never deleted: only a whole log can be removed'')', part);
  end loop;
end $$;
