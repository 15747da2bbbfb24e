-- What settings.sql and check_back_settings.sql changed in a session that goes back to its pool.
set session wait_timeout = ifnull(@twophase_wait_timeout, @@session.wait_timeout),
    session innodb_lock_wait_timeout = ifnull(@twophase_row_lock_timeout, @@session.innodb_lock_wait_timeout),
    session lock_wait_timeout = ifnull(@twophase_table_lock_timeout, @@session.lock_wait_timeout),
    @twophase_wait_timeout = null,
    @twophase_row_lock_timeout = null,
    @twophase_table_lock_timeout = null
