-- A number that changes when dtm takes, retries, finishes or begins any transaction.
-- Served by: status_next_cron_time.
select
    count(*),
    coalesce(sum(crc32(concat_ws('|', gid, status, coalesce(owner, ''), coalesce(next_cron_time, '')))), 0)
from trans_global
where status in ('prepared', 'aborting', 'submitted')
