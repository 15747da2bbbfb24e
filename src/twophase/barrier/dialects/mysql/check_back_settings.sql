-- Row locks and table (metadata) locks are bounded apart; seconds, at least one.
set @twophase_row_lock_timeout = @@session.innodb_lock_wait_timeout,
    @twophase_table_lock_timeout = @@session.lock_wait_timeout,
    session innodb_lock_wait_timeout = :lock_timeout_s,
    session lock_wait_timeout = :lock_timeout_s
