-- Unfinished transactions that are not copied, by their kind.
-- Served by: status_next_cron_time.
select trans_type, status, count(*)
from trans_global
where status in ('prepared', 'aborting', 'submitted') and not (trans_type = 'msg' and status <> 'aborting')
group by trans_type, status
order by trans_type, status
