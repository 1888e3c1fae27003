-- Expiry: how long a task may wait, or be pending, with nothing happening to it.
--
-- `expire` is a length of time in microseconds, null if the task never expires. `gc` cancels a task once so much time has
-- passed since its row last changed. The index holds only tasks that can expire, so `gc` reads no others.

alter table tasks add column expire integer;

create index tasks_expiring on tasks (namespace, log) where expire is not null and status in ('pending', 'waiting');
