-- Always changes the row (the clock has whole seconds, hence the toggle): InnoDB shows a commit before it is flushed,
-- and only this transaction's own commit that wrote something flushes the log behind it. MariaDB bounds the statement
-- in milliseconds.
/*M! set statement max_statement_time = :lock_timeout_fraction for */
update {table}
set update_time = if(update_time <=> now(), now() - interval 1 second, now())
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01'
