-- ?1 name.
-- Served by: the primary key of topic.
delete from topic where name = ?1
