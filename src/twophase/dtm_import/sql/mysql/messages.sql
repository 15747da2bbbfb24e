-- Some unfinished messages by their numbers; times in seconds since 1970, read in the session's time zone.
-- Served by: the primary key.
select
    gid, trans_type, status, query_prepared, protocol, options, custom_data, ext_data, next_cron_interval,
    unix_timestamp(create_time), unix_timestamp(next_cron_time)
from trans_global
where id in :ids
order by id
