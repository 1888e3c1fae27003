-- Chunks: what steps stream while they run, for watchers in other processes.
--
-- No part of any log, and nothing that counts: the result of a step is in its log. `stream` is one attempt of a step,
-- `part` a batch of its chunks, `after` the last event of the log when it began. Whether a batch still holds is told by
-- the log, so rows may be missing, be left over, and be deleted at any time. The table isn't written to the server's own
-- log: after a crash of the server it is empty.

create unlogged table chunks (
  log     bigint not null,
  stream  text   not null,
  part    bigint not null,
  step    text   not null,
  attempt bigint not null,
  after   bigint not null,
  at      bigint not null,
  data    bytea  not null,
  primary key (log, stream, part)
);
