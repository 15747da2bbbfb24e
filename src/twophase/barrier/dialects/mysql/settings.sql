-- A client that dies in the middle is thrown out; the session's own bound is put back by restore.sql. It is kept once,
-- also where a transaction has two barrier rows.
set @twophase_wait_timeout = ifnull(@twophase_wait_timeout, @@session.wait_timeout),
    session wait_timeout = least(@@session.wait_timeout, :idle_timeout_s)
