-- All topics.
-- Served by: uniq_k, the unique key (cat, k).
select k, v from kv where cat = 'topics' order by k
