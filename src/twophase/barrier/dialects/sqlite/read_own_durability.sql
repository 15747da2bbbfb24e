-- What would make a confirmed commit forgettable, in words; a database without a file has nothing to forget. Both are
-- settings of this one connection, so whoever commits looks for himself.
select case
         when journal.journal_mode in ('off', 'memory')
           then 'SQLite keeps no rollback journal on disk (journal_mode ' || journal.journal_mode || ')'
         when sync.synchronous < 1 or (sync.synchronous = 1 and journal.journal_mode = 'wal')
           then 'SQLite commits without waiting for the disk (synchronous is below FULL)'
       end
from pragma_journal_mode as journal, pragma_synchronous as sync
where exists (select 1 from pragma_database_list where name = 'main' and file <> '')
