-- Removes a topic or a group, where the settings that are known stand. ?1 kind, ?2 name, ?3 known.
-- Served by: the primary key of queue_definition.
delete from queue_definition where kind = ?1 and name = ?2 and text = ?3
