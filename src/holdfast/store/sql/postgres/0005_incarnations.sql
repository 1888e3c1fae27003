-- Liveness that outlives a connection.
--
-- A lock on a session vanishes whenever the session does: the server restarts, fails over, ends it, or something between
-- cuts it. So a missing lock is no proof of death. What is needed to tell more goes into a holder's row: on which
-- incarnation of the server (`pg_postmaster_start_time`) it took its lock, which process on which machine it is, so that
-- others there can look whether it exists, how long it may be silent, and whether it said goodbye.
--
-- `incarnations` says when each incarnation of the server was first noted. A standby that takes over has run for long by
-- then, so its start says nothing; the first note does. Nobody is presumed dead for something that was missed before it.
-- The table can be emptied at any time: the present incarnation is noted again.

alter table holders add column incarnation timestamptz;
alter table holders add column machine text not null default '';
alter table holders add column process text not null default '';
alter table holders add column lease double precision not null default 0;
alter table holders add column gone boolean not null default false;

create table incarnations (
  started timestamptz not null primary key,
  noted   timestamptz not null
);
