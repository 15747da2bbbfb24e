-- All topics with the revision they stand at, of one moment; no row when that is known already, a row of nulls when there
-- is no topic. $1 the revision that is known.
-- Served by: the primary keys of store_meta and topic, of which the second is read whole.
select store_meta.value, topic.name, topic.id, topic.version, topic.created_ms, topic.changed_ms, topic.subscribers
from store_meta left join topic on true
where store_meta.name = 'topics_revision' and store_meta.value <> $1
order by topic.name
