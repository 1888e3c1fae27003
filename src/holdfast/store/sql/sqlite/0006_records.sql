-- Records: logs whose beginning may go, and whose name may be given again.
--
-- A tombstone now says how far a log is gone: up to and with its seq, where its digest stands. Of a task that is all of
-- it, for ever. Of records it may be the beginning: `base` of the log then is the same seq, and its first digest follows
-- from the tombstone's, so that the rest of the chain still verifies. A log of records that was removed whole may begin
-- again there, and only there. So no seq of a name is ever used twice, and nothing is deleted that a tombstone does not
-- cover. A tombstone moves forward, never back.

drop trigger events_are_never_deleted;

create trigger events_are_never_deleted before delete on events
when not exists (
  select 1 from tombstones join logs using (name) where logs.log = old.log and old.seq <= tombstones.seq
)
begin select raise(abort, 'events are never deleted: only what a row in tombstones covers can be removed'); end;

create trigger tombstones_move_forward before update on tombstones
when new.name is not old.name or new.seq <= old.seq
begin select raise(abort, 'tombstones never move back'); end;
