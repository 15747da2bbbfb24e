-- A topic of queues or a group, unless there is one of that name. ?1 kind, ?2 name, ?3 its settings.
-- Served by: the primary key of queue_definition.
insert into queue_definition (kind, name, text) values (?1, ?2, ?3) on conflict (kind, name) do nothing
