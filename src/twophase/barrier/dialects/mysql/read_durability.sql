-- What would make a confirmed commit forgettable, in words; no row when nothing would.
select 'MySQL runs with innodb_flush_log_at_trx_commit other than 1' as danger
from dual
where @@global.innodb_flush_log_at_trx_commit <> 1
union all
select 'the barrier table is not an InnoDB table'
from information_schema.tables
where table_schema = coalesce(:schema, database()) and table_name = :name and engine <> 'InnoDB'
