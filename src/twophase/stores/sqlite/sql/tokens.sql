-- All tokens that are noted, with the revision; a row without a name when there is none.
-- Served by: the primary keys of store_meta and token_seen.
select store_meta.value, token_seen.name, token_seen.description
from store_meta left join token_seen on true
where store_meta.name = 'tokens_revision'
order by token_seen.name
