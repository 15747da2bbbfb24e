-- A token that is gone. ?1 name.
-- Served by: the primary key of token_seen.
delete from token_seen where name = ?1
