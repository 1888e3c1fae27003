-- Workers ask in turns.
--
-- A task that becomes ready is told to all workers, of which one can take it. Each has a place in the order in which they
-- ask, which it computes from the names of the others and from the number of the transaction: so that is now told as
-- well. Versions that don't know it ask at once, as before.

create or replace function tell_workers() returns trigger language plpgsql as $$
begin
  perform pg_notify(
    'holdfast_' || md5(tg_table_schema), new.namespace || ' ' || new.queue || ' ' || pg_current_xact_id()::text
  );
  return null;
end $$;
