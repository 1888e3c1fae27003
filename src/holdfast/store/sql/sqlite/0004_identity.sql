-- Which store this is: an id that no other has, for what is kept elsewhere (a shared cache) in its name, and a key that
-- signs it. Both are made here, once. A copy of the file has the same; what is cached is confirmed by the log anyway.

create table identity (
  one integer not null primary key check (one = 1),
  id  text    not null,
  key blob    not null
) strict;

insert into identity (one, id, key) values (1, lower(hex(randomblob(16))), randomblob(32));
