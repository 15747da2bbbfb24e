-- The next revision of the topics, if they still stand at the one that is known. ?1 that one.
-- Served by: the primary key of store_meta.
update store_meta set value = value + 1 where name = 'topics_revision' and value = ?1
