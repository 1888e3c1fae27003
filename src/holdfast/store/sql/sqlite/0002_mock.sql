-- Mock tasks: their calls of tools are answered by mocks and touch nothing. Lists tell them from real ones.

alter table tasks add column mock integer not null default 0 check (mock in (0, 1));
