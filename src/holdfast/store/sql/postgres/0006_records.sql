-- Records: logs whose beginning may go, and whose name may be given again.
--
-- A tombstone now says how far a log is gone: up to and with its seq, where its digest stands. Of a task that is all of
-- it, for ever. Of records it may be the beginning: `base` of the log then is the same seq, and its first digest follows
-- from the tombstone's, so that the rest of the chain still verifies. A log of records that was removed whole may begin
-- again there, and only there. So no seq of a name is ever used twice, and nothing is deleted that a tombstone does not
-- cover. A tombstone moves forward, never back.

create or replace function refuse_to_delete_event() returns trigger language plpgsql set search_path from current as $$
begin
  if exists (
    select from tombstones join logs using (name) where logs.log = old.log and old.seq <= tombstones.seq
  ) then
    return old;
  end if;
  raise exception 'events are never deleted: only what a row in tombstones covers can be removed'
    using errcode = 'restrict_violation';
end $$;

create or replace function refuse_removed_name() returns trigger language plpgsql set search_path from current as $$
begin
  if exists (
    select from tombstones
    where tombstones.name = new.name and not (new.parent is null and tombstones.seq = new.base)
  ) then
    raise exception 'a log of this name was removed' using errcode = 'unique_violation';
  end if;
  return null;
end $$;

create trigger tombstones_move_forward before update on tombstones
for each row when (new.name <> old.name or new.seq <= old.seq)
execute function refuse('tombstones never move back');
