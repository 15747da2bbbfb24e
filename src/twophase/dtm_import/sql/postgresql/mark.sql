-- A number that changes when dtm takes, retries, finishes or begins any transaction.
-- Served by: the index (status, next_cron_time).
select
    count(*),
    coalesce(sum(cast(cast('x' || substr(md5(
        concat_ws('|', gid, status, coalesce(owner, ''), coalesce(cast(next_cron_time as text), ''))
    ), 1, 8) as bit(32)) as bigint)), 0)
from trans_global
where status in ('prepared', 'aborting', 'submitted')
