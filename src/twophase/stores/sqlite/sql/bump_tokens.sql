-- The next revision of the tokens that are noted. ?1 the one that is known.
-- Served by: the primary key of store_meta.
update store_meta set value = value + 1 where name = 'tokens_revision' and value = ?1
