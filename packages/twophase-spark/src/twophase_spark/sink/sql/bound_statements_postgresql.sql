-- For this transaction alone; it bounds waits for locks too.
select set_config('statement_timeout', :statement_timeout, true)
