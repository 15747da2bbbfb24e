-- What would make a confirmed commit forgettable, in words; no row when nothing would. MariaDB's 3 flushes as 1 does.
-- With a binary log, recovery rolls back what it does not find there, so the log must be synced with each commit, too.
select 'innodb_flush_log_at_trx_commit is not 1, so a commit is confirmed before it is on disk' as danger
from dual
where @@global.innodb_flush_log_at_trx_commit not in (1, 3)
union all
select 'there is a binary log and sync_binlog is not 1, so recovery may roll a confirmed commit back'
from dual
where @@global.log_bin = 1 and @@global.sync_binlog <> 1
