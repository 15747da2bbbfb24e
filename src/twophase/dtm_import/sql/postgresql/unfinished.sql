-- The numbers of all unfinished messages.
-- Served by: status_next_cron_time.
select id from trans_global where status in ('prepared', 'submitted') and trans_type = 'msg' order by id
