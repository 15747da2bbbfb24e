-- Always changes the row (the clock has whole seconds, hence the toggle): InnoDB shows a commit before it is flushed,
-- and only this transaction's own commit that wrote something flushes the log behind it. Exclusive from the start,
-- where INSERT IGNORE would leave several waiters with shared locks and in deadlock. MariaDB bounds the statement in
-- milliseconds.
/*M! set statement max_statement_time = :lock_timeout_fraction for */
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at)
values ('msg', :gid, '00', 'msg', '01', 'rollback', :token, :prepared_at)
on duplicate key update update_time = if(update_time <=> now(), now() - interval 1 second, now())
