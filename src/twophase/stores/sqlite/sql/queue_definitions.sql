-- All topics of queues, and all groups: there are few.
-- Served by: the whole table, on purpose.
select kind, name, text from queue_definition
