-- The update writes the row, so this commit syncs the log behind the commit it read, whatever its writer's settings.
update {table}
set update_time = strftime('%Y-%m-%d %H:%M:%f', 'now')
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01'
returning cast(gid as text), cast(branch_id as text), cast(reason as text)
