-- A token that came or changed. ?1 name, ?2 description.
-- Served by: the primary key of token_seen.
insert into token_seen (name, description) values (?1, ?2)
on conflict (name) do update set description = excluded.description
