-- From this version on, every process that has the file open keeps a guard beside it (the file "-guard"), with locks
-- that POSIX does not drop. The tables are as before. The number moves so that versions of Holdfast without a guard
-- refuse the file: they would write to it without asking.
select 1;
