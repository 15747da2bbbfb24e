-- Other settings of a topic or a group, where those that are known stand. ?1 new, ?2 kind, ?3 name, ?4 known.
-- Served by: the primary key of queue_definition.
update queue_definition set text = ?1 where kind = ?2 and name = ?3 and text = ?4
