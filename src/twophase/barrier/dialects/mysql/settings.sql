-- A client that dies in the middle is thrown out; the session's own bound is put back by restore.sql.
set @twophase_wait_timeout = @@session.wait_timeout,
    session wait_timeout = least(@@session.wait_timeout, :idle_timeout_s)
