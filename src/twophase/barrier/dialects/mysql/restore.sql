-- What settings.sql and check_back_settings.sql changed in a session that goes back to its pool. The casts are for
-- variables that were never set: those count as texts.
set session wait_timeout = cast(ifnull(@twophase_wait_timeout, @@session.wait_timeout) as unsigned),
    session innodb_lock_wait_timeout =
      cast(ifnull(@twophase_row_lock_timeout, @@session.innodb_lock_wait_timeout) as unsigned),
    session lock_wait_timeout = cast(ifnull(@twophase_table_lock_timeout, @@session.lock_wait_timeout) as unsigned),
    @twophase_wait_timeout = null,
    @twophase_row_lock_timeout = null,
    @twophase_table_lock_timeout = null
