-- What would make a confirmed commit forgettable, in words; no row when nothing would. A database without a file has
-- nothing to forget. All are settings of this one connection, so each connection that commits is asked; and each
-- attached file has its own, whichever of them the barrier and the business are in. In journal_mode delete only EXTRA
-- (3) syncs the directory after the journal is unlinked: without that the journal may come back after a power loss and
-- roll the commit back. Truncate and persist sync the journal itself. With WAL anywhere, a commit that writes to several
-- attached files is one of each file alone.
select case
         when journal.journal_mode in ('off', 'memory')
           then 'SQLite keeps no rollback journal on disk (journal_mode ' || journal.journal_mode || ')'
         when sync.synchronous < 2
           then 'SQLite commits without waiting for the disk (synchronous is below FULL)'
         when sync.synchronous < 3 and journal.journal_mode = 'delete'
           then 'SQLite may take a commit back after a power loss (synchronous is below EXTRA in journal_mode delete)'
         when journal.journal_mode = 'wal' and (select count(*) from pragma_database_list where file <> '') > 1
           then 'SQLite in journal_mode wal commits each attached database by itself'
       end
       || case known.name when 'main' then '' else ' in ' || known.name end
from pragma_database_list as known, pragma_journal_mode(known.name) as journal, pragma_synchronous(known.name) as sync
where known.file <> ''
