-- A topic of queues or a group as it is to be, where the one that is known stands; no row where another does.
-- $1 kind, $2 name, $3 the settings that are known, null: none, $4 the new ones, null: remove it with what groups have done,
-- $5 the clock or null, $6 node, $7 to $14 the columns of acts, see ../audit.sql.
-- Served by: the primary key of queue_definition, queue_progress whole (a row for each group and queue).
with made as (
    insert into queue_definition (kind, name, text)
    select $1, $2, $4 where $3::text is null and $4::text is not null
    on conflict (kind, name) do nothing
    returning 1 as one
), changed as (
    update queue_definition set text = $4
    where kind = $1 and name = $2 and text = $3 and $4::text is not null
    returning 1 as one
), removed as (
    delete from queue_definition where kind = $1 and name = $2 and text = $3 and $4::text is null returning 1 as one
), unread as (
    delete from queue_progress using removed
    where ($1 = 'group' and queue_progress.consumers = $2) or ($1 = 'topic' and queue_progress.topic = $2)
)
select twophase_audit(
    array[coalesce($5::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 0],
    $6, $7, $8, $9, $10, $11, $12, $13, $14
)
from (select one from made union all select one from changed union all select one from removed) as done
