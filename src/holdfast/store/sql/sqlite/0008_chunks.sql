-- Chunks: what steps stream while they run, for watchers in other processes.
--
-- No part of any log, and nothing that counts: the result of a step is in its log. `stream` is one attempt of a step,
-- `part` a batch of its chunks, `after` the last event of the log when it began. Whether a batch still holds is told by
-- the log, so rows may be missing, be left over, and be deleted at any time.

create table chunks (
  log     integer not null,
  stream  text    not null,
  part    integer not null,
  step    text    not null,
  attempt integer not null,
  after   integer not null,
  at      integer not null,
  data    blob    not null,
  primary key (log, stream, part)
) strict;
