-- A topic of queues or a group, unless there is one of that name. $1 kind, $2 name, $3 its settings, $4 the clock or null,
-- $5 node, $6 to $13 the columns of acts, see ../audit.sql: they are appended where this makes it. Answers with the settings
-- that stand; no row while another transaction makes it.
-- Served by: the primary key of queue_definition, and what the function names.
with made as (
    insert into queue_definition (kind, name, text) values ($1, $2, $3) on conflict (kind, name) do nothing returning text
), noted as (
    select made.text, twophase_audit(
        array[coalesce($4::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 0],
        $5, $6, $7, $8, $9, $10, $11, $12, $13
    ) as answer
    from made
)
select text from noted where answer is not null
union all
select text from queue_definition where kind = $1 and name = $2
limit 1
