-- A topic of queues or a group, unless there is one of that name. $1 kind, $2 name, $3 its settings. Answers with the settings
-- that stand; no row while another transaction makes it.
-- Served by: the primary key of queue_definition.
with made as (
    insert into queue_definition (kind, name, text) values ($1, $2, $3) on conflict (kind, name) do nothing returning text
)
select text from made
union all
select text from queue_definition where kind = $1 and name = $2
limit 1
