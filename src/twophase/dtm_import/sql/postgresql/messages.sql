-- Some unfinished messages by their numbers; times in seconds since 1970. dtm writes its machine's local time, which the
-- database takes for its own session's: when the two differ, `zone` is the former.
-- Served by: the primary key.
select
    gid, trans_type, status, query_prepared, protocol, options, custom_data, ext_data, next_cron_interval,
    extract(epoch from create_time at time zone current_setting('TimeZone')
        at time zone coalesce(cast(:zone as text), current_setting('TimeZone'))),
    extract(epoch from next_cron_time at time zone current_setting('TimeZone')
        at time zone coalesce(cast(:zone as text), current_setting('TimeZone')))
from trans_global
where id in :ids
order by id
