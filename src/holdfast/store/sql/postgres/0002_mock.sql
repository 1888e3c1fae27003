-- Mock tasks: their calls of tools are answered by mocks and touch nothing. Lists tell them from real ones.

alter table tasks add column mock boolean not null default false;
