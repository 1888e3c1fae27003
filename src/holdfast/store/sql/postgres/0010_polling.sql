-- Stores on servers that notify nobody.
--
-- A session whose address says wakeups=poll has set `holdfast.wakeups`. What it writes wakes no worker: workers of such a
-- store look for tasks by themselves (`tasks_by_change`). Sessions that say nothing notify as before.

drop trigger workers_are_told on tasks;

create trigger workers_are_told after insert or update on tasks
for each row when (new.status = 'pending' and coalesce(current_setting('holdfast.wakeups', true), '') <> 'poll')
execute function tell_workers();
